"""Whether the model of a run can answer on a device now: beside what trains there, and without taking its memory."""

from __future__ import annotations

from tunesmith_core import paths, planner
from tunesmith_core.devices import device_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware, detect_hardware
from tunesmith_core.messages import Message
from tunesmith_core.model_cards import ModelCard
from tunesmith_core.objectives import HEADS
from tunesmith_core.planner import CUDA_RUNTIME_BYTES
from tunesmith_core.protocol import read_journal
from tunesmith_core.remembered import remembered_bytes
from tunesmith_core.run_queue import holder_of
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.terminal import gib
from tunesmith_core.trained_parts import FULL

MOST_REMEMBERED_TOKENS = 8192
"""Of a conversation, whose keys and values are planned for."""

WORKING_BYTES = 1 << 29
"""For activations of one row and what the allocator keeps beyond what is used."""

FREE_THE_GPU = Message("Close other programs that use the GPU, or answer on the CPU, which is slower.")
"""What helps an answer that the GPU has no memory for."""


def check_writes(spec: RunSpec) -> None:
    """Check that the model of a run writes texts. Raises UserError `usage`."""
    if spec.objective.kind in HEADS:
        raise TunesmithError(
            "usage",
            "This run trained a model that rates texts and writes none, so there is nothing to chat with.",
            hint="Export it to use its scores, or chat with a run that learned to write.",
        )


def needed_bytes(spec: RunSpec, card: ModelCard, hardware: Hardware) -> int:
    """Return about how much memory of a device the model of a run needs to answer.

    Args:
        spec: the run, on the device that answers.
        card: of its base model.
        hardware: the device.
    """
    size = planner.number_bytes(spec, hardware)
    linear = card.num_linear_parameters
    linear_size = planner.linear_bytes(spec, size)
    weights = (card.num_parameters - linear) * size + linear * linear_size
    adapter = 0 if spec.adapter.kind == FULL else 4 * planner.num_adapter_parameters(spec, card)
    tokens = min(MOST_REMEMBERED_TOKENS, max(spec.data.context_length, 2048))
    remembered = remembered_bytes(card, tokens, size)
    runtime = CUDA_RUNTIME_BYTES if hardware.device == "cuda" else 0
    return round(weights) + adapter + remembered + runtime + WORKING_BYTES


def check_room(spec: RunSpec, card: ModelCard) -> None:
    """Check that the model of a run fits into a GPU beside what runs there; on the CPU the system decides.

    Args:
        spec: the run, on the device that answers.
        card: of its base model.

    Raises:
        UserError: `gpu-busy`: answer on the CPU, or wait.
    """
    device = device_of(spec)
    gpu = next((each for each in detect_hardware() if each.gpu_index == device.gpu_index), None)
    if device.gpu_index is None or gpu is None:
        return
    needed, free = needed_bytes(spec, card, gpu), gpu.free_bytes
    name = holder_of(device)
    if name:
        free -= _still_to_come(Run(paths.runs_dir() / name))
    if needed <= free:
        return
    values = {"needed": gib(needed), "free": gib(max(0, free))}
    if name:
        raise TunesmithError(
            "gpu-busy",
            "The model needs about {needed} of GPU memory. Beside the run {run}, {free} are left.",
            run=name,
            **values,
        )
    raise TunesmithError(
        "gpu-busy",
        "The model needs about {needed} of GPU memory. {free} are free.",
        hint=FREE_THE_GPU,
        **values,
    )


def _still_to_come(run: Run) -> int:
    """Return how much memory a run has planned on its GPU and not yet taken."""
    planned = taken = 0
    for event in read_journal(run.journal_path):
        if event.type == "hello":
            planned = taken = 0
        elif event.type == "setup":
            planned = event.data.get("planned_bytes") or 0
        elif event.type == "gpu":
            taken = max(taken, event.data.get("reserved_bytes") or 0)
    return max(0, planned - taken)
