"""A new operation in the window: one file brings its row, its progress and its Cancel; nothing else was touched."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.core.test_operations import program as program
from tunesmith_core import paths
from tunesmith_core.operations import kinds
from tunesmith_core.operations.kind import all_kinds
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.shell.main_window import MainWindow


@pytest.mark.parametrize("ending", ["finished", "stopped"])
def test_a_new_operation_shows_in_the_activity(
    qtbot: QtBot, window: MainWindow, program: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    core = program / "engine" / "tunesmith_core"
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(core / "operations" / "kinds")])
    # The child runs the program that has the file.
    monkeypatch.setattr(paths, "package_folder", lambda name: program / "engine" / name)
    all_kinds.cache_clear()
    try:
        kind = all_kinds()["count"]
    finally:
        all_kinds.cache_clear()
    spec = kind.spec(to=4 if ending == "finished" else 1000, pause_s=0.1)
    task = OperationTask(kind, spec, parent=window)
    with qtbot.waitSignal(task.ended, timeout=20_000) as end:
        task.start()
        (row,) = window.activity.operation_rows
        qtbot.waitUntil(lambda: row.words.text() == "counting", timeout=20_000)
        assert task.status.share
        if ending == "stopped":
            qtbot.mouseClick(row.cancel, Qt.MouseButton.LeftButton)
    assert end.args[0].state == ending
    assert window.activity.operation_rows == []
    assert importlib.import_module(f"{kinds.__name__}.toy").COUNT is kind
