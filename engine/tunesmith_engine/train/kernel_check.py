"""The kernels of a run: proven on its GPU before step 0, then named, with the reason for each that doesn't run."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.kernel_words import RUNNING, TWINS
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import FROZEN_EMBEDDINGS
from tunesmith_core.spec_words import trained_embeddings
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.attention import backends_report
from tunesmith_engine.device import Compute
from tunesmith_engine.kernels import channel_delta, delta_rule, full_adamw, registry, state_space
from tunesmith_engine.proof.cases import CASES, KernelCase
from tunesmith_engine.proof.inputs import sizes_of
from tunesmith_engine.proof.prove import apply, prove
from tunesmith_engine.shapes import ModelShape
from tunesmith_engine.train.neftune import alpha_of


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """Sentences about the kernels of a run.

    Attributes:
        running: which run, and how attention is computed.
        twins: which run as plain PyTorch, and why.
    """

    running: list[str]
    twins: list[str]


def check_kernels(shape: ModelShape, compute: Compute, spec: RunSpec, capacity_tokens: int) -> KernelCheck:
    """Prove the kernels that a model needs, switch off what fails, and say what runs.

    Nothing is proven on the CPU: there the PyTorch twins run.
    """
    device = compute.device
    in_4_bits = spec.quantization.kind == "nf4"
    adapter = spec.adapter
    # DoRA with dropout runs in plain PyTorch.
    is_full = adapter.kind == FULL
    dropout = 0.0 if adapter.dora or is_full else adapter.dropout
    fp8, dora = spec.hardware.fp8_weights and not is_full, adapter.dora and not is_full
    noise, embeds = alpha_of(spec) > 0, not is_full and trained_embeddings(spec) != FROZEN_EMBEDDINGS
    sizes = sizes_of(shape, compute.dtype, in_4_bits, fp8, dora, dropout, noise, is_full, embeds)
    if device.type == "cuda":
        apply(prove(sizes, device))
    others = {"adamw", "adamw_8bit", full_adamw.NAME} - {full_adamw.NAME if is_full else spec.optimizer.name}
    if is_full and spec.optimizer.name == "adafactor":
        others.add(full_adamw.NAME)
    on: list[str] = []
    off: dict[str, list[str]] = {}
    for name, case in CASES.items():
        if isinstance(case, KernelCase) and case.wanted(sizes) and name not in others:
            reason = registry.reason_off(name, device)
            (on if reason is None else off.setdefault(reason, [])).append(name)
    kernels = delta_rule.NAME, channel_delta.NAME, state_space.NAME
    for mixers, name in zip((shape.deltas, shape.channel_deltas, shape.scans), kernels, strict=True):
        if mixers and device.type == "cuda" and not CASES[name].wanted(sizes):
            reason = Message("Its products are too coarse for {dtype}.", dtype=sizes.dtype)
            off.setdefault(reason, []).append(name)
    attention = {
        backends_report(attention, device, compute.dtype, num_tokens=capacity_tokens) for attention in shape.attentions
    }
    return KernelCheck(
        [*([Message(RUNNING.template, names=", ".join(on))] if on else []), *sorted(attention)],
        [
            Message(TWINS.template, names=", ".join(names), reason=reason)
            for reason, names in off.items()
        ],
    )
