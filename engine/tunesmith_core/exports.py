"""What of a run can be exported, where to, and how large it becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import gguf_types
from tunesmith_core.checkpoint_manifest import step_of
from tunesmith_core.checkpoint_manifest import weight_files as checkpoint_weights
from tunesmith_core.errors import TunesmithError
from tunesmith_core.gguf_families import type_without_gguf
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import local_folder, open_model_folder, read_layout
from tunesmith_core.objectives import HEADS
from tunesmith_core.operations.kinds.export import ExportFormat, ExportSpec
from tunesmith_core.packed_weights import Layout
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import ADAPTER_FILES, Run, RunState, RunStatus, display_name, slug
from tunesmith_core.safetensors_header import BITS, Tensor, read_header
from tunesmith_core.shared_layers import type_without_merged
from tunesmith_core.trained_parts import FULL

CHECKPOINT_WEIGHTS = "adapter.safetensors"
"""The trained weights of a checkpoint."""

BASE_TYPE = "f16"
"""Of the base model's file that a GGUF adapter is compared on, which is deleted then."""

SPARE_BYTES = 64 << 20
"""Left free beside an export: a disk without any space stops every other program."""

FORMATS: tuple[ExportFormat, ...] = ("gguf", "merged", "adapter", "gguf-adapter")

UNKNOWN_LICENCE = "unknown"
"""Stands for the licence of a base model that names none."""

QUANTIZED_BITS = {"nf4": 4, "int8": 8}
"""Of the weights that a run trains on, by the kind of its quantization."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Trained weights of a run that can be exported.

    Attributes:
        checkpoint: what `ExportSpec.checkpoint` calls them: 0 for the finished adapter, else the step.
        step: after which they were saved.
        eval_loss: at that step, None where it was not measured.
        eval_reward: the same of a run that learns from rewards, whose loss is minus the mean reward.
        is_best: whether no other weights that the run kept have a lower one.
        num_bytes: of the file with the weights.
    """

    checkpoint: int
    step: int
    eval_loss: float | None
    is_best: bool
    num_bytes: int
    eval_reward: float | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """How large an export becomes, about.

    Attributes:
        num_bytes: of its files.
        needed_bytes: that must be free before it begins.
    """

    num_bytes: int
    needed_bytes: int


def has_finished_adapter(run: Run, status: RunStatus) -> bool:
    """Return whether a run's adapter is whole and its newest: of one that was resumed since, it is older."""
    is_newest = status.state in (RunState.FINISHED, RunState.STOPPED)
    return is_newest and run.adapter_path.name in status.artifacts.values() and not run.adapter_problem(status)


def saved_steps(run: Run) -> dict[int, Path]:
    """Return the folders of a run's checkpoints by their steps."""
    found = {step_of(path): path for path in run.checkpoints_path.glob("step-*")}
    return {step: found[step] for step in sorted(found) if step >= 0}


def chosen_weights(run: Run, checkpoint: int) -> tuple[int, Path]:
    """Return the step and the folder of trained weights of a run; no file in it is read yet.

    Args:
        run: in any state.
        checkpoint: its step; 0 for the finished adapter, or for the newest checkpoint where there is none.

    Raises:
        UserError: `nothing-to-export`, or `checkpoint-missing` with the steps that there are.
    """
    status = run.status()
    if not checkpoint and has_finished_adapter(run, status):
        return status.step, run.adapter_path
    saved = saved_steps(run)
    if not saved:
        raise TunesmithError("nothing-to-export", "The run {run} has no adapter and no checkpoint.", run=run.id)
    if checkpoint and checkpoint not in saved:
        raise TunesmithError(
            "checkpoint-missing",
            "The run {run} has no checkpoint of step {step}. It has: {steps}.",
            run=run.id,
            step=checkpoint,
            steps=", ".join(map(str, saved)),
        )
    chosen = checkpoint or max(saved)
    return chosen, saved[chosen]


def saved_weights(run: Run) -> list[Saved]:
    """Return what of a run can be exported: the finished adapter first, then checkpoints, the newest first."""
    status = run.status()
    evaluations = [event.data for event in read_journal(run.journal_path) if event.type == "eval"]
    losses: dict[Any, float | None] = {data.get("step"): data.get("loss") for data in evaluations}
    rewards: dict[Any, float | None] = {data.get("step"): data.get("reward") for data in evaluations}
    weights = [(step, step, checkpoint_weights(path)) for step, path in reversed(saved_steps(run).items())]
    if has_finished_adapter(run, status):
        weights.insert(0, (0, status.step, made_weights(run.adapter_path)))
    known = [loss for _, step, _ in weights if (loss := losses.get(step)) is not None]
    best = min(known, default=None) if len(set(known)) > 1 else None
    return [
        Saved(checkpoint, step, loss, best is not None and loss == best, _bytes_of(paths), rewards.get(step))
        for checkpoint, step, paths in weights
        for loss in [losses.get(step)]
    ]


def made_weights(folder: Path) -> list[Path]:
    """Return the files with the weights that a run has made: of its adapter, or of its whole model."""
    adapter = folder / ADAPTER_FILES[1]
    return [adapter] if adapter.is_file() else sorted(folder.glob("*.safetensors"))


