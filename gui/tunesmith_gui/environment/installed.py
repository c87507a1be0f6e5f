"""Reads what the training environment's own files say about it, and how much room the data folder takes. No Qt.

Called on a worker thread: adding up the sizes of some ten thousand files takes a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunesmith_core import environments, files, paths
from tunesmith_core.environments import COMPILE_CACHES, MANIFEST, PROOF
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_gui.environment.model import DiskUse, Installed, Proof

PREVIOUS_POINTER = "train.previous"
SHORTEST_S = 0.05
"""Shorter times are not worth telling."""


def read_installed() -> Installed:
    """The environment that the pointer names; one without readable files is still named."""
    previous = _previous()
    try:
        folder = environments.pointed_environment(environments.TRAINING_POINTER)
    except EnvironmentProblem as problem:
        return Installed(problem=problem, previous=previous)
    manifest = _values(folder / MANIFEST)
    kind = str(manifest.get("kind") or "")
    built_at = manifest.get("built_at")
    return Installed(
        name=folder.name,
        profile=kind.removeprefix("train-"),
        built_at=float(built_at) if isinstance(built_at, int | float) else None,
        proof=_proof(_values(folder / PROOF)),
        previous=previous,
    )


def _previous() -> str:
    try:
        return Path(environments.pointed_environment(PREVIOUS_POINTER)).name
    except EnvironmentProblem:
        return ""


def _proof(values: dict[str, Any]) -> Proof | None:  # Any: JSON values
    if not values:
        return None
    at = values.get("proven_at")
    versions = values.get("versions")
    steps = values.get("steps")
    return Proof(
        float(at) if isinstance(at, int | float) else None,
        _gpu_name(values.get("gpu") or values.get("gpus")),
        {str(name): str(version) for name, version in versions.items()} if isinstance(versions, dict) else {},
        tuple(_step(step) for step in steps if _was_tried(step)) if isinstance(steps, list) else (),
    )


def _gpu_name(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(filter(None, map(_gpu_name, value)))
    return str(value.get("name") or "") if isinstance(value, dict) else str(value or "")


def _was_tried(step: object) -> bool:
    """Steps that this computer does not need, such as those for a GPU, are part of the record as skipped."""
    return isinstance(step, dict) and step.get("state") != "skipped"


def _step(step: dict[str, Any]) -> tuple[str, bool, float | None]:  # Any: JSON values
    seconds = step.get("seconds")
    name = str(step.get("name") or step.get("id") or "")
    took_s = float(seconds) if isinstance(seconds, int | float) else 0.0
    return name, bool(step.get("ok", True)), took_s if took_s >= SHORTEST_S else None


def _values(path: Path) -> dict[str, Any]:  # Any: JSON values
    try:
        values = files.read_json(path)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def read_disk() -> tuple[DiskUse, ...]:
    """What the parts of the data folder take, largest first; parts that take nothing are left out."""
    cache = paths.cache_dir()
    compiled = sum(_bytes(cache / name) for name in COMPILE_CACHES)
    uses = (
        DiskUse("environments", _bytes(paths.envs_dir())),
        DiskUse("compiled", compiled, can_free=True),
        DiskUse("downloads", _bytes(cache) - compiled),
        # A linked model takes its room elsewhere.
        DiskUse("models", sum(_bytes(each) for each in paths.models_dir().glob("*") if not each.is_symlink())),
        DiskUse("runs", _bytes(paths.runs_dir())),
    )
    return tuple(sorted((use for use in uses if use.num_bytes > 0), key=lambda use: -use.num_bytes))


def _bytes(folder: Path) -> int:
    return files.folder_bytes(folder) if folder.is_dir() else 0
