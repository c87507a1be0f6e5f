"""What is remembered between starts: the unfinished form of the Train page, and the models and data used lately."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

from tunesmith_core import files, paths
from tunesmith_core.model_folder import is_hub_id
from tunesmith_core.runs import default_name, slug
from tunesmith_core.spec import RunSpec

MAX_RECENT = 8
_changing = threading.Lock()
"""Held while the file is read and written again."""


class FormMemory:
    """Reads and writes `config/draft.json`; every method touches files, so call it on a worker thread."""

    def __init__(self) -> None:
        self._written_number = 0

    def load(self) -> dict[str, Any]:  # Any: JSON values
        """Return what was remembered; a missing or damaged file is an empty memory."""
        with contextlib.suppress(OSError, ValueError):
            content = files.read_json(draft_path())
            if isinstance(content, dict):
                return content | {"models": _found(content.get("models")), "data": _found(content.get("data"))}
        return {}

    def add_data(self, path: str) -> list[str]:
        """Put a data file at the head of those used lately; return them all. Raises OSError."""
        with _changing:
            content = self.load()
            recent = remembered(content.get("data") or [], path)
            _write(content | {"data": recent})
        return recent

    def save(self, content: dict[str, Any], number: int) -> None:  # Any: JSON values
        """Write a draft unless one of a higher number was written already. Raises OSError."""
        with _changing:
            if number > self._written_number:
                # Every page tells at once what it opens, so the order on the drive is that of the last use.
                recent = dict.fromkeys([*self.load().get("data", []), *content.get("data", [])])
                _write(content | {"data": list(recent)[:MAX_RECENT]})
                self._written_number = number


def _write(content: dict[str, Any]) -> None:  # Any: JSON values
    files.private_folder(draft_path().parent)
    files.atomic_write_json(draft_path(), content)


def draft_path() -> Path:
    """Where the draft lies."""
    return paths.config_dir() / "draft.json"


def write_command_spec(spec: RunSpec) -> str:
    """Write a spec beside the draft and return the command that trains it. Raises OSError."""
    path = paths.config_dir() / "specs" / f"{slug(spec.name or default_name(spec))}.json"
    files.private_folder(path.parent)
    files.atomic_write_json(path, spec.to_dict())
    return f'tunesmith train "{path}"'


def remembered(recent: list[str], path: str) -> list[str]:
    """The list of recent paths with one more at its head; "" adds none."""
    return [path, *(each for each in recent if each != path)][:MAX_RECENT] if path else recent


def _found(paths: object) -> list[str]:
    """The paths that lead somewhere, and ids of the hub."""
    texts = [each for each in paths if isinstance(each, str)] if isinstance(paths, list) else []
    # Not Path.expanduser, which raises for the home of an unknown person.
    return [each for each in texts if is_hub_id(each) or os.path.exists(os.path.expanduser(each))]  # noqa: PTH110, PTH111
