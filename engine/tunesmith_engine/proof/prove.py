"""The proof before step 0: every kernel of a run against its PyTorch twin on this GPU, in a child process.

A kernel that computes wrong, ends its process or never returns falls back to its twin alone, by name and with the
reason; the child says before and after each kernel where it is, and a new child goes on behind one that died. What
passed is remembered for this GPU, driver, PyTorch, Triton, widths and source of the kernels; what failed is tried again
in the next run, for a full GPU or a killed process says nothing about a kernel. What the child compiles is in the cache
of Triton when the run needs it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from tunesmith_core import files, paths, terminal
from tunesmith_core.hardware import nvidia_reading
from tunesmith_core.messages import Message
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.engine import PROVE_KERNELS, KernelsSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.protocol import Event
from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import triton_version
from tunesmith_engine.proof.cases import CASES
from tunesmith_engine.proof.inputs import Inputs, Results, Sizes

LIMIT_S = 180.0
"""The start of the child, and a kernel with its compilation, take less, even where a virus scanner reads every file."""

PROVEN_ROOMS = ("kernels", "attention", "proof")
"""Whose sources a remembered proof holds for."""

FACTOR, ROUNDINGS, SUM_ROUNDINGS = 2.0, 4.0, 64.0
"""A kernel may err by twice what its twin errs, by four steps of the run's number format, and by the float32 steps that
another order of a long sum costs."""


def prove(sizes: Sizes, device: torch.device) -> dict[str, str | None]:
    """Compare every kernel that would run on a device with its twin.

    Returns:
        For each of them why it must not run, or None when it is proven.
    """
    names = [name for name, case in CASES.items() if case.runs(sizes, device)]
    if not names:
        return {}
    remembered = _remembered(sizes, device)
    results: dict[str, str | None] = {name: None for name in _passed(remembered) if name in names}
    while left := [name for name in names if name not in results]:
        results |= _try_in_child(sizes, device, left)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    files.atomic_write_json(remembered, sorted(name for name, reason in results.items() if reason is None))
    return results


def apply(results: dict[str, str | None]) -> None:
    """Let every kernel that is not proven run as its twin; `registry.reason_off` says why from then on."""
    for name, reason in results.items():
        if reason:
            registry.switch_off(name, reason)


# In the child


def prove_here(host: Host, spec: KernelsSpec) -> None:
    """Compare kernels with their twins in this process, which may not survive it.

    Args:
        host: is told before each kernel (kernel), and after it (kernel, reason).
        spec: which kernels, sizes and device.
    """
    sizes, device = Sizes(**spec.sizes), torch.device(spec.device)
    for name in spec.kernels:
        host.event("check", kernel=name)
        reason = _reason(name, sizes, device)
        host.event("check", kernel=name, reason=reason)
        if reason and not _is_alive(device):
            return


def _reason(name: str, sizes: Sizes, device: torch.device) -> str | None:
    """Return what is wrong with a kernel, or None."""
    try:
        dtype = torch.float32 if CASES[name].in_float32 else getattr(torch, sizes.dtype)
        inputs = Inputs(sizes, device, dtype)
        kernel = _compute(name, inputs, twin=False)
        twin = _compute(name, inputs.again(dtype), twin=True)
        oracle = _compute(name, inputs.again(CASES[name].exact_dtype), twin=True)
        for part, exact in oracle.items():
            if excess := _excess(kernel[part], twin[part], exact, dtype):
                return Message("It computes {part} wrong on this computer: {excess}.", part=part, excess=excess)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Message("It failed on this computer: {error}", error=f"{type(error).__name__}: {lines[-1][:300]}")
    return None


def _compute(name: str, inputs: Inputs, twin: bool) -> Results:
    """Run a kernel's case and wait for its end, so that a fault is found where it belongs."""
    results = {part: values.double() for part, values in CASES[name].compute(inputs.sizes, inputs, twin).items()}
    if inputs.device.type == "cuda":
        torch.cuda.synchronize(inputs.device)
    return results


