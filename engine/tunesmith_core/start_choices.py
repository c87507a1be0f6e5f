"""What earlier runs have made that another run may use: adapters to start from, and reward models."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files, reward_models
from tunesmith_core.adapter_folders import CONFIG, WEIGHTS
from tunesmith_core.errors import TunesmithError
from tunesmith_core.objectives import HEADS
from tunesmith_core.runs import iter_runs

MOST = 200
"""The newest runs that are looked at."""


@dataclass(frozen=True, slots=True)
class StartChoice:
    """An adapter or a reward model that a run has made.

    Attributes:
        name: of the run.
        path: of the adapter's folder, of a reward model that of the run.
        model: as the run's settings name its base model.
    """

    name: str
    path: str
    model: str

    def is_on(self, model: str) -> bool:
        """Return whether it is an adapter of a base model, by its folder or hub id."""
        return self.model == model or (Path(self.model).is_absolute() and _same(self.model, model))


def _same(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False


def reward_models_of_runs() -> list[StartChoice]:
    """Return the runs that learned to score answers and have something to score with, the newest first."""
    found = []
    for run in list(iter_runs())[: -MOST - 1 : -1]:
        try:
            spec = files.read_json(run.spec_path)
            kind, model = spec["objective"]["kind"], str(spec["model"]["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if kind != "reward":
            continue
        with contextlib.suppress(TunesmithError):
            reward_models.find(str(run.path))
            found.append(StartChoice(str(spec.get("name") or run.id), str(run.path), model))
    return found


def adapters_of_runs() -> list[StartChoice]:
    """Return the adapters of runs whose models write texts, the newest first; what can't be read is left out."""
    found = []
    for run in list(iter_runs())[: -MOST - 1 : -1]:
        folder = run.path / "adapter"
        if not ((folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()):
            continue
        try:
            spec = files.read_json(run.spec_path)
            kind, model = spec["objective"]["kind"], str(spec["model"]["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if kind not in HEADS:
            found.append(StartChoice(str(spec.get("name") or run.id), str(folder), model))
    return found
