"""The page of runs: table, filter, comparison, CSV, deletion."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QMouseEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from tests.gui.conftest import settle
from tests.gui.run_folders import make_run, texts
from tunesmith_core import trash
from tunesmith_core.protocol import Event, encode
from tunesmith_core.runs import Run, RunState
from tunesmith_core.spec import RunSpec
from tunesmith_gui import tr
from tunesmith_gui.models.run_row import RunRow, distinct_names, when
from tunesmith_gui.runs.compare import CompareDialog, load_compared
from tunesmith_gui.runs.model import differing_settings, runs_csv
from tunesmith_gui.runs.page import RunsPage
from tunesmith_gui.runs.run_card import RunCard
from tunesmith_gui.runs.table import ROW_ROLE, Column, RunFilter, RunTableModel
from tunesmith_gui.runs.trash_dialog import TrashDialog
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.delete_run import erase, move_to_trash
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.stat_tile import UNKNOWN

LEFT = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier


def test_runs_page_lists_filters_and_opens(context: Any, qtbot: Any) -> None:
    run = make_run("alpha", "happy")
    make_run("beta", "oom")
    page = RunsPage(context)
    qtbot.addWidget(page)
    page.resize(1200, 700)
    page.show()
    page.on_shown()
    qtbot.waitUntil(lambda: page.proxy.rowCount() == 2, timeout=10_000)
    page.filter.setText("alph")
    assert page.proxy.rowCount() == 1
    page.table.selectRow(0)
    opened: list[tuple[str, Any]] = []
    page.navigate.connect(lambda name, argument: opened.append((name, argument)))
    page.card.open.click()
    assert opened == [("dashboard", run.id)]
    page.filter.clear()
    page.states.set_value("failed")
    assert page.proxy.rowCount() == 1
    assert page.proxy.index(0, Column.STATE).data() == "Failed"


def test_runs_page_says_what_to_do_when_there_are_none(context: Any, qtbot: Any) -> None:
    page = RunsPage(context)
    qtbot.addWidget(page)
    page.show()
    page.on_shown()
    qtbot.waitUntil(lambda: context.library.loaded)
    assert "No runs yet" in texts(page._stack.currentWidget())
    asked: list[tuple[str, Any]] = []
    page.navigate.connect(lambda name, argument: asked.append((name, argument)))
    page._empty.secondary.click()
    (name, paths) = asked[0]
    assert (name, paths[0].is_file()) == ("train", True)


def row(name: str, **values: Any) -> RunRow:
    return RunRow(id=name, path=Path("/runs") / name, name=name, state=values.pop("state", RunState.FINISHED), **values)


def test_table_model_keeps_qt_rules_and_sorts(qtmodeltester: Any, capsys: Any) -> None:
    del capsys
    model = RunTableModel()
    newest = row("c", created_at=3.0, eval_loss=1.0)
    model.set_rows([row("b", created_at=1.0, eval_loss=2.0), row("a", created_at=2.0), newest])
    qtmodeltester.check(model, force_py=True)
    assert [each.name for each in model.rows] == ["c", "a", "b"]
    model.sort(Column.EVAL_LOSS)
    assert [each.name for each in model.rows] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("values", "cell", "words"),
    [
        ({"eval_loss": 5.926, "best_eval_loss": 5.79}, "5.926", "5.926\nbest 5.790"),
        ({"eval_loss": 5.7901, "best_eval_loss": 5.79}, "5.790", "5.790"),
        ({"eval_reward": 0.5, "best_reward": 0.75, "is_rewarded": True}, "reward 0.500", "0.500\nbest 0.750"),
        ({}, "", UNKNOWN),
    ],
)
def test_the_list_tells_how_good_the_saved_adapter_is(
    values: dict[str, Any], cell: str, words: str, qtbot: Any
) -> None:
    told = row("a", **values)
    model = RunTableModel()
    model.set_rows([told])
    assert model.index(0, Column.EVAL_LOSS).data() == cell
    card = RunCard()
    qtbot.addWidget(card)
    card.show_row(told, None)
    assert words in texts(card)
    assert ("best" in texts(card)) == ("best" in words)
    card.setFixedWidth(SPACE * 32)  # as beside a table
    card.show()
    settle()
    for label in (card._values["eval"], card._values["best"]):
        assert label.fontMetrics().horizontalAdvance(label.text()) <= label.contentsRect().width()


def test_the_index_hands_over_the_last_evaluation(context: Any, qtbot: Any) -> None:
    run = make_run("rising", "happy")
    last = run.journal_path.read_text().splitlines()[-1]
    event = Event(json.loads(last)["seq"] + 1, 1795219300.0, "eval", {"step": 31, "loss": 1.5})
    with run.journal_path.open("ab") as journal:
        journal.write(encode(event))
    with qtbot.waitSignal(context.library.rows_changed, timeout=10_000):
        context.library.refresh()
    (found,) = context.library.rows
    assert (found.eval_loss, round(found.best_eval_loss, 3)) == (1.5, 1.132)


def test_a_paused_run_names_what_it_waits_for(capsys: Any) -> None:
    del capsys
    model = RunTableModel()
    model.set_rows([row(code, state=RunState.PAUSED, obstacle=code) for code in ("disk-full", "other", "")])
    words = [model.index(place, Column.STATE).data() for place in range(3)]
    assert words == ["Paused: disk full", "Can’t save", "Paused"]


@pytest.mark.parametrize(
    ("state", "step", "saved", "can_resume"),
    [(RunState.INTERRUPTED, 1, 0, True), (RunState.INTERRUPTED, 2, 0, False), (RunState.INTERRUPTED, 2, 1, True)],
)
def test_a_run_can_be_resumed_while_there_is_nothing_to_lose(
    state: RunState, step: int, saved: int, can_resume: bool
) -> None:
    assert row("r", state=state, step=step, last_checkpoint_step=saved).can_resume is can_resume


def test_filter_keeps_qt_rules_and_the_order_of_the_model(qtmodeltester: Any, capsys: Any) -> None:
    del capsys
    model = RunTableModel()
    model.set_rows([row("b", model="Qwen"), row("a", model="Llama"), row("c", state=RunState.FAILED)])
    proxy = RunFilter(model)
    qtmodeltester.check(proxy, force_py=True)
    proxy.sort(Column.NAME)
    assert [proxy.index(place, 0).data() for place in range(3)] == ["a", "b", "c"]
    proxy.set_words("qw")
    assert [proxy.index(place, 0).data() for place in range(proxy.rowCount())] == ["b"]
    proxy.set_words("")
    proxy.set_states(frozenset({RunState.FAILED}))
    assert proxy.rowCount() == 1


def test_only_differing_settings_are_compared() -> None:
    one, two = RunSpec(), RunSpec()
    two.adapter.rank, two.optimizer.learning_rate = 64, 1e-4
    found = {each.path: each.values for each in differing_settings([one, two])}
    assert found == {"adapter.rank": ("16", "64"), "optimizer.learning_rate": ("0.0002", "0.0001")}


def test_csv_disarms_formulas() -> None:
    lines = runs_csv([row("=cmd()", best_eval_loss=1.5)]).splitlines()
    assert lines[1].startswith("'=cmd(),'=cmd(),finished")


def test_deleting_for_good_removes_the_folder(context: Any, qtbot: Any) -> None:
    run = make_run("gone", "happy")
    with qtbot.waitSignal(context.runs.runs_changed, timeout=5000):
        context.runs.delete([run.id], erase)
    qtbot.waitUntil(lambda: not run.path.exists())


def test_a_deletion_can_be_undone_from_the_line_that_tells_of_it(
    runs_in_window: RunsPage, window: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, paths = runs_in_window, [row.path for row in runs_in_window.model.rows]
    monkeypatch.setattr("tunesmith_gui.widgets.delete_run.DeleteRunDialog.exec", lambda _dialog: 1)
    page.table.selectAll()
    page.delete.click()
    qtbot.waitUntil(lambda: not any(path.exists() for path in paths), timeout=10_000)
    qtbot.waitUntil(lambda: window.toast.action.isVisible(), timeout=10_000)
    assert window.toast.label.text() == "Moved to the trash, from where runs can be restored."
    assert window.toast.action.text() == "Undo"
    window.toast.action.click()
    qtbot.waitUntil(lambda: all(path.exists() for path in paths), timeout=10_000)
    qtbot.waitUntil(lambda: page.proxy.rowCount() == 2, timeout=10_000)
    assert not window.toast.isVisible()
    window.toast.show_message("ok", "Something else")
    assert not window.toast.action.isVisible()


def test_the_run_after_a_deleted_one_is_selected(context: Any, qtbot: Any) -> None:
    page = RunsPage(context)
    qtbot.addWidget(page)
    kept = [row(name, created_at=float(place)) for place, name in enumerate("edcba")]

    def show(names: str) -> str:
        context.library.rows = [each for each in kept if each.id in names]
        context.library.rows_changed.emit()
        return "".join(each.id for each in page.selected_rows())

    assert show("abcde") == "a"
    page.table.selectRow(2)
    assert show("abde") == "d"
    assert show("abe") == "e"
    assert show("ab") == "b", "the last one has nobody behind it"


@pytest.fixture
def runs_in_window(window: Any, qtbot: Any) -> RunsPage:
    make_run("alpha", "happy")
    make_run("beta", "oom")
    window.show_page("runs")
    page = window.pages.currentWidget()
    qtbot.waitUntil(lambda: page.proxy.rowCount() == 2, timeout=10_000)
    return page


def shown_columns(page: RunsPage) -> set[Column]:
    return {column for column in Column if not page.table.isColumnHidden(column)}


def test_a_filter_that_leaves_nothing_says_so(runs_in_window: RunsPage, qtbot: Any) -> None:
    page = runs_in_window
    assert not page.no_match.isVisible()
    page.filter.setText("no such words")
    assert page.no_match.isVisible()
    assert not page.table.isVisible()
    page.filter.clear()
    assert not page.no_match.isVisible()
    page.states.set_value("live")
    assert page.no_match.isVisible()
    page.no_match.primary.click()
    assert page.table.isVisible()
    assert (page.proxy.rowCount(), page.states.value) == (2, "all")


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.STOPPED])
def test_a_low_card_cuts_no_letters(state: RunState, qtbot: Any) -> None:
    card = RunCard()
    qtbot.addWidget(card)
    curve = tuple(float(10 - place) for place in range(10))
    card.show_row(row("low", state=state, sparkline=curve, last_checkpoint_step=5, step=5), None)
    card.show()
    card.resize(SPACE * 32, card.sizeHint().height() - SPACE * 7)
    qtbot.waitUntil(lambda: card._curve.height() < SPACE * 9, timeout=5000)
    labels = [label for label in card.findChildren(SafeLabel) if label.isVisible()]
    assert all(label.height() >= label.fontMetrics().height() for label in labels)
    card.grab()


def test_a_low_curve_is_drawn_all_the_same(qtbot: Any) -> None:
    card = RunCard()
    qtbot.addWidget(card)
    card.show_row(row("low", sparkline=tuple(float(10 - place) for place in range(10))), None)
    card._curve.setFixedSize(SPACE * 20, SPACE * 5 // 2)
    drawn = card._curve.grab().toImage()
    card._curve.values = ()
    assert drawn != card._curve.grab().toImage()


def test_what_a_run_came_to_is_in_the_list_at_1280_pixels(runs_in_window: RunsPage) -> None:
    assert not runs_in_window.card.isHidden()
    assert {Column.EVAL_LOSS, Column.DURATION} <= shown_columns(runs_in_window)
    header = runs_in_window.table.horizontalHeader()
    for column in shown_columns(runs_in_window):
        assert header.sectionSize(column) >= header.sectionSizeHint(column)


def test_long_names_are_told_apart_by_their_ends(runs_in_window: RunsPage) -> None:
    table = runs_in_window.table
    names = [f"sums-smollm2-135m-instruct-{number:02}" for number in range(1, 7)]
    room = table.fontMetrics().averageCharWidth() * 22
    cut = {table.fontMetrics().elidedText(name, table.textElideMode(), room) for name in names}
    assert len(cut) == len(names)


def test_list_has_the_room_of_the_card_when_nothing_is_selected(runs_in_window: RunsPage) -> None:
    beside = shown_columns(runs_in_window)
    runs_in_window.table.clearSelection()
    assert runs_in_window.card.isHidden()
    assert shown_columns(runs_in_window) > beside


def test_keyboard_begins_in_the_list(window: Any, runs_in_window: RunsPage, qtbot: Any) -> None:
    window.show_page("settings")
    window.perform("page_runs")
    qtbot.waitUntil(lambda: window.focusWidget() is runs_in_window.table, timeout=5000)


def test_keyboard_begins_at_the_first_run_when_there_are_none(window: Any, qtbot: Any) -> None:
    window.show_page("runs")
    page = window.pages.currentWidget()
    qtbot.waitUntil(lambda: window.focusWidget() is page._empty.primary, timeout=5000)


def test_a_deleted_run_is_restored_or_erased_from_the_trash(
    context: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [make_run(name, "happy") for name in ("one", "two", "three")]
    for run in runs:
        move_to_trash(run)
    runs[1].path.mkdir()
    dialog = TrashDialog()
    qtbot.addWidget(dialog)
    assert dialog.title.text() == "3 deleted items"
    assert not dialog.restore.isEnabled()
    dialog.list.selectAll()
    dialog.restore.click()
    assert dialog.changed
    assert runs[0].spec_path.is_file()
    assert runs[2].spec_path.is_file()
    assert "already exists" in dialog.problem.text()
    assert "Rename the folder that is there now" in dialog.problem.text()
    assert dialog.list.topLevelItemCount() == 1
    dialog.list.selectAll()
    monkeypatch.setattr(ConfirmDialog, "exec", lambda _asked: 1)
    dialog.erase.click()
    assert dialog.title.text() == "The trash is empty"
    assert dialog.problem.text() == ""


def test_the_trash_asks_before_it_deletes_for_good(context: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        move_to_trash(make_run(name, "happy"))
    dialog = TrashDialog()
    qtbot.addWidget(dialog)
    asked: list[str] = []

    def keep(question: ConfirmDialog) -> int:
        asked.append(texts(question))
        assert question.cancel.isDefault()
        return 0

    monkeypatch.setattr(ConfirmDialog, "exec", keep)
    dialog.list.selectAll()
    dialog.erase.click()
    assert len(asked) == 1
    assert "Delete 2 items for good?" in asked[0]
    assert "This can’t be undone." in asked[0]
    assert all(f"{name}, deleted {time.strftime('%Y-')}" in asked[0] for name in ("one", "two"))
    assert len(list(trash.contents())) == 2


def test_the_trash_tells_runs_of_one_name_apart_and_shows_when_they_were_deleted(context: Any, qtbot: Any) -> None:
    for name in ("same", "x" * 200):
        first = make_run(name, "happy")
        copy = Run(first.path.with_name(f"copy-of-{name[:4]}"))
        shutil.copytree(first.path, copy.path)
        move_to_trash(first)
        move_to_trash(copy)
    dialog = TrashDialog()
    qtbot.addWidget(dialog)
    dialog.show()
    rows = [dialog.list.topLevelItem(place) for place in range(dialog.list.topLevelItemCount())]
    names = {row.text(0) for row in rows}
    assert len(names) == 4
    assert {"same (same-01)", "same (copy-of-same)"} < names
    qtbot.waitUntil(lambda: dialog.list.viewport().width() > 100, timeout=5000)
    assert not dialog.list.horizontalScrollBar().isVisible()
    last = dialog.list.visualItemRect(rows[0])
    assert dialog.list.columnWidth(2) >= dialog.list.fontMetrics().horizontalAdvance(rows[0].text(2))
    assert last.right() <= dialog.list.viewport().width()


def test_delete_says_why_it_is_not_possible(runs_in_window: RunsPage) -> None:
    assert not runs_in_window.delete.toolTip()
    runs_in_window.model.set_rows([row("on its way", state=RunState.RUNNING)])
    runs_in_window.table.selectRow(0)
    assert not runs_in_window.delete.isEnabled()
    assert "Stop the run first" in runs_in_window.delete.toolTip()
    assert "two to six" in runs_in_window.compare.toolTip()


def test_comparison_is_closed_by_a_button(qtbot: Any) -> None:
    run = make_run("alpha", "happy")
    dialog = CompareDialog(load_compared([("alpha", run), ("beta", run)]))
    qtbot.addWidget(dialog)
    assert "alpha, evaluation" in [line.name for line in dialog.plot.lines]
    dialog.close_button.click()
    assert dialog.result()


def test_a_time_says_the_day_and_the_hour() -> None:
    noon = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    assert when(noon, noon + 60) == "12:00"
    assert when(noon, noon + 2 * 86_400) == "11-20 12:00"
    assert when(noon, noon + 365 * 86_400) == "2026-11-20"


def test_compared_runs_of_one_name_say_when_they_began() -> None:
    noon = time.mktime((2020, 11, 20, 12, 0, 0, 0, 0, -1))
    rows = [row("a", created_at=noon), row("b"), row("a", created_at=noon - 2 * 86_400)]
    assert distinct_names(rows) == ["a, 2020-11-20", "b", "a, 2020-11-18"]


def test_the_same_columns_are_shown_in_each_language(context: Any, qtbot: Any) -> None:
    make_run("one", "happy")
    shown: dict[str, list[list[bool]]] = {}
    for language in ("en", "zh_CN"):
        tr.install_language(language)
        try:
            page = RunsPage(context)
            qtbot.addWidget(page)
            page.show()
            page.on_shown()
            qtbot.waitUntil(lambda page=page: page.model.rows != [], timeout=5000)
            found = shown[language] = []
            for width in range(600, 1700, 10):
                page.resize(width, 640)
                found.append([page.table.isColumnHidden(column) for column in Column])
        finally:
            tr.install_language("en")
    assert shown["en"] == shown["zh_CN"]
    assert len(set(map(tuple, shown["en"]))) > 3


@pytest.mark.parametrize("column", [Column.NAME, Column.STATE, Column.CREATED])
def test_a_double_click_opens_a_run_while_none_is_selected(window: MainWindow, qtbot: Any, column: Column) -> None:
    for name in ("alpha", "beta", "gamma"):
        make_run(name, "happy")
    window.resize(1024, 640)
    window.show_page("runs")
    page = window.pages.currentWidget()
    assert isinstance(page, RunsPage)
    qtbot.waitUntil(lambda: page.proxy.rowCount() == 3, timeout=10_000)
    page.table.clearSelection()
    settle()
    opened: list[tuple[str, Any]] = []
    page.navigate.connect(lambda name, argument: opened.append((name, argument)))
    index = page.proxy.index(1, column)
    run_id = index.data(ROW_ROLE).id
    place = page.table.viewport().mapTo(window, page.table.visualRect(index).bottomRight())
    QTest.mouseClick(page.table.viewport(), *LEFT, page.table.viewport().mapFrom(window, place))
    settle()
    # QTest.mouseDClick would press once more before it, as no mouse does.
    second = window.childAt(place)
    at, in_window = QPointF(second.mapFrom(window, place)), QPointF(place)
    kind, (button, no_key) = QEvent.Type.MouseButtonDblClick, LEFT
    QApplication.sendEvent(second, QMouseEvent(kind, at, in_window, button, button, no_key))
    assert opened == [("dashboard", run_id)]
    qtbot.waitUntil(lambda: not page.card.isHidden())
