"""The adapters of earlier runs that another run may start from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import files
from tunesmith_core.adapter_folders import CONFIG, WEIGHTS
from tunesmith_core.objectives import HEADS
from tunesmith_core.runs import iter_runs

MOST = 200
"""The newest runs that are looked at."""


@dataclass(frozen=True, slots=True)
class StartChoice:
    """An adapter that a run has made.

    Attributes:
        name: of the run.
        path: of the adapter's folder.
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
