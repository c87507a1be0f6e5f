"""Number formats of GGUF files: how llama.cpp mixes them in each type of file, and how large a file becomes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tunesmith_core.operations.kinds.export import GgufType

BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 34),
    "Q6_K": (256, 210),
    "Q5_K": (256, 176),
    "Q4_K": (256, 144),
    "Q5_1": (32, 24),
    "Q5_0": (32, 22),
    "MXFP4": (32, 17),
}
"""How many numbers a block has and how many bytes it takes, by llama.cpp's names of the formats."""

FALLBACKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""For rows that are no multiple of a block of 256 numbers, as llama.cpp chooses them."""

WIDE = ("F32", "F16", "BF16")
"""Formats that some programs choose to calculate with; the others are for less memory."""

HEADER_BYTES = 64 << 20
"""More than vocabulary, merges and template of any tokenizer take."""

SMALL_PARAMETERS = 3_000_000_000
"""A model with fewer loses too much in 4 bits: a judgement, by the bundled model, whose answers change."""

_HEAD = re.compile(r"(^|\.)lm_head\.weight$")
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|embed_in|word_embeddings|embeddings)\.weight$")
_IN_32_BITS = re.compile(r"(^|\.)(wpe|conv1d|conv)\.weight$")
"""Tables of positions, and convolutions."""
_LEFT_OUT = re.compile(
    r"(^|\.)(vision_tower|vision_model|visual|multi_modal_projector|connector|audio_tower|embed_vision|embed_audio|mtp)\."
)
"""Parts that see images or hear, and those that only predict further tokens: a file has the language model."""
_FINER = re.compile(r"\.(v_proj|down_proj|mlp\.c_proj|dense_4h_to_h|fc2)(\.weight)?$")
_FUSED = re.compile(r"\.(qkv_proj|c_attn|query_key_value|Wqkv)\.weight$")


@dataclass(frozen=True, slots=True)
class FileType:
    """A kind of file, as names of number formats.

    Attributes:
        matrices: the number format of most matrices; what is no matrix is float32.
        head: that of the matrix that gives the logits, "" for the same.
        finer: that of some matrices of some layers that matter more, "" for the same.
        fused: that of queries, keys and values in one matrix, "" for the same.
    """

    matrices: str
    head: str = ""
    finer: str = ""
    fused: str = ""


FILE_TYPES = {
    "q4_k_m": FileType("Q4_K", "Q6_K", "Q6_K", "Q5_K"),
    "q5_k_m": FileType("Q5_K", "Q6_K", "Q6_K", "Q6_K"),
    "q6_k": FileType("Q6_K"),
    "q8_0": FileType("Q8_0"),
    "f16": FileType("F16"),
    "bf16": FileType("BF16"),
    "f32": FileType("F32"),
}
"""The kinds, the smallest first; they are mixed as llama.cpp's own quantizer mixes them."""


def recommended_type(num_parameters: int) -> GgufType:
    """Return the type of file for a model of some size: the smallest whose answers hardly differ."""
    return "q8_0" if num_parameters < SMALL_PARAMETERS else "q4_k_m"


def fitting(number_format: str, columns: int) -> str:
    """Return a number format, or what takes its place for rows of some length."""
    for each in (number_format, FALLBACKS.get(number_format, number_format)):
        if columns % BLOCKS[each][0] == 0:
            return each
    return "F16"


def about_bytes(type_name: str, shapes: Mapping[str, tuple[int, ...]], published: Collection[str] = ()) -> int:
    """Return about how many bytes the weights of a file take.

    Args:
        type_name: a key of FILE_TYPES.
        shapes: of the weights, by their names in the model's own files.
        published: names of those that are published in MXFP4: they stay in it where the file has no wide format.
    """
    file_type = FILE_TYPES[type_name]
    shapes = {name: shape for name, shape in shapes.items() if not _LEFT_OUT.search(name)}
    head = _HEAD if any(_HEAD.search(name) for name in shapes) else _EMBEDDING
    kept = () if file_type.matrices in WIDE else published
    return round(
        sum(
            _in("MXFP4", shape) if name in kept else _bytes_of(file_type, name, shape, head)
            for name, shape in shapes.items()
        )
    )


def _bytes_of(file_type: FileType, name: str, shape: tuple[int, ...], head: re.Pattern[str]) -> float:
    if len(shape) < 2 or _IN_32_BITS.search(name):
        return 4 * math.prod(shape)
    usual = file_type.matrices
    if head.search(name):
        return _in(file_type.head or usual, shape)
    if _FUSED.search(name):
        return _in(file_type.fused or usual, shape)
    if _FINER.search(name):
        # They matter more in half of the layers.
        return (_in(file_type.finer or usual, shape) + _in(usual, shape)) / 2
    return _in(usual, shape)


def _in(number_format: str, shape: tuple[int, ...]) -> float:
    numbers, num_bytes = BLOCKS[fitting(number_format, shape[-1])]
    return math.prod(shape) / numbers * num_bytes
