"""What a model hub says about a repository, and which of its files make a model here.

Names come from whoever made the repository, so they are judged by the rules of every system on every system.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from tunesmith_core import json_values
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import shortened
from tunesmith_core.model_folder import (
    ADAPTER_NAME,
    INDEX_NAME,
    PICKLE_SUFFIXES,
    READ_SUFFIXES,
    SINGLE_NAME,
)

WEIGHTS = ".safetensors"
GGUF = ".gguf"
CARD_NAME = "README.md"

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+ -]{0,149}")
_DEVICE_NAME = re.compile(r"(CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9])", re.IGNORECASE)
_LICENCE_NAME = re.compile(r"(LICEN[CS]E|NOTICE|USE_POLICY)(\.(md|txt))?", re.IGNORECASE)
_SHA256, _SHA1 = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository.

    Attributes:
        size_bytes: as the hub says.
        sha256: of the content, for files in large file storage; "" for others.
        git_sha1: of git's blob, for the others.
    """

    path: str
    size_bytes: int
    sha256: str = ""
    git_sha1: str = ""


@dataclass(frozen=True, slots=True)
class HubModel:
    """What a hub says about a repository.

    Attributes:
        id: its name now, also where it was asked for by an earlier one.
        commit: of its files.
        page: address for people, where the licence is accepted.
        gated: "auto" or "manual" where one has to ask for access, else "".
        num_parameters: 0 when the hub does not say.
        context_length: in tokens; 0 when unknown.
    """

    id: str
    commit: str
    page: str
    files: tuple[HubFile, ...] = ()
    licence: str = ""
    gated: str = ""
    private: bool = False
    model_type: str = ""
    num_parameters: int = 0
    dtype: str = ""
    context_length: int = 0
    has_chat_template: bool = False
    downloads: int = 0
    modified: str = ""

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the facts as JSON values."""
        return dataclasses.asdict(self) | {"files": [dataclasses.asdict(file) for file in self.files]}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> HubModel:  # Any: JSON values
        """Rebuild the facts from `to_dict`. Raises ValueError, TypeError or AttributeError for others."""
        return json_values.read(HubModel, values)  # type: ignore[no-any-return]


def chosen_files(model: HubModel) -> tuple[HubFile, ...]:
    """Return the files of a repository that make a model folder, small ones first.

    Raises:
        UserError: `model-pickle-refused` where the weights are pickles only, `hub-no-model` for a GGUF file, an adapter
            or no weights at all, `hub-answer-wrong` for names that no folder here may hold.
    """
    weights = _weights(model)
    chosen = [file for file in model.files if "/" not in file.path and is_read(file.path)]
    chosen = sorted(chosen, key=lambda file: (file.size_bytes, file.path)) + weights
    for file in chosen:
        _check(model, file)
    if len({file.path.casefold() for file in chosen}) < len(chosen):
        raise TunesmithError("hub-answer-wrong", "{id}: two files differ in upper and lower case only.", id=model.id)
    return tuple(chosen)


def is_read(name: str) -> bool:
    """Return whether a file beside the weights belongs to a model folder."""
    if name.startswith("adapter_") or name.endswith(WEIGHTS):
        return False
    return name == CARD_NAME or name.endswith(READ_SUFFIXES) or _LICENCE_NAME.fullmatch(name) is not None


def _weights(model: HubModel) -> list[HubFile]:
    """Return the files with weights that transformers would read, the largest first so that none is left alone."""
    top = {file.path: file for file in model.files if "/" not in file.path}
    if SINGLE_NAME in top:
        return [top[SINGLE_NAME]]
    shards = [file for name, file in top.items() if name.endswith(WEIGHTS) and "-of-" in name]
    if INDEX_NAME in top and shards:
        return sorted(shards, key=lambda file: (-file.size_bytes, file.path))
    raise _without_weights(model)


def _without_weights(model: HubModel) -> TunesmithError:
    names = [file.path for file in model.files]
    pickles = [name for name in names if name.endswith(PICKLE_SUFFIXES)]
    if ADAPTER_NAME in names:
        return TunesmithError(
            "hub-no-model",
            "{id} contains an adapter, not a model.",
            hint="Choose the base model that it was trained on.",
            link=model.page,
            id=model.id,
        )
    if any(name.endswith(GGUF) for name in names):
        return TunesmithError(
            "hub-no-model",
            "{id} contains GGUF files only, which are made for answering.",
            hint="Choose the repository that they were made from. Its weights are in safetensors files.",
            link=model.page,
            id=model.id,
        )
    if pickles:
        return TunesmithError(
            "model-pickle-refused",
            "{id}: the weights are in pickle format only ({name}).",
            link=model.page,
            id=model.id,
            name=shortened(pickles[0]),
        )
    return TunesmithError("hub-no-model", "{id} contains no {name}.", link=model.page, id=model.id, name=SINGLE_NAME)


def _check(model: HubModel, file: HubFile) -> None:
    name = file.path
    plain = _PLAIN_NAME.fullmatch(name) and not name.endswith((".", " ")) and ".." not in name
    if not plain or _DEVICE_NAME.fullmatch(name.partition(".")[0].strip()):
        raise TunesmithError(
            "hub-answer-wrong", "{id}: a file has a name that is not allowed: {name}", id=model.id, name=shortened(name)
        )
    if file.size_bytes < 0 or not (_SHA256.fullmatch(file.sha256) or _SHA1.fullmatch(file.git_sha1)):
        raise TunesmithError(
            "hub-answer-wrong",
            "{id}: the hub gives no hash for {name}, so it can't be checked.",
            id=model.id,
            name=name,
        )
