"""A model folder, looked at without any library: are the files there, whole, safe, and do they fit each other.

Only headers are read, so a folder of any size is checked in milliseconds.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import Message, json_problem

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MIB = 1 << 20
MAX_HEADER_BYTES = 100 * MIB
"""What the safetensors format itself allows."""

TOKENIZER_FILES: tuple[tuple[str, ...], ...] = (
    ("tokenizer.json",),
    ("tokenizer.model",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("tekken.json",),
)
"""Each group alone makes a tokenizer."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_LFS_START = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What the files of a model say.

    Attributes:
        shapes: tensor name to its dimensions, over all weight files.
        has_chat_template: whether the tokenizer can render chats.
    """

    path: Path
    shapes: dict[str, tuple[int, ...]]
    has_chat_template: bool

    def adapter_bytes(self, rank: int) -> int:
        """Return an upper estimate of a 32-bit adapter of a rank on every linear layer."""
        sides = (
            sum(shape)
            for name, shape in self.shapes.items()
            if len(shape) == 2 and "embed" not in name and "lm_head" not in name
        )
        return 4 * rank * sum(sides)


def is_hub_id(text: str) -> bool:
    """Return whether a text has the form of a hub id, org/name."""
    return _HUB_ID.fullmatch(text) is not None


def open_model_folder(folder: Path) -> ModelFolder:
    """Check a model folder and return what its files say.

    Raises:
        UserError: `model-files-missing-or-corrupt` with the file and what is wrong, `model-pickle-refused`, or
            `model-kind-unsupported` for an encoder-decoder.
    """
    if not folder.is_dir():
        raise _damaged(
            folder,
            "is not a folder. A model is a folder with config.json and safetensors files, or a hub id such as org/name",
        )
    if not (folder / "config.json").is_file() and (folder / "adapter_config.json").is_file():
        raise _damaged(folder, "contains an adapter, not a model. Choose the base model that it was trained on")
    config = _read_object(folder / "config.json")
    if not config.get("model_type") and not config.get("architectures"):
        raise _damaged(folder / "config.json", "names neither a model_type nor an architecture")
    if config.get("is_encoder_decoder") is True:
        kind = config.get("model_type") or "unknown type"
        raise UserError(
            "model-kind-unsupported",
            "{folder}: a model of type {kind} is an encoder-decoder.",
            folder=folder,
            kind=kind,
        )
    shapes = _read_weights(folder)
    _check_tokenizer(folder)
    return ModelFolder(folder, shapes, _has_chat_template(folder))


def _damaged(path: Path, problem: str, **values: object) -> TunesmithError:
    return TunesmithError(
        "model-files-missing-or-corrupt", "{path}: {problem}.", path=path, problem=Message(problem, **values)
    )


def _read_object(path: Path) -> dict[str, Any]:  # Any: JSON values
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _damaged(path, "the file is missing") from None
    except OSError as error:
        raise _damaged(path, "the file can't be read: {reason}", reason=Message(str(error.strerror))) from error
    except json.JSONDecodeError as error:
        _refuse_pointer(path)
        raise _damaged(
            path,
            "line {line}, column {column}: not valid JSON: {msg}",
            line=error.lineno,
            column=error.colno,
            msg=json_problem(error.msg),
        ) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "the file is not JSON text") from error
    if not isinstance(value, dict):
        raise _damaged(path, "contains no JSON object")
    return value


def _refuse_pointer(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(len(_LFS_START))
    if start == _LFS_START:
        raise _damaged(path, "is a Git LFS pointer, not the file itself. Run git lfs pull, or download the model again")


def _read_weights(folder: Path) -> dict[str, tuple[int, ...]]:
    if (folder / INDEX_NAME).is_file():
        return _read_sharded(folder)
    if (folder / SINGLE_NAME).is_file():
        return read_safetensors_shapes(folder / SINGLE_NAME)
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    shards = [name for name in names if name.endswith(".safetensors")]
    if shards:
        raise _damaged(folder / INDEX_NAME, "the file is missing, so {shards} can't be placed", shards=shards[0])
    pickles = [name for name in names if name.endswith(PICKLE_SUFFIXES)]
    if pickles:
        raise TunesmithError(
            "model-pickle-refused", "{folder}: the weights are in pickle format.", folder=folder / pickles[0]
        )
    raise _damaged(folder / SINGLE_NAME, "the file is missing")


def weight_files(folder: Path) -> list[str]:
    """Return the names of the files that hold the weights of a model folder that was checked."""
    index = folder / INDEX_NAME
    return sorted(set(_read_object(index)["weight_map"].values())) if index.is_file() else [SINGLE_NAME]


def _read_sharded(folder: Path) -> dict[str, tuple[int, ...]]:
    index = folder / INDEX_NAME
    weight_map = _read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(n, str) for n in weight_map.values()):
        raise _damaged(index, "contains no weight_map")
    shapes: dict[str, tuple[int, ...]] = {}
    for name in sorted(set(weight_map.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise _damaged(index, "names {name!r}, which is not a safetensors file in this folder", name=name)
        shapes |= read_safetensors_shapes(folder / name)
    missing = sorted(weight_map.keys() - shapes.keys())
    if missing:
        raise _damaged(
            folder / weight_map[missing[0]],
            "is missing the tensor {name} that {index_name} lists",
            name=missing[0],
            index_name=INDEX_NAME,
        )
    return shapes


def read_safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return tensor names and dimensions of a safetensors file, checking its header against its size.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
                _refuse_pointer(path)
                raise _damaged(path, "no safetensors header in a file of {size:,} bytes", size=size)
            header = json.loads(file.read(length))
    except FileNotFoundError:
        raise _damaged(path, "the file is missing") from None
    except OSError as error:
        raise _damaged(path, "the file can't be read: {reason}", reason=Message(str(error.strerror))) from error
    except (ValueError, RecursionError):
        raise _damaged(path, "the safetensors header is not valid JSON") from None
    try:
        header.pop("__metadata__", None)
        shapes = {name: tuple(int(side) for side in entry["shape"]) for name, entry in header.items()}
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise _damaged(path, "the safetensors header is malformed") from None
    if size < 8 + length + end:
        # Rounded apart, so that the two always differ.
        mib, needed_mib = math.floor(size / MIB * 10) / 10, math.ceil((8 + length + end) / MIB * 10) / 10
        raise _damaged(path, "is cut short: {size:,.1f} of {needed:,.1f} MiB", size=mib, needed=needed_mib)
    return shapes


def _check_tokenizer(folder: Path) -> None:
    for group in TOKENIZER_FILES:
        if all((folder / name).is_file() for name in group):
            for name in group:
                _refuse_empty(folder / name)
                _refuse_pointer(folder / name)
            return
    raise _damaged(folder / "tokenizer.json", "the tokenizer is missing")


def _refuse_empty(path: Path) -> None:
    if not path.stat().st_size:
        raise _damaged(path, "the file is empty")


def _has_chat_template(folder: Path) -> bool:
    if any(_is_filled(folder / name) for name in ("chat_template.jinja", "chat_template.json")):
        return True
    path = folder / "tokenizer_config.json"
    return path.is_file() and bool(_read_object(path).get("chat_template"))


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
