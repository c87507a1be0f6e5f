"""The objectives that this program can train for, told without loading it: each is a file of the engine's `methods`."""

from __future__ import annotations

from pathlib import Path

METHODS = Path(__file__).parent.parent / "tunesmith_engine" / "methods"


def names() -> tuple[str, ...]:
    """Return the names that `objective.kind` may have."""
    return tuple(sorted(path.stem for path in METHODS.glob("[a-z]*.py")))
