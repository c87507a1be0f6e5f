"""What Start asks before a run begins: rows that nobody has reviewed, chats that the template can't write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.conftest import Looked
from tests.gui.new_run.driving import fill_in, shown_words
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.safe_label import SafeLabel


@pytest.fixture
def started(page: NewRunPage, monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """The specs of the runs that were started."""
    specs: list[RunSpec] = []

    def start(spec: RunSpec, done: Callable[[str], object], _failed: object) -> None:
        specs.append(spec)
        done("run-1")

    monkeypatch.setattr(page.context.runs, "start", start)
    return specs


def answer(monkeypatch: pytest.MonkeyPatch, code: int) -> list[tuple[str, str, str]]:
    """Answer every question and return what each says, with the names of its two ways."""
    asked: list[tuple[str, str, str]] = []

    def ask(dialog: ConfirmDialog) -> int:
        words = "\n".join(label.text() for label in dialog.findChildren(SafeLabel))
        asked.append((words, dialog.go.text(), dialog.other.text()))
        return code

    monkeypatch.setattr(ConfirmDialog, "exec", ask)
    return asked


def found(*counts: tuple[int, int], warnings: tuple[str, ...] = (), is_complete: bool = True) -> None:
    sources = [{"num_rows": num_rows, "num_unreviewed": num_unreviewed} for num_rows, num_unreviewed in counts]
    Looked.answer = {"sources": sources, "is_complete": is_complete, "warnings": list(warnings)}


@pytest.mark.parametrize(("code", "reviewed_only"), [(1, True), (ConfirmDialog.OTHER, False), (0, None)])
def test_rows_that_nobody_has_reviewed_are_asked_about(
    qtbot: QtBot,
    page: NewRunPage,
    model: Path,
    data_file: Path,
    started: list[RunSpec],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    reviewed_only: bool | None,
) -> None:
    fill_in(qtbot, page, model, data_file)
    found((1000, 40))
    asked = answer(monkeypatch, code)
    page.start_bar.start.click()
    ((words, only, every),) = asked
    assert "A model wrote 40 of the 1,000 rows, and nobody has reviewed them." in words
    assert (only, every) == ("Only reviewed rows", "All rows")
    assert [spec.data.sources[0].reviewed_only for spec in started] == ([] if code == 0 else [reviewed_only])
    settle()
    assert page.start_bar.start.isEnabled()
    assert not page.form.value("data.sources[0].reviewed_only"), "the answer is about one run"


def test_of_a_long_file_only_the_first_rows_are_known(
    qtbot: QtBot,
    page: NewRunPage,
    model: Path,
    data_file: Path,
    started: list[RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill_in(qtbot, page, model, data_file)
    found((50_000, 50_000), is_complete=False)
    asked = answer(monkeypatch, 0)
    page.start_bar.start.click()
    ((words, only, _every),) = asked
    assert "50,000 of the first 50,000 rows" in words
    assert only == "Only reviewed rows"
    assert started == []


@pytest.mark.parametrize("code", [0, 1])
def test_chats_that_lose_a_part_are_asked_about(
    qtbot: QtBot,
    page: NewRunPage,
    model: Path,
    data_file: Path,
    started: list[RunSpec],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    fill_in(qtbot, page, model, data_file)
    found((3, 0), warnings=('The chat template of tiny does not use "tool_calls".',))
    asked = answer(monkeypatch, code)
    page.start_bar.start.click()
    assert 'does not use "tool_calls"' in asked[0][0]
    assert asked[0][1] == "Start run"
    assert len(started) == code


def test_without_doubts_nothing_is_asked(
    qtbot: QtBot,
    page: NewRunPage,
    model: Path,
    data_file: Path,
    started: list[RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill_in(qtbot, page, model, data_file)
    asked = answer(monkeypatch, 0)
    page.start_bar.start.click()
    assert (asked, len(started), len(Looked.specs)) == ([], 1, 1)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_a_look_at_the_data_can_be_canceled(
    qtbot: QtBot,
    page: NewRunPage,
    model: Path,
    data_file: Path,
    started: list[RunSpec],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    fill_in(qtbot, page, model, data_file)
    tasks: list[Looked] = []
    monkeypatch.setattr(Looked, "start", lambda task: tasks.append(task))
    bar = page.start_bar
    settle()
    place = bar.start.mapToGlobal(bar.start.rect().center())
    bar.start.click()
    settle()
    assert bar.start.mapToGlobal(bar.start.rect().center()) == place, "a second click would meet something else"
    assert (bar.start.text(), bar.start.isEnabled(), bar.cancel_start.isVisible()) == ("Starting…", False, True)
    assert clipped(bar) == []
    assert unnamed(bar) == []
    if where == "here":
        qtbot.mouseClick(bar.cancel_start, Qt.MouseButton.LeftButton)
    else:
        tasks[0].cancel()
        tasks[0].ended.emit(None)
    settle()
    assert tasks[0].cancelled
    assert (bar.start.isEnabled(), bar.cancel_start.isVisible()) == (True, False)
    bar.start.click()
    tasks[0].ended.emit(None)
    assert bar.cancel_start.isVisible(), "the end of the first is none of the second"
    tasks[1].succeeded.emit(Looked.answer)
    assert (len(started), bar.cancel_start.isVisible()) == (1, False)


def test_what_a_run_would_fail_with_is_said_before_it_begins(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, started: list[RunSpec]
) -> None:
    fill_in(qtbot, page, model, data_file)
    Looked.answer = TunesmithError("dataset-parse-error", "line 2: the chat template rejects this chat: no.")
    page.start_bar.start.click()
    settle()
    assert "rejects this chat" in shown_words(page)
    assert started == []
    assert page.start_bar.start.isEnabled()
