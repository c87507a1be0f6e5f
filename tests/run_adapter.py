"""The adapter of a run as far as sizes tell."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core.runs import ADAPTER_FILES


def make_adapter(folder: Path) -> None:
    """Write the files without which an adapter can't be loaded."""
    folder.mkdir()
    for name in ADAPTER_FILES:
        (folder / name).write_bytes(b"{}")
