"""Headers of safetensors files: which tensors there are, of which shape, and whether their bytes are all there.

The format's own rules are checked as its library checks them: every tensor has as many bytes as its shape says, one
begins where another ends, and nothing is left over.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files, json_values
from tunesmith_core.json_values import shortened
from tunesmith_core.model_json import MIB, damaged, refuse_pointer, unreadable

MAX_HEADER_BYTES = 100 * MIB
"""What the format itself allows."""

_BITS_BY_NAMES = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "F64 I64 U64 C64",
}
BITS = {name: bits for bits, names in _BITS_BY_NAMES.items() for name in names.split()}
"""Number formats and how many bits a number has in them."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """What the header says of a tensor.

    Attributes:
        dtype: a key of BITS.
    """

    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, checking the header against the file's size.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    header, length = _parsed(path)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise damaged(path, "the safetensors header is malformed")
    tensors, places = {}, []
    for name, entry in header.items():
        tensors[name], place = _read_entry(path, name, entry)
        places.append(place)
    _check_places(path, sorted(places), path.stat().st_size - 8 - length)
    return tensors


def read_bytes(path: Path, names: Collection[str]) -> dict[str, bytes]:
    """Return the bytes of small tensors of a safetensors file whose header was read before.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    header, length = _parsed(path)
    found = {}
    try:
        with files.open_file(path) as file:
            for name in names:
                start, end = header[name]["data_offsets"]
                file.seek(8 + length + start)
                found[name] = file.read(end - start)
    except OSError as error:
        raise unreadable(path, error) from error
    return found


def _parsed(path: Path) -> tuple[dict[str, Any], int]:  # Any: JSON values
    """Return the header of a safetensors file and its length."""
    try:
        with files.open_file(path) as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
                refuse_pointer(path)
                raise damaged(path, "no safetensors header in a file of {size:,} bytes", size=size)
            header = json_values.parse(file.read(length), unique_names=True)
    except OSError as error:
        raise unreadable(path, error) from error
    except json_values.NameTwiceError as error:
        raise damaged(path, "in the safetensors header, {reason}", reason=error.args[0]) from error
    except ValueError as error:
        raise damaged(path, "the safetensors header is not valid JSON") from error
    if not isinstance(header, dict):
        raise damaged(path, "the safetensors header is malformed")
    return header, length


def _read_entry(path: Path, name: str, entry: Any) -> tuple[Tensor, tuple[int, int]]:  # Any: JSON values
    """Return a tensor and its first byte and the one after its last."""
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        sound = isinstance(shape, list) and all(map(json_values.is_count, [*shape, start, end]))
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise damaged(path, "the safetensors header is malformed at the tensor {name}", name=shortened(name))
    bits = BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise damaged(
            path,
            "the tensor {name} has the unknown number format {dtype}",
            name=shortened(name),
            dtype=shortened(dtype),
        )
    if (end - start) * 8 != math.prod(shape) * bits:
        raise damaged(
            path,
            "the tensor {name} has {count:,} bytes, which is not what its shape {shape} needs",
            name=shortened(name),
            count=end - start,
            shape=shortened(shape),
        )
    return Tensor(dtype, tuple(shape)), (start, end)


def _check_places(path: Path, places: list[tuple[int, int]], num_bytes: int) -> None:
    needed = places[-1][1] if places else 0
    if num_bytes < needed:
        head = path.stat().st_size - num_bytes
        # Rounded apart, so that the two always differ.
        mib, needed_mib = math.floor((head + num_bytes) / MIB * 10) / 10, math.ceil((head + needed) / MIB * 10) / 10
        raise damaged(path, "the file is cut short: {size:,.1f} of {needed:,.1f} MiB", size=mib, needed=needed_mib)
    end = 0
    for start, next_end in places:
        if start < end:
            raise damaged(path, "tensors overlap at byte {place:,}", place=start)
        if start > end:
            raise damaged(path, "bytes between tensors are described by none, from byte {place:,}", place=end)
        end = next_end
    if num_bytes > needed:
        raise damaged(path, "{count:,} bytes more than the header describes", count=num_bytes - needed)
