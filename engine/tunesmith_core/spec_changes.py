"""Change a spec by path; name what changed between a stop and a resume, and what a checkpoint can't continue with."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from tunesmith_core import files
from tunesmith_core.declared import set_field
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.runs import CHECKPOINT_MANIFEST
from tunesmith_core.spec import SECTIONS, RunSpec

FIXED_SECTIONS = ("objective", "adapter", "quantization")
FIXED = ("model.path", "model.revision", "model.dtype", "optimizer.name")
"""What the saved weights and states of a checkpoint belong to."""

FREE = ("adapter.dropout",)
"""Settings of the fixed sections that may change all the same."""


def with_changes(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:  # Any: values of settings
    """Return a copy of a spec with settings changed, by paths such as "adapter.rank"."""
    changed = copy.deepcopy(spec)
    for path, value in changes.items():
        section, _, name = path.partition(".")
        set_field(getattr(changed, section), name, value)
    return changed


def check_resumable(before: RunSpec, now: RunSpec) -> list[str]:
    """Return "setting: old -> new" for every setting that was changed; an empty list when none was.

    Raises:
        UserError: `run-nothing-to-resume` when the checkpoint can't be continued with one of the changes.
    """
    changes = {
        f"{section}.{name}": f"{section}.{name}: {_shown(old)} -> {_shown(new)}"
        for section in SECTIONS
        for name, old, new in _pairs(before, now, section)
        if old != new and not (section == "model" and name == "path" and _same_folder(old, new))
    }
    refused = [words for path, words in changes.items() if _is_fixed(path)]
    if refused:
        raise TunesmithError(
            "run-nothing-to-resume",
            "The checkpoint does not match these changed settings: {names}.",
            hint="Change them back to resume, or duplicate the run to start again.",
            names="; ".join(refused),
        )
    return list(changes.values())


def newest_saved_spec(checkpoints: Path) -> RunSpec | None:
    """Return the spec that the newest checkpoint was saved with; None without one, or where that was not yet noted."""
    for path in sorted(checkpoints.glob(f"step-*/{CHECKPOINT_MANIFEST}"), reverse=True):
        try:
            return RunSpec.salvage(files.read_json(path)["spec"])
        except (OSError, ValueError, KeyError, TypeError, UserError):
            # The engine looks closer, and says what is wrong with it.
            continue
    return None


def _pairs(before: RunSpec, now: RunSpec, section: str) -> list[tuple[str, object, object]]:
    old, new = before.to_dict()[section], now.to_dict()[section]
    return [(name, value, new[name]) for name, value in old.items()]


def _is_fixed(path: str) -> bool:
    return path in FIXED or (path.partition(".")[0] in FIXED_SECTIONS and path not in FREE)


def _same_folder(old: object, new: object) -> bool:
    """Say whether two paths may name the same model: a folder that was moved, or is called otherwise inside WSL."""
    return PureWindowsPath(str(old)).name == PureWindowsPath(str(new)).name


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
