"""Driving the Train page: making it, filling it in, reading it, and standing in for the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tunesmith_gui.context import Context
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.widgets.banner import Banner

GIB = 1024**3


def make_page(qtbot: QtBot, context: Context) -> NewRunPage:
    page = NewRunPage(context)
    page.resize(1080, 800)
    page.show()
    page.on_shown()
    qtbot.waitExposed(page)
    qtbot.waitUntil(lambda: page.facts.survey is not None, timeout=5000)
    return page


def close(page: NewRunPage) -> None:
    page.on_hidden()
    page.hide()
    settle()
    page.deleteLater()
    settle()


def type_into(qtbot: QtBot, widget: QWidget, text: str) -> None:
    widget.setFocus()
    qtbot.keyClick(widget, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(widget, text)


def fill_in(qtbot: QtBot, page: NewRunPage, model: Path | str, data: Path) -> None:
    """Types model and data, and waits for what is found out about them."""
    for combo, path in ((page.model_picker.combo, model), (page.data_picker.combo, data)):
        type_into(qtbot, combo.lineEdit(), str(path))
        qtbot.keyClick(combo.lineEdit(), Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: page.facts.model is not None and page.facts.data is not None, timeout=5000)
    if page.facts.model and page.facts.model.card and page.facts.data and not page.facts.data.error:
        qtbot.waitUntil(lambda: page.facts.plan is not None, timeout=5000)
    # What was found out moves what stands below it; a click must not go where a button was.
    settle()


def shown_words(page: QWidget) -> str:
    return "\n".join(
        f"{banner.accessibleName()}\n{banner.accessibleDescription()}"
        for banner in page.findChildren(Banner)
        if banner.isVisible()
    )


class Begins:
    """Stands in for the operations of the window: begins what the test makes."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def begin(self, kind: object, spec: object) -> Any:
        return self._make(kind, spec, parent=None)

    def of(self, _kind: object) -> list[Any]:
        return []


class FakeTask:
    """Stands in for OperationTask: the test says what it answers."""

    def __init__(self) -> None:
        self.cancelled = False
        self.on_success: list[Callable[[Any], object]] = []
        self.on_failure: list[Callable[[Any], object]] = []

    def succeeded(self, answer: object) -> None:
        for each in self.on_success:
            each(answer)


def scripted_tasks(monkeypatch: pytest.MonkeyPatch) -> list[FakeTask]:
    tasks: list[FakeTask] = []

    class Signal:
        def __init__(self, listeners: list[Any]) -> None:
            self.connect = listeners.append

    class Task:
        def __init__(self, *_arguments: object, parent: object) -> None:
            del parent
            self.fake = FakeTask()
            tasks.append(self.fake)
            self.succeeded, self.failed = Signal(self.fake.on_success), Signal(self.fake.on_failure)
            self.ended = Signal([])

        def start(self) -> None:
            pass

        def cancel(self) -> None:
            self.fake.cancelled = True

    monkeypatch.setattr("tunesmith_gui.new_run.actions.operations", lambda: Begins(Task))
    monkeypatch.setattr("tunesmith_gui.new_run.data_preview.OperationTask", Task)
    return tasks


ANSWER = {
    "rows": [
        {
            "line": 1,
            "segments": [{"text": "<b>user</b>", "trained": False}, {"text": "Me.", "trained": True}],
            "num_tokens": 9,
            "num_trained_tokens": 2,
            "is_cut": False,
        }
    ],
    "histogram": [{"from_tokens": 0, "to_tokens": 10, "num_rows": 3}],
    "num_rows": 3,
    "num_skipped": 2,
    "num_cut": 0,
    "num_untrained": 1,
    "longest_tokens": 9,
    "num_tokens": 27,
    "context_length": 5,
    "is_complete": True,
    "problems": [{"line": 4, "message": "data.jsonl, line 4: no answer"}],
}