def _bytes_of(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def base_layout(run: Run) -> Layout:
    """Return the weights of a run's base model; none where it is not on this computer.

    Raises:
        TunesmithError: what `load_spec`, `local_folder` and `open_model_folder` find.
    """
    model = run.load_spec().model
    folder = local_folder(model.path, model.revision)
    if folder is None:
        return Layout({})
    open_model_folder(folder)
    return read_layout(folder)


def base_without_gguf(run: Run) -> str:
    """Return the type of a run's base model that can't become a GGUF file, "" where it may or isn't known.

    Raises:
        TunesmithError: what `load_spec`, `local_folder` and `type_without_gguf` find.
    """
    model = run.load_spec().model
    folder = local_folder(model.path, model.revision)
    return type_without_gguf(folder) if folder is not None else ""


def base_without_merged(run: Run) -> str:
    """Return the type of a run's base model that can't hold its adapter, "" where it may or isn't known.

    Raises:
        TunesmithError: what `load_spec`, `local_folder` and `type_without_merged` find.
    """
    spec = run.load_spec()
    folder = local_folder(spec.model.path, spec.model.revision)
    if folder is None or spec.adapter.kind == FULL:
        return ""
    return type_without_merged(folder, _adapted(run))


def _adapted(run: Run) -> set[str]:
    """Return the names of the tensors of a run's adapter, none where it can't be read: the export says why."""
    try:
        _, folder = chosen_weights(run, 0)
        paths = made_weights(folder) if folder == run.adapter_path else checkpoint_weights(folder)
        return {name for path in paths for name in read_header(path)}
    except TunesmithError:
        return set()


def formats_of(objective: str) -> tuple[ExportFormat, ...]:
    """Return the formats that a run of an objective can be exported in: programs that read GGUF expect texts."""
    return tuple(each for each in FORMATS if objective not in HEADS or "gguf" not in each)


def needs_base(form: ExportFormat, *, is_finished: bool) -> bool:
    """Return whether an export can't be written without the base model.

    Args:
        form: of the export.
        is_finished: whether the finished adapter is exported, which holds all of its files already.
    """
    return form != "adapter" or not is_finished


def trained_on(bits: int) -> Message:
    """Say that a whole model has other weights than its run trained on, which had so many bits."""
    return Message(
        "The run trained on {bits}-bit weights. This model has the unquantized ones, so its losses can differ a "
        "little.",
        bits=bits,
    )


def whole_sizes(layout: Layout) -> dict[str, int]:
    """Return about how many bytes a whole model takes, by `ExportSpec.label`; {} where its weights are not known.

    Args:
        layout: of the base model's weights.
    """
    tensors = layout.weights
    if not tensors:
        return {}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    published = {name for name, packed in layout.packed.items() if packed.format == "mxfp4"}
    return {"merged": _merged_bytes(tensors)} | {
        f"gguf-{name}": gguf_types.about_bytes(name, shapes, published) for name in gguf_types.FILE_TYPES
    }


def size_of(spec: ExportSpec, sizes: Mapping[str, int], weights_bytes: int) -> Size | None:
    """Return how large an export becomes, None where that is not known.

    Args:
        spec: what is exported.
        sizes: see `whole_sizes`.
        weights_bytes: of the file with the trained weights.
    """
    if spec.format == "adapter":
        return Size(weights_bytes, 2 * weights_bytes + SPARE_BYTES)
    label = f"gguf-{BASE_TYPE}" if spec.format == "gguf-adapter" else spec.label
    if label not in sizes:
        return None
    header = 0 if spec.format == "merged" else gguf_types.HEADER_BYTES
    needed = sizes[label] + header + SPARE_BYTES
    if spec.format == "gguf-adapter":
        return Size(weights_bytes, needed + weights_bytes)
    return Size(sizes[label], needed)


def _merged_bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(math.prod(tensor.shape) * BITS[tensor.dtype] // 8 for tensor in tensors.values())


def on_the_hub(pushed: Mapping[str, Any]) -> Message:  # Any: JSON values
    """Return where an export is on the hub, and who sees it."""
    if pushed["private"]:
        return Message("On the hub, private: {url}", url=pushed["url"])
    return Message("On the hub, public: {url}", url=pushed["url"])


def facts(answer: Mapping[str, Any]) -> list[Message]:  # Any: JSON values
    """Return what else there is to say about an export that is done."""
    told = []
    if answer["existed"]:
        told.append(Message("It was exported before and has not changed since."))
    if answer.get("trained_on_bits"):
        told.append(trained_on(answer["trained_on_bits"]))
    if "ollama" in answer:
        told.append(Message("In Ollama: ollama run {name}", name=answer["ollama"]))
    if "lm_studio" in answer:
        told.append(Message("In LM Studio: {path}", path=answer["lm_studio"]))
    if "hub" in answer:
        told.append(on_the_hub(answer["hub"]))
    if answer["licence"] != UNKNOWN_LICENCE:
        told.append(Message("The license of the base model applies here too: {licence}", licence=answer["licence"]))
    return told


def export_folder(run: Run, step: int, label: str) -> Path:
    """Return the folder inside a run for an export of some step; see `ExportSpec.label`."""
    return run.path / "exports" / f"step-{step:06d}-{label}"


def folder_name(run: Run, saved: Saved, label: str) -> str:
    """Return what the folder of an export is called outside of its run."""
    name = slug(display_name(run))
    return f"{name}-step-{saved.step}-{label}" if saved.checkpoint else f"{name}-{label}"
