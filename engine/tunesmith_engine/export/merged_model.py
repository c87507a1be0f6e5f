"""A model folder of unpacked weights with the adapter in them, written a file of the base model at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import INDEX_NAME, READ_SUFFIXES, SINGLE_NAME, read_layout
from tunesmith_core.model_json import read_object
from tunesmith_core.packed_weights import QUANTIZED_KEYS, unpacked_dtype
from tunesmith_core.safetensors_header import Tensor
from tunesmith_engine.export.merging import Merging
from tunesmith_engine.export.rounding import Rounding
from tunesmith_engine.export.staging import Staging
from tunesmith_engine.export.tensor_file import num_bytes, write_tensors
from tunesmith_engine.model.load import REMOVED_CONFIG_KEYS
from tunesmith_engine.model.packed import StoredWeights

CONFIG_NAME, CARD_NAME = "config.json", "README.md"
LICENCE_NAMES = ("LICENSE", "LICENCE", "NOTICE", "COPYING", "USE_POLICY")
MADE_HERE = frozenset({CONFIG_NAME, CARD_NAME, INDEX_NAME})
TORCH_TYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64}

Config = dict[str, Any]  # Any: JSON values


def write_chat_template(tokenizer: Any, folder: Path) -> None:  # Any: a transformers tokenizer
    """Let whoever loads the model write chats as they were trained, and end where they end."""
    files.atomic_write_text(folder / "chat_template.jinja", tokenizer.chat_template)
    path = folder / "generation_config.json"
    values = read_object(path) if path.is_file() else {}
    stops = values.get("eos_token_id")
    known = stops if isinstance(stops, list) else [stops]
    stop = tokenizer.eos_token_id
    values["eos_token_id"] = [stop, *(each for each in known if each not in (None, stop))]
    files.atomic_write_json(path, values)


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight that is written.

    Attributes:
        source: name in the files of the base model, "" where none holds it.
        in_model: name in the model.
        tensor: number format and shape that it is written in.
    """

    source: str
    in_model: str
    tensor: Tensor


def is_licence(path: Path) -> bool:
    """Return whether a file holds terms under which a model may be used."""
    return path.name.upper().startswith(LICENCE_NAMES)


