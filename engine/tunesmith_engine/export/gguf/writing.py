"""Writes a GGUF file, one weight at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_VERSION, MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from tunesmith_core import files
from tunesmith_core.gguf_types import FILE_TYPES
from tunesmith_core.safetensors_header import Tensor
from tunesmith_engine.export.gguf.architecture import Architecture, num_layers
from tunesmith_engine.export.gguf.architectures import architecture_of
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.hyperparameters import add_hyperparameters, rope_factors
from tunesmith_engine.export.gguf.tensors import Source, sources
from tunesmith_engine.export.gguf.tokenizer import add_tokenizer, name_in_file
from tunesmith_engine.export.gguf.types import FILE_NUMBERS, encoded, formats_of, num_bytes, rounded

EMBEDDING = "token_embd.weight"
PORTION_BYTES = 16 << 20

Numbers = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Weights:
    """Where the weights of a model come from.

    Attributes:
        tensors: number format and shape by the name in the model.
        read: returns one of them.
        published: names of those that are what files in MXFP4 say.
    """

    tensors: Mapping[str, Tensor]
    read: Callable[[str], torch.Tensor]
    published: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A weight of the file."""

    source: Source
    number_format: GGMLQuantizationType

    @property
    def num_bytes(self) -> int:
        return num_bytes(self.number_format, self.source.part.shape)


class GgufFile:
    """A GGUF file, planned from headers alone."""

    def __init__(
        self,
        config: Config,
        tokenizer: Any,  # Any: a transformers tokenizer
        weights: Weights,
        type_name: str,
        stops: list[int],
    ) -> None:
        """Plan what is written.

        Args:
            config: of the model.
            tokenizer: of the model.
            weights: of the model; those of single experts by their names in the files.
            type_name: a key of FILE_TYPES.
            stops: numbers of the tokens that end an answer by generation_config.json.

        Raises:
            UserError: `export-unsupported`.
        """
        self._whole, config = config, config.get_text_config()
        self._config, self._tokenizer, self._weights = config, tokenizer, weights
        self._stops = stops
        self._architecture = architecture_of(config)
        self._number = FILE_NUMBERS[type_name]
        found = sources(self._architecture, config, {name: each.shape for name, each in weights.tensors.items()})
        self._factors = rope_factors(config)
        shapes = {own: source.part.shape for own, source in found.items()}
        published = {own for own, source in found.items() if source.in_model in weights.published}
        formats = formats_of(FILE_TYPES[type_name], shapes, num_layers(config), published)
        self._entries = {own: _Entry(source, formats[own]) for own, source in found.items()}
        self._turned = {source.in_model for source in found.values() if source.part.turned}

    @property
    def num_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(entry.num_bytes for entry in self._entries.values())

    @property
    def formats(self) -> dict[str, GGMLQuantizationType]:
        """Number format of each weight, by its name in the model."""
        return {entry.source.in_model: entry.number_format for entry in self._entries.values()}

    def rounded(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """Return a weight, by its name in the model, as the file tells it."""
        if name not in self.formats:
            return values
        turned = name in self._turned
        found = rounded(name, values.transpose(-2, -1) if turned else values, self.formats[name])
        return found.transpose(-2, -1) if turned else found

    def write(self, path: Path, name: str, licence: str, advance: Callable[[int], None]) -> str:
        """Write the file and make it durable.

        Args:
            path: of the file.
            name: of the model.
            licence: of the base model, "" where it is unknown.
            advance: told how many bytes of weights were written since it was told last.

        Returns:
            The SHA-256 of the file as hex.

        Raises:
            UserError: `export-unsupported` for a tokenizer or positions that llama.cpp does not have.
            RunFailure: `nan-loss` when a weight does not fit its number format.
            OSError: as the file system says; what was written so far is left.
        """
        writer = GGUFWriter(path, MODEL_ARCH_NAMES[self._architecture.arch])
        writer.add_name(name_in_file(name, self._tokenizer, self._config.model_type))
        if licence:
            writer.add_license(licence)
        writer.add_file_type(self._number)
        writer.add_quantization_version(GGML_QUANT_VERSION)
        rows = self._entries[EMBEDDING].source.part.shape[0]
        _describe(writer, self._architecture, self._whole, self._tokenizer, rows, self._stops)
        for own, factors in self._factors.items():
            writer.add_tensor_info(own, factors.shape, np.dtype(np.float32), factors.nbytes)
        for own, entry in self._entries.items():
            size = entry.num_bytes, entry.number_format
            writer.add_tensor_info(own, entry.source.part.shape, np.dtype(np.float32), *size)
        try:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for factors in self._factors.values():
                _append(writer, factors.numpy())
            for entry in self._entries.values():
                _append(writer, self._numbers(entry))
                advance(entry.num_bytes)
        finally:
            writer.close()
        files.fsync_file(path)
        return files.sha256_file(path)

    def _numbers(self, entry: _Entry) -> Numbers:
        weight = entry.source.read(self._architecture, self._config, self._weights.read)
        return encoded(entry.source.in_model, weight, entry.number_format)


def check_model(config: Config, tokenizer: Any, rows: int, stops: list[int]) -> None:  # Any: of transformers
    """Refuse a model of which no file can be written, whatever its weights are.

    Args:
        config: of the model.
        tokenizer: of the model.
        rows: of its embedding.
        stops: as for `GgufFile`.

    Raises:
        UserError: `export-unsupported`.
    """
    architecture = architecture_of(config.get_text_config())
    writer = GGUFWriter(None, MODEL_ARCH_NAMES[architecture.arch])
    _describe(writer, architecture, config, tokenizer, rows, stops)


def _describe(
    writer: GGUFWriter,
    architecture: Architecture,
    whole: Config,
    tokenizer: Any,  # Any: a transformers tokenizer
    rows: int,
    stops: list[int],
) -> None:
    """Write what a file says of its model beside the weights."""
    config = whole.get_text_config()
    add_hyperparameters(writer, architecture, config, rows)
    if whole is not config:
        architecture.around(writer, whole)
    add_tokenizer(writer, tokenizer, rows, stops)


def _append(writer: GGUFWriter, numbers: Numbers) -> None:
    """Write a weight. The library's own way tells of a full disk without the system's number for it."""
    assert writer.fout is not None
    file = writer.fout[0]
    content = np.ascontiguousarray(numbers).reshape(-1).view(np.uint8).data
    writer.write_padding(file, file.tell())
    for start in range(0, len(content), PORTION_BYTES):
        file.write(content[start : start + PORTION_BYTES])
    writer.write_padding(file, len(content))
