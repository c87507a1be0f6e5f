"""The manifest of a checkpoint: written last, sealed by a hash of itself, and type-checked on reading."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files, json_values
from tunesmith_core.base_model import FileNote
from tunesmith_core.errors import UserError
from tunesmith_core.messages import Message, MessageError
from tunesmith_core.runs import CHECKPOINT_MANIFEST
from tunesmith_core.spec import RunSpec

VERSION = 1
TENSORS = ("adapter", "optimizer", "random")
"""What a checkpoint holds in safetensors: each in one file, or in numbered ones where it is large."""

STATE = "state.json"
SUFFIX = ".safetensors"
CONTENT = (*(f"{group}{SUFFIX}" for group in TENSORS), STATE)
"""The files of a checkpoint beside its manifest, where none is large."""

_SHARD = re.compile(r"(?P<name>adapter|optimizer)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")

SEALED_KEYS = frozenset({"sha256", "run", "base_model"})
"""Written since manifests are sealed: where one of them is, the seal must be."""

MOST_SHARDS = 99_999
"""More have no number of five digits."""

Values = dict[str, Any]  # Any: JSON values


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a file of the checkpoint must be."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says.

    Attributes:
        step: of the checkpoint.
        entries: its files by name.
        run: when its run was created, 0 where that was not noted.
        spec: the settings that it was saved with, None where an earlier version did not note them.
        base_model: notes of the base model's files, empty where an earlier version did not take them.
        fingerprint: what else decides whether the same step gives the same bits.
    """

    step: int
    entries: Mapping[str, FileEntry]
    run: float
    spec: RunSpec | None
    base_model: Mapping[str, FileNote]
    fingerprint: Mapping[str, Any]  # Any: JSON values


def sealed(values: Values) -> Values:
    """Return the values of a manifest with the hash of all of them."""
    values = {key: value for key, value in values.items() if key != "sha256"}
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return values | {"sha256": hashlib.sha256(text.encode()).hexdigest()}


def read_manifest(folder: Path) -> Manifest:
    """Return what the manifest of a checkpoint's folder says.

    Raises:
        MessageError: what is wrong with it, in words.
    """
    try:
        values = files.read_json(folder / CHECKPOINT_MANIFEST)
        if values["version"] != VERSION:
            raise MessageError("version {version} is not supported", version=values["version"])
        if SEALED_KEYS & values.keys() and sealed(values)["sha256"] != values.get("sha256"):
            raise MessageError("{name} was changed after it was saved", name=CHECKPOINT_MANIFEST)
        return _manifest(values)
    except FileNotFoundError as error:
        raise MessageError("{name} is missing", name=CHECKPOINT_MANIFEST) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, UserError) as error:
        raise MessageError("{name} can't be read: {error}", name=CHECKPOINT_MANIFEST, error=error) from error


def _manifest(values: Values) -> Manifest:
    step, run, fingerprint = values["step"], values.get("run", 0.0), values["fingerprint"]
    if type(step) is not int or not isinstance(run, (int, float)) or not math.isfinite(run):
        raise TypeError(f"step {step!r} of run {run!r}")
    listed = values["files"]
    names = [name for group in TENSORS for name in _files_of(group, listed)] + [STATE]
    for name in names:
        if listed.get(name) is None:
            raise MessageError("{name} is missing", name=name)
    return Manifest(
        step,
        {name: json_values.read(FileEntry, listed[name]) for name in names},
        float(run),
        RunSpec.salvage(values["spec"]) if "spec" in values else None,
        {name: json_values.read(FileNote, each) for name, each in dict(values.get("base_model", {})).items()},
        dict(fingerprint),
    )


def shard_name(group: str, number: int, count: int) -> str:
    """Return the name of one of several files; of a single one without a number."""
    return f"{group}-{number:05d}-of-{count:05d}{SUFFIX}" if count > 1 else f"{group}{SUFFIX}"


def _files_of(group: str, listed: Mapping[str, Any]) -> list[str]:  # Any: JSON values
    """Return the names of the files that hold a group of tensors."""
    found = [match for match in map(_SHARD.fullmatch, listed) if match and match["name"] == group]
    count = max((int(match["count"]) for match in found), default=1)
    return [shard_name(group, number, count) for number in range(1, min(count, MOST_SHARDS) + 1)]


def weight_files(folder: Path) -> list[Path]:
    """Return the files with the trained weights of a checkpoint's folder, in their order."""
    return sorted(path for path in folder.glob(f"adapter*{SUFFIX}") if path.name.startswith(("adapter-", "adapter.")))


def damage(folder: Path) -> str:
    """Say what is wrong with a checkpoint's folder, or return ""."""
    try:
        manifest = read_manifest(folder)
    except MessageError as error:
        return error.message
    if manifest.step != step_of(folder):
        return Message("the manifest is of step {step}", step=manifest.step)
    for name, entry in manifest.entries.items():
        path = folder / name
        # Not opened before it is known to be a file: one that is a pipe would never answer.
        if not path.is_file():
            return Message("{name} is missing", name=name)
        try:
            if path.stat().st_size != entry.bytes or files.sha256_file(path) != entry.sha256:
                return Message("{name} was changed after it was saved", name=name)
        except OSError as error:
            return Message("{name} can't be read: {error}", name=name, error=error)
    return ""


def step_of(folder: Path) -> int:
    """Return the step that the name of a checkpoint's folder tells, -1 where it tells none."""
    digits = folder.name.removeprefix("step-")
    return int(digits) if digits.isdecimal() else -1


def newest_noted(checkpoints: Path) -> Manifest | None:
    """Return the newest readable manifest that notes its settings, None without one."""
    for folder in sorted(checkpoints.glob("step-*"), key=step_of, reverse=True):
        try:
            manifest = read_manifest(folder)
        except MessageError:
            # The engine looks closer, and says what is wrong with it.
            continue
        if manifest.spec:
            return manifest
    return None