class MergedModel:
    """The files of a merged model, planned from headers alone.

    Attributes:
        was_packed: whether the base model is quantized, which the merged one is not.
    """

    def __init__(
        self,
        base: Path,
        make_merging: Callable[[Mapping[str, tuple[int, ...]]], Merging],
    ) -> None:
        """Plan what is written.

        Args:
            base: folder of the base model, checked.
            make_merging: makes what the adapter does, of the shapes of all weights in the files.

        Raises:
            UserError: `export-unsupported`.
        """
        self._base = base
        self._layout = read_layout(base)
        self._shards, self.was_packed = self._layout.files, bool(self._layout.packed)
        shapes = {name: tensor.shape for shard in self._shards.values() for name, tensor in shard.items()}
        self._merging = make_merging(shapes)
        formats = {tensor.dtype for shard in self._shards.values() for tensor in shard.values()}
        self._untied = self._has_new_rows = False
        self.files = {shard: self._plan(tensors) for shard, tensors in self._shards.items()}
        next(iter(self.files.values())).update(self._added(formats))

    @property
    def num_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(num_bytes(weight.tensor) for weights in self.files.values() for weight in weights.values())

    @property
    def type(self) -> str:
        """The base model's own number formats, in which the weights are written, in words."""
        formats = {weight.tensor.dtype for weights in self.files.values() for weight in weights.values()}
        return ", ".join(sorted(str(TORCH_TYPES[each]).removeprefix("torch.") for each in formats & TORCH_TYPES.keys()))

    @property
    def rounding(self) -> Rounding | None:
        """What the formats round, None where all have as many bits as the trained model."""
        formats = {weight.tensor.dtype for weights in self.files.values() for weight in weights.values()}
        return Rounding(self.rounded) if formats & {"BF16", "F16"} else None

    def _plan(self, tensors: Mapping[str, Tensor]) -> dict[str, Weight]:
        merging = self._merging
        planned = {
            name: Weight(name, own := merging.in_model.get(name, ""), self._grown(own, tensor))
            for name, tensor in tensors.items()
            if merging.has(name)
        }
        in_files = set(merging.in_model.values())
        for head, embedding in merging.tied().items():
            name = next((each for each in tensors if merging.in_model.get(each) == embedding), None)
            if name is None or (head not in in_files and self._stay_equal(name, head, embedding)):
                continue
            self._untied = True
            if head not in in_files:
                planned[merging.name_in_files(head, name)] = Weight(name, head, planned[name].tensor)
        return planned

    def _added(self, formats: Collection[str]) -> dict[str, Weight]:
        """Return the weights that no file holds, to be written in the number format of the others."""
        wide = next(each for each in ("F32", "BF16", "F16", "F64") if each in formats or each == "F64")
        return {name: Weight("", name, Tensor(wide, self._merging.shape(name))) for name in self._merging.added}

    def _stay_equal(self, name: str, head: str, embedding: str) -> bool:
        """Return whether both of two tied weights become the same."""
        weight = self._read(name)
        format_ = TORCH_TYPES[self._header_of(name).dtype]
        both = (self._merging.merged_rows(each, weight) for each in (head, embedding))
        return all(torch.equal(*(rows.to(format_) for rows in pair)) for pair in zip(*both, strict=True))

    def _header_of(self, name: str) -> Tensor:
        return next(shard[name] for shard in self._shards.values() if name in shard)

    def _read(self, name: str) -> torch.Tensor:
        with StoredWeights(self._base, self._layout, torch.float32) as stored:
            return stored.read(name)

    def _grown(self, name: str, tensor: Tensor) -> Tensor:
        """Return a tensor, by its name in the model, with the rows of new words."""
        shape = self._merging.grown(name, tensor.shape)
        self._has_new_rows |= shape != tensor.shape
        return Tensor(tensor.dtype, shape)

    def weights(self) -> dict[str, Weight]:
        """Return the weights that the model has by its own names, without those of parts that are not trained."""
        return {each.in_model: each for weights in self.files.values() for each in weights.values() if each.in_model}

    def rounded(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return a weight, by its name in the model, as it is written."""
        weight = self.weights().get(self._merging.name_of_piece(name))
        return value.to(TORCH_TYPES[weight.tensor.dtype]) if weight and weight.tensor.dtype in TORCH_TYPES else value

    def is_as_published(self, weight: Weight, format_: str) -> bool:
        """Return whether a weight is what the base model's files hold in a packed format."""
        packed = self._layout.packed.get(weight.source)
        return packed is not None and packed.format == format_ and not self._merging.changes(weight.in_model)

    def changes(self, weight: Weight) -> bool:
        """Return whether a weight becomes another one."""
        return self._merging.changes(weight.in_model)

    def read(self, weight: Weight) -> torch.Tensor:
        """Return a weight with the adapter in it, before it is rounded."""
        return self._merging.merged_as(weight.in_model, self.read_base(weight))

    def read_base(self, weight: Weight) -> torch.Tensor:
        """Return a weight of the base model."""
        return _with_rows(self._read(weight.source), weight)

    def write(self, staging: Staging, advance: Callable[[int], None]) -> None:
        """Write all files that are not finished, but for the card.

        Args:
            staging: where to.
            advance: told the bytes of weights that were written or found.

        Raises:
            RunFailure: `nan-loss` when a merged weight is not finite.
            OSError: as the file system says.
        """
        staging.check_space(self.num_bytes + sum(path.stat().st_size for path in self.copied()))
        for shard, weights in self.files.items():
            if staging.holds(shard):
                advance(sum(num_bytes(weight.tensor) for weight in weights.values()))
                continue
            staging.finish(shard, self._write_shard(weights, staging.part(shard), advance))
        for path in self.copied():
            shutil.copyfile(path, staging.folder / path.name)
        files.atomic_write_json(staging.folder / CONFIG_NAME, self._config())
        if SINGLE_NAME not in self.files:
            index = {
                "metadata": {"total_size": self.num_bytes},
                "weight_map": {name: shard for shard, weights in self.files.items() for name in sorted(weights)},
            }
            files.atomic_write_json(staging.folder / INDEX_NAME, index)

    def _write_shard(self, weights: Mapping[str, Weight], path: Path, advance: Callable[[int], None]) -> str:
        """Write a file and return its SHA-256."""
        tensors = {name: weight.tensor for name, weight in weights.items()}
        with StoredWeights(self._base, self._layout, torch.float32) as stored:
            return write_tensors(path, tensors, lambda name: self._make(stored, weights[name]), advance)

    def _make(self, stored: StoredWeights, weight: Weight) -> Iterator[torch.Tensor]:
        # What no file holds is trained whole, whatever it was.
        value = stored.read(weight.source) if weight.source else torch.zeros(weight.tensor.shape)
        value = _with_rows(value, weight)
        if weight.tensor.dtype not in TORCH_TYPES:
            yield self._merging.merged_as(weight.in_model, value)
            return
        changes = self._merging.changes(weight.in_model)
        for merged in self._merging.merged_rows(weight.in_model, value):
            rounded = merged.to(TORCH_TYPES[weight.tensor.dtype])
            if changes and not bool(rounded.isfinite().all()):
                raise TunesmithError(
                    "nan-loss",
                    "With the adapter, the weight {name} is NaN or infinite in {format}.",
                    hint="Export an earlier checkpoint, or the adapter alone.",
                    name=weight.in_model,
                    format=weight.tensor.dtype,
                )
            yield rounded

    def copied(self) -> list[Path]:
        """Return what else belongs to the model: tokenizer, chat template, settings of sampling, licence."""
        return [
            path
            for path in sorted(self._base.iterdir())
            if path.is_file() and path.name not in MADE_HERE and path.suffix != ".safetensors"
            if path.suffix in READ_SUFFIXES or is_licence(path)
        ]

    def _config(self) -> Config:
        """Return config.json as it fits the merged weights."""
        config: Config = dict(read_object(self._base / CONFIG_NAME))
        parts = [config, *(value for value in config.values() if isinstance(value, dict) and "vocab_size" in value)]
        for key in (*REMOVED_CONFIG_KEYS, *QUANTIZED_KEYS):
            for part in parts:
                part.pop(key, None)
        for part in parts:
            if self._has_new_rows and "vocab_size" in part:
                part["vocab_size"] = self._merging.num_rows
            if self._untied:
                part["tie_word_embeddings"] = False
            for key in ("dtype", "torch_dtype"):
                if self.was_packed and key in part:
                    part[key] = "float16" if unpacked_dtype(config) == "F16" else "bfloat16"
        config |= self._merging.settings
        return config


def _with_rows(value: torch.Tensor, weight: Weight) -> torch.Tensor:
    """Return a weight of the base model with room for new words, each of whose rows was trained."""
    more = weight.tensor.shape[0] - len(value) if value.ndim == 2 else 0
    return torch.cat((value, value.new_zeros(more, value.shape[1]))) if more else value