def _excess(kernel: torch.Tensor, twin: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> str | None:
    """Say how far a kernel is off, in the largest error and in their mean square, when it is too far.

    A kernel's values may each be a step of the format beside the exact ones on top: the vendors' attention rounds the
    gradients of keys and values for each query head before it adds them up, so a sum may come out one step beside the
    nearest number. Whether it does is chance, and often one value is by far the largest.
    """
    step = ROUNDINGS * torch.finfo(dtype).eps + SUM_ROUNDINGS * torch.finfo(torch.float32).eps
    scale = float(exact.square().mean().sqrt())
    beyond_a_step = ((kernel - exact).abs() - torch.finfo(dtype).eps * exact.abs()).max().clamp_min(0)
    errors = (
        (Message("largest error"), float(beyond_a_step), float((twin - exact).abs().max())),
        (Message("mean square error"), _mean_square(kernel - exact), _mean_square(twin - exact)),
    )
    for label, error, usual in errors:
        allowed = FACTOR * usual + step * scale
        # Written so that a NaN fails.
        if not error <= allowed:
            return Message(
                "{label} {error}, allowed {allowed}", label=label, error=f"{error:.2e}", allowed=f"{allowed:.2e}"
            )
    return None


def _mean_square(difference: torch.Tensor) -> float:
    return float(difference.square().mean().sqrt())


def _is_alive(device: torch.device) -> bool:
    """Return whether this process can still use its GPU: an illegal access ends that for good."""
    if device.type != "cuda":
        return True
    try:
        torch.cuda.synchronize(device)
        torch.zeros(1, device=device).item()
    except RuntimeError:
        return False
    return True


# In the parent


def _try_in_child(sizes: Sizes, device: torch.device, names: list[str]) -> dict[str, str | None]:
    """Start one child for kernels; return what it found until it ended, at least about the first of them."""
    told: list[dict[str, Any]] = []  # Any: JSON values

    def listen(event: Event) -> None:
        if event.type == "check":
            told.append(event.data)

    spec = KernelsSpec(dataclasses.asdict(sizes), str(device), names)
    outcome = conduct(PROVE_KERNELS, spec, on_event=listen, limit_s=LIMIT_S)
    results: dict[str, str | None] = {data["kernel"]: data["reason"] for data in told if "reason" in data}
    if outcome.state is OperationState.FINISHED and results:
        return results
    terminal.note(outcome.output.rstrip())
    if outcome.in_time:
        ended = Message("The process that tests kernels crashed with exit code {code}.", code=outcome.exit_code)
    else:
        ended = Message("The process that tests kernels hung for {seconds} s.", seconds=round(LIMIT_S))
    if not told:
        return dict.fromkeys(names, ended)
    if told[-1]["kernel"] not in results:
        results[told[-1]["kernel"]] = ended
    return results


def _passed(remembered: Path) -> list[str]:
    try:
        names = files.read_json(remembered)
    except (OSError, ValueError):
        return []
    return names if isinstance(names, list) else []


def _remembered(sizes: Sizes, device: torch.device) -> Path:
    """Return the file of what is proven here, among the compile caches: who clears those wants proof again."""
    facts = [torch.__version__, triton_version(), _source_hash(), sorted(dataclasses.asdict(sizes).items())]
    if device.type == "cuda":
        reading, gpu = nvidia_reading(), torch.cuda.get_device_properties(device)
        driver = reading.driver.version if reading and reading.driver else None
        facts += [gpu.name, gpu.major, gpu.minor, driver]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return paths.cache_dir() / "tc" / f"proof-{digest}.json"


def _source_hash() -> str:
    engine = Path(__file__).parents[1]
    sources = sorted(source for room in PROVEN_ROOMS for source in (engine / room).glob("*.py"))
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
