"""Run folders that went wrong, through the pages: one marked row each, and every tab and dialog opens."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QObject, Qt
from PySide6.QtWidgets import QDialog, QWidget
from pytestqt.exceptions import capture_exceptions
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.new_run.driving import close, make_page
from tests.run_mutations import is_listed, is_unreadable, mutants
from tests.tiny_run import GOOD
from tunesmith_core import paths, trash
from tunesmith_core.errors import BugError, TunesmithError, wrap
from tunesmith_core.runs import Run, RunState
from tunesmith_gui.background import Job
from tunesmith_gui.context import Context
from tunesmith_gui.dashboard.page import DashboardPage
from tunesmith_gui.models.run_row import contents_of
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.runs.compare import CompareDialog, load_compared
from tunesmith_gui.runs.page import RunsPage
from tunesmith_gui.runs.table import Column
from tunesmith_gui.runs.trash_dialog import TrashDialog
from tunesmith_gui.widgets.delete_run import DeleteRunDialog

LIMIT_S = 10.0
ROLES = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole)
PANES = ("charts", "log", "samples", "checkpoints", "settings", "files")
DONE_WITHOUT_ASKING = ("copy_diagnostics", "copy_command", "copy_path", "duplicate", "continue", "show_log", "keep")


class Driver:
    """The pages of a window, one after another on each run, with what went wrong so far.

    Work of worker threads is done at once, so that whatever it comes to belongs to the run at hand.
    """

    def __init__(self, context: Context, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: list[str] = []
        self._here = ""
        monkeypatch.setattr(Job, "start", self._do_at_once)
        self.runs, self.dashboard = RunsPage(context), DashboardPage(context)
        self.new_run: NewRunPage = make_page(qtbot, context)
        self._context, self._qtbot = context, qtbot
        for page in (self.runs, self.dashboard):
            page.resize(1000, 700)
            page.show()
            page.navigate.connect(self._navigated)
        self.runs.on_shown()
        qtbot.waitUntil(lambda: self.dashboard.charts is not None, timeout=20_000)

    def _do_at_once(
        self, _owner: QObject, work: Callable[[], object], done: Callable[..., object], failed: Callable[..., object]
    ) -> None:
        try:
            value = work()
        except Exception as error:
            problem = wrap(error)
            if isinstance(problem, BugError):
                self.faults.append(f"{self._here}: in the background: {problem.message}")
            failed(problem)
        else:
            done(value)

    def _navigated(self, page: str, argument: object) -> None:
        if page == "train" and argument is not None:
            self.new_run.on_shown(argument)
            QCoreApplication.processEvents()

    def drive(self, what: str, run: Run, *, everywhere: bool) -> None:
        """Show a run in the list, and everywhere else where it is wanted."""
        self._here, began = what, time.monotonic()
        with capture_exceptions() as caught:
            try:
                self._list(run)
                if everywhere:
                    self._open(run)
                    self._put_away(run)
                QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
            except Exception as error:
                self.faults.append(f"{what}: {_told(error)}")
        self.faults += [f"{what}: {_told(error)}" for _, error, _ in caught]
        if time.monotonic() - began > LIMIT_S:
            self.faults.append(f"{what}: takes {time.monotonic() - began:.1f} s")

    def _list(self, run: Run) -> None:
        page = self.runs
        self._context.library.refresh()
        rows = {row.id: row for row in page.model.rows}
        assert sorted(rows) == sorted([GOOD, run.id] if is_listed(run) else [GOOD])
        assert len(page.model.rows) == len(rows)
        assert (rows[GOOD].state, rows[GOOD].step) == (RunState.STOPPED, 3)
        if is_listed(run) and is_unreadable(run):
            assert rows[run.id].state is RunState.DAMAGED
        for place in range(page.proxy.rowCount()):
            page.table.selectRow(place)
            _ = [page.proxy.index(place, column).data(role) for column in Column for role in ROLES]
            _paint(page)
        page.table.selectAll()
        page.ask("compare")

    def _open(self, run: Run) -> None:
        page = self.dashboard
        page.on_shown(run.id)
        self._qtbot.waitUntil(lambda: page._follow is None or page._follow.caught_up, timeout=5000)
        for key in PANES:
            page.panes.show_pane(key)
            page._on_tick()
            page._repaint()
            _paint(page)
        page.log_pane.source.set_value("output")
        page.charts.loss.plot.point_at(2.0, None)  # type: ignore[union-attr]
        page.header.menu().deleteLater()
        for action in DONE_WITHOUT_ASKING:
            page.ask(action)
        _paint(self.new_run)

    def _put_away(self, run: Run) -> None:
        row = self._context.library.row(run.id)
        if row is None:
            return
        _show(DeleteRunDialog([row], contents_of([row])))
        try:
            trash.delete(run, force=True)
        except TunesmithError as error:
            if isinstance(error, BugError):
                raise
            return
        dialog = TrashDialog()
        assert dialog.list.topLevelItemCount() == 1
        dialog.list.selectAll()
        dialog.restore.click()
        assert dialog.list.topLevelItemCount() == 0
        assert is_listed(run)
        _show(dialog)

    def end(self) -> None:
        """Take the pages away."""
        close(self.new_run)
        for page in (self.runs, self.dashboard):
            page.on_hidden()
            page.deleteLater()
        settle()


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    return f"{type(error).__name__} at {place}: {error!a:.200}"


def _paint(widget: QWidget) -> None:
    QCoreApplication.processEvents()
    widget.grab()


def _show(dialog: QDialog) -> None:
    _paint(dialog)
    dialog.deleteLater()


@pytest.fixture
def driver(
    context: Context,
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
    fake_engine: object,
) -> Iterator[Driver]:
    del fake_engine
    paths.runs_dir().mkdir()
    monkeypatch.setattr(RunsPage, "_show_comparison", lambda _page, loaded: _show(CompareDialog(loaded)))
    result = Driver(context, qtbot, monkeypatch)
    yield result
    result.end()


def sweep(driver: Driver, folder: Path, count: int, *, everywhere: int, seed: int = 12) -> list[str]:
    """Drive mutants through the list, and every n-th through all pages and dialogs."""
    for number, (what, run) in enumerate(mutants(folder, count, seed)):
        driver.drive(what, run, everywhere=number % everywhere == 0)
    return driver.faults


def test_a_bad_run_folder_is_one_row_of_the_pages(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    assert sweep(driver, paths.runs_dir(), 20, everywhere=1) == []


@pytest.mark.long
def test_five_thousand_bad_run_folders_in_the_pages(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    # A thousand of them through the page of the run, the form of a new run and the dialogs, which take far longer.
    assert sweep(driver, paths.runs_dir(), 5000, everywhere=5) == []


def test_the_comparison_says_what_it_can_not_read(context: Context, tmp_path: Path) -> None:
    with pytest.raises(TunesmithError):
        load_compared([("gone", Run(tmp_path / "gone"))])
