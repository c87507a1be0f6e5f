"""The first prediction of a base model, before anything is attached: what its files can't say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import read_layout
from tunesmith_engine.device import Compute
from tunesmith_engine.model.complete import not_finite, only_zeros
from tunesmith_engine.model.foreign import reading, refused


def check_predicts(model: Any, compute: Compute, input_ids: torch.Tensor, folder: Path) -> None:  # Any: a model
    """Let a model predict once, alone: settings that its own class can't compute with show before anything is attached.

    Args:
        model: the base model as transformers made it; an adapter in it is switched off by the caller.
        compute: its device.
        input_ids: a few tokens of the data, [length].
        folder: of the model, named in the error.

    Raises:
        UserError: `model-settings-unsupported` when it can't, for its weights were found complete before;
            `model-files-missing-or-corrupt` when weights are no numbers, or when it finds all tokens equally likely, as
            zeros do.
        RunFailure: `nan-loss` when its prediction is NaN or infinite.
    """
    with (
        torch.no_grad(),
        compute.autocast(),
        reading(
            folder,
            "transformers' own code for this type of model can't run with the settings in config.json",
            "model-settings-unsupported",
        ),
    ):
        logits = model(input_ids=input_ids[None].to(compute.device), use_cache=False).logits
    # Minus infinity is what some models say of tokens that can't come next.
    if bool((logits.isnan() | logits.isposinf()).any()):
        _refuse_nan(model, folder)
    if model.get_output_embeddings() is not None and bool((logits == logits[..., :1]).all()):
        _refuse_indifference(model, folder)


def _refuse_nan(model: Any, folder: Path) -> NoReturn:
    for name, weight in _weights(model):
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise not_finite(name, folder, read_layout(folder))
    raise TunesmithError(
        "nan-loss",
        "{folder}: the base model predicts NaN, before any training.",
        hint="Check the numbers in config.json, choose float32 as number format, or download the model again.",
        folder=folder,
    )


def _refuse_indifference(model: Any, folder: Path) -> NoReturn:
    layout = read_layout(folder)
    for name, weight in _weights(model):
        # An adapter holds zeros, rightly.
        if name in layout.weights and weight.dim() > 1 and not bool(weight.any()):
            raise only_zeros(name, folder, layout)
    raise refused(folder, "{path}: the base model finds every token equally likely, before any training.")


def _weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights of a base model by their names in its files, whether an adapter is in it or not."""
    for name, weight in model.named_parameters():
        yield name.replace(".base_layer", ""), weight
