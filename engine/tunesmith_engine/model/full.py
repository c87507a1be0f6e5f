"""Full fine-tuning: a model that is trained itself, with the face of a model that has an adapter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import read_weights
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import CHOICE_WORDS
from tunesmith_core.trained_parts import is_chosen
from tunesmith_engine.device import BF16_CAPABILITY, DTYPES, Compute
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.vocabulary import grown, growth_of

if TYPE_CHECKING:
    from peft import PeftModel

BaseWeights = Callable[[], dict[str, torch.Tensor]]
"""Returns the weights that the model had before its training, by their names in it, on the CPU."""


TrainedModel: TypeAlias = "PeftModel | FullModel"
"""A model whose adapter is trained, or one that is trained itself: both answer to the same words."""


class FullModel(nn.Module):
    """A transformers model whose own weights are trained.

    What asks a model with an adapter for its base model, or to answer without the adapter, asks this one in the same
    words. The names of its weights have the prefix that PEFT gives them, too.

    Args:
        base: the transformers model.
        base_weights: what `disable_adapter` puts in place of the trained weights.
    """

    def __init__(self, base: Any, base_weights: BaseWeights) -> None:  # Any: a transformers model
        super().__init__()
        self.base_model = nn.ModuleDict({"model": base})
        self._base_weights = base_weights
        self._elsewhere: dict[str, torch.Tensor] | None = None

    def get_base_model(self) -> Any:  # Any: a transformers model
        """Return the transformers model, whose weights are the trained ones."""
        return self.base_model["model"]

    @property
    def config(self) -> Any:  # Any: transformers' config of this model
        """Its config."""
        return self.get_base_model().config

    def forward(self, *given: Any, **named: Any) -> Any:  # Any: as the transformers model
        """Do what the transformers model does."""
        return self.get_base_model()(*given, **named)

    def generate(self, *given: Any, **named: Any) -> Any:  # Any: as the transformers model
        """Do what the transformers model does."""
        return self.get_base_model().generate(*given, **named)

    def merge_and_unload(self) -> Any:  # Any: a transformers model
        """Return the transformers model: nothing has to be merged."""
        return self.get_base_model()

    def enable_adapter_layers(self) -> None:
        """Put the trained weights back where a stop came while the base model was asked."""
        if self._elsewhere is not None and self._is_base:
            self._swap()

    @contextlib.contextmanager
    def disable_adapter(self) -> Iterator[None]:
        """Make the context in which the weights are those of the base model, equal to the bit before and after.

        They are read from its files the first time and kept in the computer's memory from then on. Each time all
        trained weights change places with them, which takes about as long as copying them to the device and back.
        """
        if self._elsewhere is None:
            self._elsewhere = self._base_weights()
        self._swap()
        try:
            yield
        finally:
            self.enable_adapter_layers()

    _is_base = False

    @torch.no_grad()
    def _swap(self) -> None:
        held = self._elsewhere or {}
        self._is_base = not self._is_base
        for name, weight in self.get_base_model().named_parameters():
            if name in held:
                present = weight.detach().to("cpu", copy=True)
                weight.copy_(held[name])
                held[name] = present


def load_full(folder: Path, spec: RunSpec, compute: Compute, dtype: torch.dtype | None = None) -> FullModel:
    """Return a model on its device whose chosen weights are trained.

    Args:
        folder: of the base model.
        spec: of the run.
        compute: where.
        dtype: number format of the weights; None for that of the training.

    Raises:
        UserError: `trained-parts-missing` when no weight is in one of the chosen parts, `spec-invalid` for
            weights in bfloat16 on a GPU without it, and what `load_model` finds.
    """
    if dtype is None:
        dtype = DTYPES[spec.adapter.weights]
        _check_format(dtype, compute)
    stored = Compute(compute.device, dtype, compute.name, compute.num_threads)
    base = grown(load_model(folder, stored, four_bit=False), growth_of(folder, spec))
    choose_parts(base, spec)
    # What training draws, such as NEFTune's noise and a model's own dropout, follows from the seed.
    torch.manual_seed(spec.schedule.seed)
    return FullModel(base, lambda: _weights_of(folder, dtype, spec))


def _weights_of(folder: Path, dtype: torch.dtype, spec: RunSpec) -> dict[str, torch.Tensor]:
    compute = Compute(torch.device("cpu"), dtype, "", torch.get_num_threads())
    loaded = grown(load_model(folder, compute, four_bit=False), growth_of(folder, spec))
    choose_parts(loaded, spec)
    return {name: weight.data for name, weight in loaded.named_parameters() if weight.requires_grad}


def choose_parts(base: Any, spec: RunSpec) -> None:  # Any: a transformers model
    """Let the chosen weights of a model be trained, and no others.

    Raises:
        UserError: `trained-parts-missing` when a part names none of its weights.
    """
    parts = spec.adapter.parts
    found = {name: weight for name, weight in base.named_parameters() if weight.is_floating_point()}
    for part in [parts] if isinstance(parts, str) else parts:
        wanted = part if part == parts else [part]
        if not any(is_chosen(name, weight.shape, wanted) for name, weight in found.items()):
            modules = sorted({name.split(".")[-2] for name in found if "." in name})
            raise TunesmithError(
                "trained-parts-missing",
                "The model has no part named {part}. Its modules are {known}.",
                part=part,
                known=", ".join(module for module in modules if not module.isdigit()),
            )
    for name, weight in found.items():
        weight.requires_grad_(is_chosen(name, weight.shape, parts))


def described(model: FullModel, spec: RunSpec) -> list[str]:
    """Return sentences about what is trained, and in which format and by which optimizer."""
    weights = dict(model.get_base_model().named_parameters())
    trained = [name for name, weight in weights.items() if weight.requires_grad]
    share = Message("{count} of {total} weights", count=len(trained), total=len(weights))
    return [
        Message(
            "Full fine-tuning of {share} in {format}, by {optimizer}.",
            share=share,
            format=spec.adapter.weights,
            optimizer=Message(CHOICE_WORDS[spec.optimizer.name]),
        )
    ]


def check_exportable(model: FullModel, folder: Path) -> None:
    """Refuse before the first step what could not be written at the end.

    Raises:
        UserError: `spec-invalid` when the files of the base model hold a trained weight in another form.
    """
    # Imported here: the export is needed at the end only.
    from tunesmith_engine.export.merging import Merging

    try:
        Merging(model, {name: tensor.shape for name, tensor in read_weights(folder).items()})
    except TunesmithError as error:
        raise TunesmithError(
            "spec-invalid",
            "This model can't be fully fine-tuned: {problem}",
            hint=Message("Use LoRA, or leave these weights out of the trained parts."),
            problem=error.message,
        ) from error


def _check_format(dtype: torch.dtype, compute: Compute) -> None:
    is_old = compute.device.type == "cuda" and torch.cuda.get_device_capability(compute.device) < BF16_CAPABILITY
    if dtype == torch.bfloat16 and is_old:
        raise TunesmithError(
            "spec-invalid",
            "adapter.weights: this GPU can't calculate with bfloat16. Use float32.",
        )
