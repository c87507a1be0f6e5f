"""What the window remembers between two starts: its place, the folded rail, and which news was told."""

from __future__ import annotations

from PySide6.QtCore import QSettings

from tunesmith_core import paths

FILE_NAME = "window.ini"


def window_state() -> QSettings:
    """Return the values that the window keeps in the data root's configuration folder."""
    path = paths.config_dir() / FILE_NAME
    if path.exists() and not (path.is_file() or path.is_dir()):
        # Qt opens what it finds, and would wait for somebody who writes into a FIFO for ever.
        path = path.with_name(f"new-{FILE_NAME}")
    return QSettings(str(path), QSettings.Format.IniFormat)
