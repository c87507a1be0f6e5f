"""A safetensors file written piece by piece, so that a file of any size needs the memory of one piece."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from tunesmith_core import files
from tunesmith_core.safetensors_header import BITS, Tensor

PORTION_BYTES = 16 << 20
"""What is written at once: a stop or a full disk shows soon."""


def num_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor in a file."""
    return math.prod(tensor.shape) * BITS[tensor.dtype] // 8


def write_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    make: Callable[[str], Iterable[torch.Tensor]],
    advance: Callable[[int], None] = lambda _: None,
) -> str:
    """Write a file and make it durable.

    Args:
        path: of the file.
        tensors: what it will hold.
        make: returns the rows of a tensor by its name in one piece or several, on the CPU, of the number format and
            shape that were announced.
        advance: told how many bytes of tensors were written since it was told last.

    Returns:
        The SHA-256 of the file as hex.

    Raises:
        OSError: as the file system says; what was written so far is left.
    """
    # As the format's own library does: the widest numbers first, so that each begins at a multiple of its size.
    names = sorted(tensors, key=lambda name: (-BITS[tensors[name].dtype], name))
    digest = hashlib.sha256()
    with files.open_file(path, "wb", 0) as file:

        def write(content: bytes | memoryview) -> None:
            while len(content):
                written = file.write(content)
                digest.update(content[:written])
                content = content[written:]

        write(_header(tensors, names))
        for name in names:
            missing = num_bytes(tensors[name])
            for content in map(_bytes_of, make(name)):
                missing -= len(content)
                for start in range(0, len(content), PORTION_BYTES):
                    portion = content[start : start + PORTION_BYTES]
                    write(portion)
                    advance(len(portion))
            if missing:
                raise ValueError(f"{name} has other bytes than the {num_bytes(tensors[name])} that were announced")
    files.fsync_file(path)
    return digest.hexdigest()


def _header(tensors: Mapping[str, Tensor], names: list[str]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        start, end = end, end + num_bytes(tensors[name])
        header[name] = {
            "dtype": tensors[name].dtype,
            "shape": list(tensors[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
