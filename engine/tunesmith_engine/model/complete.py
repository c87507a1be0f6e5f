"""Whether the files of a model hold what its settings ask for; a run checks it here, and a look at headers before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import INDEX_NAME
from tunesmith_core.packed_weights import Layout
from tunesmith_engine.model.foreign import refused


def check_complete(folder: Path, model: Any, info: dict[str, Any], layout: Layout) -> None:  # Any: sets of names
    """Refuse weights that don't fit; transformers would go on with random numbers, or without what has no place.

    Args:
        folder: of the model.
        model: that transformers made, whose weights need not be read.
        info: what it said of them.
        layout: of the files.

    Raises:
        UserError: `model-files-missing-or-corrupt` naming a file and a weight.
    """
    if info["mismatched_keys"]:
        name, held, wanted = min(info["mismatched_keys"])
        raise refused(
            _file_of(name, folder, layout),
            "{path}: the weight {name} has the shape {held}. By config.json it would be {wanted}.",
            name=name,
            held=list(held),
            wanted=list(wanted),
        )
    if missing := sorted(info["missing_keys"]):
        if len(missing) == 1:
            raise refused(
                _file_of(missing[0], folder, layout), "{path}: the weight {name} is missing.", name=missing[0]
            )
        raise refused(
            _file_of(missing[0], folder, layout),
            "{path}: {num_missing} weights are missing, such as {name}.",
            num_missing=len(missing),
            name=missing[0],
        )
    shapes = {name: weight.shape for name, weight in layout.weights.items()}
    left_out = sorted(name for name in info["unexpected_keys"] if _has_a_place(name, shapes.get(name), model))
    if len(left_out) == 1:
        raise refused(
            _file_of(left_out[0], folder, layout),
            "{path}: the weight {name} has no place in a model of these settings.",
            name=left_out[0],
        )
    if left_out:
        raise refused(
            _file_of(left_out[0], folder, layout),
            "{path}: {num_left_out} weights have no place in a model of these settings, such as {name}.",
            num_left_out=len(left_out),
            name=left_out[0],
        )


def check_finite(folder: Path, model: Any, layout: Layout) -> None:  # Any: a transformers model
    """Refuse NaN and infinite weights, as far as these are found quickly. Raises UserError."""
    embedding = model.get_input_embeddings().weight
    for name, weight in model.named_parameters():
        # Other matrices would take long, and show in the first prediction, which reads every number of them.
        looked_at = weight.dim() == 1 or weight is embedding
        if looked_at and weight.is_floating_point() and not bool(weight.sum(dtype=torch.float32).isfinite()):
            raise not_finite(name, folder, layout)


def not_finite(name: str, folder: Path, layout: Layout) -> TunesmithError:
    """Return the error of a weight with NaN or infinite numbers."""
    path = _file_of(name, folder, layout)
    return refused(path, "{path}: the weight {name} holds NaN or infinite numbers.", name=name)


def only_zeros(name: str, folder: Path, layout: Layout) -> TunesmithError:
    """Return the error of a weight without any number but zero, as a download that was cut off may leave it."""
    return refused(_file_of(name, folder, layout), "{path}: the weight {name} holds zeros only.", name=name)


def _file_of(name: str, folder: Path, layout: Layout) -> Path:
    """Return the file that holds a weight; where none has it by this name, the one that lists all of them."""
    holder = next((file for file, weights in layout.files.items() if name in weights), None)
    return folder / (holder or (INDEX_NAME if len(layout.files) > 1 else next(iter(layout.files))))


def _has_a_place(name: str, shape: tuple[int, ...] | None, model: torch.nn.Module) -> bool:
    """Return whether a weight that transformers left out belongs to a part that the model has.

    Many files hold more than the language model: towers for images, heads for further tokens, tables that are computed
    today. A bias of a layer that has a weight, or one more norm inside a layer, is another matter.
    """
    module, _, role = name.rpartition(".")
    if role not in ("weight", "bias"):
        return False
    outer = module.rpartition(".")[0]
    inside = _module(outer, model) is not None and any(part.isdigit() for part in outer.split("."))
    return _holds_weights(_module(module, model)) or (inside and shape is not None and len(shape) in (1, 2))


def _module(name: str, model: torch.nn.Module) -> torch.nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _holds_weights(module: torch.nn.Module | None) -> bool:
    return module is not None and any(True for _ in module.parameters(recurse=False))
