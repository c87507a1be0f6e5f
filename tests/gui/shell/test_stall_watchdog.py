"""When the window watches itself."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QObject

from tunesmith_gui.shell.stall_watchdog import watch_if_asked


@pytest.mark.parametrize(("variable", "watched"), [("TUNESMITH_DEBUG", True), ("CI", True), ("", False)])
def test_watchdog_runs_where_it_is_asked_for(
    variable: str, watched: bool, monkeypatch: pytest.MonkeyPatch, qtbot: Any
) -> None:
    for name in ("TUNESMITH_DEBUG", "CI"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    owner = QObject()
    watchdog = watch_if_asked(lambda: "", owner)
    assert (watchdog is not None) == watched
    if watchdog is not None:
        watchdog.shutdown()
