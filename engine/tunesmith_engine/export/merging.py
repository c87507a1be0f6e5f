"""Weights with their adapter in them, one at a time, computed by PEFT itself in float32."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from peft.tuners.lora import layer as lora
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils import ModulesToSaveWrapper
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.pieces import Change, Pieces
from tunesmith_engine.export.restoring import PREFIX
from tunesmith_engine.model.heads import NAME as HEAD_NAME
from tunesmith_engine.model.heads import has_head
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.model.saved_modules import in_own_name, plain, row_change, trained_rows, trained_weight
from tunesmith_engine.model.targets import is_adapted, is_of_adapter

if TYPE_CHECKING:
    from tunesmith_engine.model.full import TrainedModel

ADAPTER = "default"
_IN_A_LAYER = re.compile(r"\.\d+\.")
ROWS = ".trainable_tokens_delta."
"""In the names of trained rows of embeddings and output layer."""

PORTION_BYTES = 64 << 20
"""Of numbers in float32 that are merged at once, of weights of which each row changes by itself."""

RowChange = Callable[[torch.Tensor, slice], torch.Tensor]
"""Returns what becomes of some rows of a weight, given them and which they are."""

MERGED_KINDS = (lora.Linear, lora.Embedding, lora.Conv1d, lora.Conv2d, lora.Conv3d, lora.ParamWrapper)
"""Layers whose adapter changes one weight, which PEFT can add it to."""


class Merging:
    """What an adapter does to the weights of a base model.

    Attributes:
        added: names in the model of trained weights that no file holds.
        in_model: the names that weights of the files have in the model; without those that are changed on the way, but
            for pieces of weights that the adapter changes, which keep their names.
    """

    def __init__(self, model: TrainedModel, in_files: Mapping[str, tuple[int, ...]]) -> None:
        """Look at a model without computing anything.

        Args:
            model: as `Trained.load` returns it.
            in_files: shapes of all weights in the files of the base model, by name.

        Raises:
            UserError: `export-unsupported` when a trained weight belongs to none of them alone.
        """
        self._base = model.get_base_model()
        self._known = {_own(name): value.shape for name, value in self._base.state_dict().items()}
        self._changes = _changes(model)
        self._row_changes = _row_changes(model)
        self._change_tied()
        self.in_model = _names_in_model(self._base, in_files)
        self._pieces = Pieces(self._base, in_files)
        self._change_pieces(model)
        self._tied = {
            head: embedding
            for head, embedding in getattr(self._base, "all_tied_weights_keys", {}).items()
            if head in self._changes or embedding in self._changes
        }
        for name, first in self._tied.items():
            if _IN_A_LAYER.search(name):
                raise TunesmithError(
                    "export-unsupported",
                    "{name} and {first} are one weight, and the adapter changes each in its own way. A model with the "
                    "adapter in it can't hold both.",
                    hint="Export the adapter alone.",
                    name=name,
                    first=first,
                )
        of_head = {name for name in self._changes if name.startswith(f"{HEAD_NAME}.")}
        self.added = of_head if has_head(self._base) else set[str]()
        present = {*self.in_model.values(), *self._tied, *self.added}
        missing = sorted(self._changes.keys() - present)
        if missing:
            raise TunesmithError(
                "export-unsupported",
                "Training changes {name}, which the files of the base model hold in another form.",
                name=missing[0],
            )

    def _change_tied(self) -> None:
        """Change what is one parameter with a weight that was trained itself."""
        own = dict(self._base.named_parameters(remove_duplicate=False))
        for head, embedding in getattr(self._base, "all_tied_weights_keys", {}).items():
            weight = own.get(embedding)
            if weight is not None and weight.requires_grad and weight is own.get(head):
                for name in (head, embedding):
                    self._changes[name], self._row_changes[name] = _replacing(weight), _replacing_rows(weight)

    def _change_pieces(self, model: TrainedModel) -> None:
        """Change weights piece by piece that the files do not hold whole."""
        present = {*self.in_model.values(), *getattr(self._base, "all_tied_weights_keys", {})}
        shapes = {_own(name): value.shape for name, value in self._base.state_dict().items()}
        added = _added_to(model)
        for name in (added | _trained_whole(model)) - present:
            if pieces := self._pieces.changes(name, shapes[name], self._changes[name], adds=name in added):
                del self._changes[name]
                self._changes |= pieces
                self.in_model |= {piece: piece for piece in pieces}

    @property
    def settings(self) -> dict[str, Any]:  # Any: JSON values
        """What a config.json says otherwise than that of the base model: of a model with a head that it has one."""
        if not self.added:
            return {}
        config = self._base.config
        pad = config.get_text_config().pad_token_id
        settings: dict[str, Any] = {"architectures": [type(self._base).__name__], "pad_token_id": pad}
        if config.problem_type:
            settings["problem_type"] = config.problem_type
        return settings | {
            "id2label": {str(place): label for place, label in config.id2label.items()},
            "label2id": dict(config.label2id),
        }

    def has(self, name: str) -> bool:
        """Return whether a weight of the files is written: where a head takes its place, the output layer is not."""
        own = self.in_model.get(name)
        return not self.added or own is None or own in self._known or name in self._pieces.of

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an added weight."""
        return tuple(self._known[name])

    def grown(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a weight of the files with the rows of new words, by its name in the model."""
        known = tuple(self._known.get(name, ()))
        is_grown = name in self._changes and len(known) == len(shape) == 2 and known[0] > shape[0]
        return known if is_grown else shape

    @property
    def num_rows(self) -> int:
        """For how many tokens the model has an embedding."""
        return int(plain(self._base.get_input_embeddings()).weight.shape[0])

    def name_of_piece(self, name: str) -> str:
        """Return a weight's name in the model, or that of one of its pieces where the files hold it in pieces."""
        return self._pieces.of.get(name, name)

    def merged_as(self, name: str, weight: torch.Tensor) -> torch.Tensor:
        """Return what a weight of the model becomes, in float32; an unchanged one as it is."""
        change = self._changes.get(name)
        return change(weight) if change else weight

    def changes(self, name: str) -> bool:
        """Return whether a weight of the model becomes another one."""
        return name in self._changes

    def merged_rows(self, name: str, weight: torch.Tensor) -> Iterator[torch.Tensor]:
        """Return what a weight of the model becomes, a large one of some rows at a time.

        An embedding or a head can be most of a file, and takes six times its bytes to be merged at once.
        """
        change, is_whole = self._row_changes.get(name), name not in self._changes
        if weight.ndim != 2 or weight.numel() * 4 <= PORTION_BYTES or not (change or is_whole):
            yield self.merged_as(name, weight)
            return
        num_rows = max(1, PORTION_BYTES // (4 * weight.shape[1]))
        for start in range(0, len(weight), num_rows):
            rows = slice(start, start + num_rows)
            yield change(weight[rows], rows) if change else weight[rows]

    def tied(self) -> dict[str, str]:
        """Return the weights that are others' until the adapter changes one of both: name in the model by name."""
        return self._tied

    def name_in_files(self, name: str, like: str) -> str:
        """Return the name in the files for a weight that has none there yet.

        Args:
            name: in the model.
            like: name in the files of the weight that it was tied to.

        Raises:
            UserError: `export-unsupported` when no name would be read as this weight.
        """
        head, embedding = name, self.in_model[like]
        prefixed = like.removesuffix(embedding) + head if like.endswith(embedding) else head
        for candidate in (head, prefixed):
            if _names_in_model(self._base, [candidate]).get(candidate) == name:
                return candidate
        raise TunesmithError(
            "export-unsupported", "The adapter changes {name}, for which the base model has no file.", name=name
        )


def _names_in_model(base: Any, names: Collection[str]) -> dict[str, str]:  # Any: a transformers model
    transforms = get_model_conversion_mapping(base)
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    known = {_own(name): name for name in base.state_dict()}
    found = {}
    for name in sorted(names, key=dot_natural_key):
        own, pattern = rename_source_key(name, renamings, converters, base.base_model_prefix, known)
        if pattern is None:
            found[name] = own
    return found


def _own(name: str) -> str:
    """Return the name that a weight has in the model without an adapter."""
    return in_own_name(name.removeprefix(PREFIX))


def _changes(model: TrainedModel) -> dict[str, Change]:
    """Return what becomes of the weights that were trained, by their names in the model without an adapter."""
    changes: dict[str, Change] = {}
    layers = {name: module for name, module in model.named_modules() if is_adapted(module)}
    for name, layer in layers.items():
        is_lora = isinstance(layer, lora.LoraLayer)
        if is_lora and not isinstance(layer, MERGED_KINDS):
            raise TunesmithError(
                "export-unsupported", "The adapter of {name} can't be merged into its weights.", name=_own(name)
            )
        changes[f"{_own(name)}.{_role(layer)}"] = _adding(layer, _role(layer))
        if not is_lora and layer.get_base_layer().bias is not None:
            # IA3 scales outputs with their bias.
            changes[f"{_own(name)}.bias"] = _adding(layer, "bias")
    wrappers = [name for name, module in model.named_modules() if isinstance(module, ModulesToSaveWrapper)]
    for name, value in trainable(model).items():
        in_layer = is_of_adapter(name) and any(name.startswith(f"{layer}.") for layer in layers)
        if ROWS not in name and (not in_layer or any(name.startswith(f"{wrapper}.") for wrapper in wrappers)):
            changes[_own(name)] = _replacing(value)
    for name, rows, value in _tables(model):
        changes[name] = _replacing(value) if rows is None else _placing(rows, value)
    return changes


def _tables(model: TrainedModel) -> Iterator[tuple[str, list[int] | None, nn.Parameter]]:
    """Yield embeddings and output layer that are trained: name in the model, rows or None for all, weights.

    What is tied is one parameter, and yet changes both.
    """
    for name, module in model.named_modules():
        rows = trained_rows(module)
        if rows is not None or (isinstance(module, ModulesToSaveWrapper) and hasattr(module.original_module, "weight")):
            weight = trained_weight(module)
            assert weight is not None, "it has the adapter"
            yield f"{_own(name)}.weight", rows, weight


def _placing(rows: list[int], value: torch.Tensor) -> Change:
    return lambda weight: row_change(weight, rows, value)


def _placing_rows(rows: list[int], value: torch.Tensor) -> RowChange:
    return lambda weight, part: row_change(weight, rows, value, part.start)


def _row_changes(model: TrainedModel) -> dict[str, RowChange]:
    """Return what becomes of some rows of weights, for those of which each row changes by itself."""
    changes: dict[str, RowChange] = {}
    for name, layer in model.named_modules():
        if type(layer) in (lora.Linear, lora.Embedding) and not layer.lora_variant and not layer.fan_in_fan_out:
            changes[f"{_own(name)}.weight"] = _adding_rows(layer)
    for name, value in trainable(model).items():
        if not is_of_adapter(name) and ROWS not in name:
            changes[_own(name)] = _replacing_rows(value)
    for name, rows, value in _tables(model):
        changes[name] = _replacing_rows(value) if rows is None else _placing_rows(rows, value)
    return changes


def _adding_rows(layer: Any) -> RowChange:  # Any: a layer of PEFT
    def add(weight: torch.Tensor, rows: slice) -> torch.Tensor:
        with torch.no_grad():
            if isinstance(layer, lora.Embedding):
                added = (layer.lora_embedding_B[ADAPTER] @ layer.lora_embedding_A[ADAPTER][:, rows]).T
            else:
                added = layer.lora_B[ADAPTER].weight[rows] @ layer.lora_A[ADAPTER].weight
            return weight.float() + added * layer.scaling[ADAPTER]

    return add


def _replacing_rows(value: torch.Tensor) -> RowChange:
    return lambda _, rows: value.detach()[rows].cpu().float()


def _added_to(model: TrainedModel) -> set[str]:
    """Return the weights that something is added to which does not depend on them."""
    return {
        f"{_own(name)}.{_role(module)}"
        for name, module in model.named_modules()
        if isinstance(module, lora.LoraLayer) and not module.lora_variant
    }


def _trained_whole(model: TrainedModel) -> set[str]:
    """Return the weights that are trained themselves."""
    return {_own(name) for name in trainable(model) if not is_of_adapter(name) and ROWS not in name}


def _role(layer: BaseTunerLayer) -> str:
    return layer.parameter_name if isinstance(layer, lora.ParamWrapper) else "weight"


def _replacing(value: torch.Tensor) -> Change:
    return lambda _: value.detach().cpu().float()


def _adding(layer: Any, role: str) -> Change:  # Any: a layer of PEFT
    def add(weight: torch.Tensor) -> torch.Tensor:
        inner = layer.get_base_layer()
        own = dict(inner.named_parameters(recurse=False))
        # Copies, because PEFT adds in place, and a tied weight is merged twice.
        for each, value in own.items():
            number = weight if each == role else value
            setattr(inner, each, nn.Parameter(number.to(torch.float32, copy=True), requires_grad=False))
        try:
            with torch.no_grad():
                layer.merge(adapter_names=[ADAPTER])
            merged: torch.Tensor = getattr(inner, role).detach()
        finally:
            for each, value in own.items():
                setattr(inner, each, value)
            layer.merged_adapters.clear()
            getattr(layer, "_caches", {}).clear()
        return merged

    return add
