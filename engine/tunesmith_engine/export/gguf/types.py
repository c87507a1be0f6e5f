"""Number formats of GGUF files, and which of them each weight gets."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, LlamaFileType
from gguf import GGMLQuantizationType as NumberFormat
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray

from tunesmith_core.errors import TunesmithError
from tunesmith_core.gguf_types import FILE_TYPES, WIDE, FileType, fitting

Q = NumberFormat
F = LlamaFileType

INPUT_BLOCKS = {Q.Q8_0: 32, Q.Q5_0: 32, Q.Q5_1: 32, Q.Q4_K: 256, Q.Q5_K: 256, Q.Q6_K: 256, Q.MXFP4: 32}
"""Numbers to a scale in what llama.cpp multiplies a matrix of a format with, which it rounds to 8 bits.

Source: `vec_dot_type` in ggml-cpu.c. A scale of 32 numbers is a float16 (`quantize_row_q8_0_ref` in ggml-quants.c), one
of 256 a float32 (`quantize_row_q8_K_ref`).
"""

BY_LIBGGUF = frozenset({Q.Q4_K, Q.Q5_K, Q.Q6_K})

IN_32_BITS = ("ffn_gate_inp", "shortconv.conv", "ssm_conv1d", "position_embd", "_norm.")

_LAYER = re.compile(r"blk\.(\d+)\.(.+)\.weight")


FILE_NUMBERS = {name: F.ALL_F32 if name == "f32" else F[f"MOSTLY_{name.upper()}"] for name in FILE_TYPES}
"""Which number a file carries, by its type."""


def formats_of(
    file_type: FileType, shapes: Mapping[str, tuple[int, ...]], num_layers: int, published: Collection[str] = ()
) -> dict[str, NumberFormat]:
    """Return the number format of each weight.

    Args:
        file_type: of the file.
        shapes: by the names of the weights in the file.
        num_layers: of the model.
        published: names of those that were published in MXFP4 and that nothing has changed: fewer bits would cost them
            something, and more would be of no use.
    """
    kept = dict.fromkeys(published, Q.MXFP4) if file_type.matrices not in WIDE else {}
    head = "output.weight" if "output.weight" in shapes else "token_embd.weight"
    return {
        name: Q[fitting(_wanted(file_type, name, head, num_layers), shape[-1])] if _is_matrix(name, shape) else Q.F32
        for name, shape in shapes.items()
    } | kept


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether llama.cpp takes a weight in few bits: no router, norm, convolution or table of positions,
    and no biases of experts."""
    return len(shape) > 1 and name.endswith(".weight") and not any(part in name for part in IN_32_BITS)


def _wanted(file_type: FileType, name: str, head: str, num_layers: int) -> str:
    usual = file_type.matrices
    if name == head:
        return file_type.head or usual
    layer = _LAYER.fullmatch(name)
    if layer and layer[2] in ("attn_v", "ffn_down", "ffn_down_exps") and _matters(int(layer[1]), num_layers):
        return file_type.finer or usual
    if layer and layer[2] == "attn_qkv":
        return file_type.fused or usual
    return usual


def _matters(layer: int, num_layers: int) -> bool:
    """Return whether llama.cpp gives a layer more bits: the first and the last, and each third between."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


def num_bytes(number_format: NumberFormat, shape: tuple[int, ...]) -> int:
    """Return the bytes of a weight in a number format."""
    block, block_bytes = GGML_QUANT_SIZES[number_format]
    return math.prod(shape) // block * block_bytes


def encoded(name: str, weight: torch.Tensor, number_format: NumberFormat) -> NDArray[np.generic]:
    """Return a weight in a number format.

    Raises:
        RunFailure: `nan-loss` when it can't be told there.
    """
    values = weight.float().contiguous().numpy()
    most = np.finfo(np.float16).max if number_format is Q.F16 else np.finfo(np.float32).max
    # Also false for what is NaN.
    if not bool((np.abs(values) <= most).all()):
        raise TunesmithError(
            "nan-loss",
            "With the adapter, the weight {name} is NaN or infinite in {format}.",
            hint="Export an earlier checkpoint, or the adapter alone.",
            name=name,
            format=number_format.name,
        )
    if number_format in BY_LIBGGUF:
        # Imported here: most formats do without it.
        from libgguf import quantize_rows

        return np.asarray(quantize_rows(values.reshape(-1, values.shape[-1]), int(number_format)))
    numbers: NDArray[np.generic] = quantize(values, number_format)
    return numbers


def rounded(name: str, weight: torch.Tensor, number_format: NumberFormat) -> torch.Tensor:
    """Return a weight in float32 as a number format tells it; see `encoded`."""
    return torch.from_numpy(dequantize(encoded(name, weight, number_format), number_format)).view(weight.shape)


def rounded_input(values: torch.Tensor, number_format: NumberFormat) -> torch.Tensor:
    """Return what a matrix is multiplied with, in float32, as llama.cpp rounds it for a matrix of a number format."""
    if number_format in (Q.F16, Q.BF16):
        return values.to(torch.float16 if number_format is Q.F16 else torch.bfloat16).to(values.dtype)
    size = INPUT_BLOCKS.get(number_format)
    if size is None:
        return values
    blocks = values.float().reshape(-1, size)
    scales = blocks.abs().amax(1, keepdim=True) / 127
    numbers = (blocks / scales.clamp_min(torch.finfo(torch.float32).tiny)).round()
    if size == 32:
        scales = scales.half().float()
    return (numbers * scales).view(values.shape).to(values.dtype)
