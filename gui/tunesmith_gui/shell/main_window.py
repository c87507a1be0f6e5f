"""The window: rail, pages, banners, and the wiring between them. It decides nothing about runs."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QByteArray, QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QKeyEvent,
    QKeySequence,
    QResizeEvent,
    QShortcut,
    QShowEvent,
)
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QVBoxLayout, QWidget

from tunesmith_core import paths
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import RunState
from tunesmith_gui import tr
from tunesmith_gui.context import Context
from tunesmith_gui.export.service import Export
from tunesmith_gui.models.run_words import state_word
from tunesmith_gui.page import Page
from tunesmith_gui.pages import PAGES
from tunesmith_gui.plain_text import window_title
from tunesmith_gui.services.hardware import Reading
from tunesmith_gui.services.operation import operations
from tunesmith_gui.services.run_service import LiveRun
from tunesmith_gui.services.window_state import window_state
from tunesmith_gui.shell import actions as shell_actions
from tunesmith_gui.shell.activity import ActivityPanel
from tunesmith_gui.shell.banners import ShellBanners
from tunesmith_gui.shell.close_window import CloseChoice, CloseWindowDialog
from tunesmith_gui.shell.drop_overlay import DropOverlay
from tunesmith_gui.shell.page_stack import PageStack
from tunesmith_gui.shell.rail import Rail
from tunesmith_gui.shell.toast import Toast
from tunesmith_gui.shortcuts import actions
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text

_FIRST_SIZE = QSize(1280, 800)
_SMALLEST = QSize(SPACE * 90, SPACE * 60)
_FRAME = QSize(SPACE * 2, SPACE * 6)
"""Room for the desktop's frame and title bar: Windows lets a window be larger than its screen."""
_LANDING_S = 10.0
"""How soon after the start a run that is found in progress may still take the place of the first page."""
_FOLD_BELOW_PX = 1100
"""Windows narrower than this show the rail folded, whatever the typeface and the size of text."""


class MainWindow(QMainWindow):
    """The one window of the program.

    Signals:
        closed: it was closed for good.
    """

    closed = Signal()

    def __init__(self, context: Context, memories: dict[str, object] | None = None) -> None:
        super().__init__()
        self.context = context
        self._state = window_state()
        self._ask_on_close = True
        self._opened_at = time.time()
        self._build(memories)
        self._make_shortcuts()
        for problem in filter(None, (context.preferences.problem, paths.read_only_problem())):
            self.banners.show_problem(problem)
        self.setAcceptDrops(True)
        self.setMinimumSize(_SMALLEST)
        geometry = self._state.value("geometry")
        if not isinstance(geometry, QByteArray) or not self.restoreGeometry(geometry):
            self.resize(_FIRST_SIZE.boundedTo(self.screen().availableSize() - _FRAME))
        self.rail.set_collapsed(self._rail_wanted_collapsed())
        self.show_page("train")
        self._untouched = True
        self.pages.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.pages.setFocus()  # no ring before the first Tab
        QTimer.singleShot(0, self._start_services)

    def _build(self, memories: dict[str, object] | None) -> None:
        entries = [
            (action.page, PAGES[action.page].words, action.icon_name, action.shown_keys)
            for action in actions()
            if action.page
        ]
        centre = QWidget(self)
        self.rail = Rail(entries, centre)
        self.pages = PageStack(self.context, memories, centre)
        area = QWidget(centre)
        column = QVBoxLayout(area)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        self.banners = ShellBanners(area)
        column.addWidget(self.pages, 1)
        column.addWidget(self.banners)
        row = QHBoxLayout(centre)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.rail)
        row.addWidget(area, 1)
        self.setCentralWidget(centre)
        self.toast = Toast(area)
        self._overlay = DropOverlay(area)
        self.activity = ActivityPanel(self)
        self._show_live_runs()
        self.rail.page_chosen.connect(self.show_page)
        self.rail.activity_clicked.connect(lambda: self.activity.show_above(self.rail.activity))
        self.rail.collapsed_changed.connect(lambda collapsed: self._state.setValue("rail_collapsed", collapsed))
        self.activity.opened.connect(lambda run_id: self.show_page("dashboard", run_id))
        self.activity.new_run_asked.connect(lambda: self.show_page("train"))
        self.activity.folder_asked.connect(self._open_folder)
        self.activity.changed.connect(self._show_activity)
        self.pages.navigate.connect(self.show_page)
        self.banners.navigate.connect(self.show_page)
        self.pages.notify.connect(self.toast.show_message)
        self.pages.offer.connect(self.toast.show_offer)
        self.pages.title_changed.connect(self._show_title)
        self.context.preferences.save_failed.connect(self._on_unsaved_setting)

    def _make_shortcuts(self) -> None:
        for action in actions():
            shortcut = QShortcut(QKeySequence(action.keys), self)
            shortcut.activated.connect(lambda name=action.id: self.perform(name))

    def _start_services(self) -> None:
        """Begins what the first picture does not need."""
        runs = self.context.runs
        runs.live_runs_changed.connect(self._on_live_runs_changed)
        runs.run_started.connect(self._on_run_started)
        runs.run_ended.connect(self._on_run_ended)
        runs.failed.connect(self._on_run_error)
        exports = self.context.exports
        exports.changed.connect(self._show_ended_exports)
        self.activity.dismissed.connect(exports.forget)
        self._show_ended_exports()
        exports.ended.connect(self._on_export_ended)
        hardware = self.context.hardware
        hardware.changed.connect(self._on_reading)
        hardware.watch(self.isVisible() and not self.isMinimized())
        self._on_live_runs_changed()

    def _show_ended_exports(self) -> None:
        self.activity.show_ended(self.context.exports.unseen())

    def look_for_interrupted(self) -> None:
        """Reads the index of runs and tells which ones were interrupted since the last time."""
        library = self.context.library
        library.rows_changed.connect(self._on_first_rows, Qt.ConnectionType.SingleShotConnection)
        library.refresh()

    def show_page(self, key: str, argument: object = None) -> None:
        """Brings a page to the front; see `page` for the keys and arguments."""
        self._untouched = False
        if key == "setup":
            self._open_setup(argument if isinstance(argument, str) else "")
            return
        self.pages.show_page(key, argument)
        self.rail.show_current(PAGES[key].part_of or key)
        self._show_title()

    def offer_setup(self) -> None:
        """Opens the first-run wizard, the first time it is asked for and never again by itself."""
        if not self._state.value("setup_offered", False, type=bool):
            self._state.setValue("setup_offered", True)
            self.show_page("setup")

    def _open_setup(self, step: str) -> None:
        from tunesmith_gui.environment.wizard import SetupWizard

        wizard = self.findChild(SetupWizard)
        if wizard is None:
            wizard = SetupWizard(self.context, self)
            wizard.navigate.connect(self.show_page)
        wizard.open_at(step)

    def perform(self, action: str) -> None:
        """Does what a keyboard action asks: the page in front may take it, else the window does."""
        if not self.pages.perform(action):
            shell_actions.perform(self, action)

    def open_files(self, files: list[str]) -> None:
        """Takes files given on the command line or dropped on the window to the Train page."""
        if files:
            self.show_page("train", [Path(each) for each in files])

    def stop_asking(self) -> None:
        """Lets the window be closed without a question from now on."""
        self._ask_on_close = False

    def close_without_asking(self) -> None:
        """Closes the window; runs go on."""
        self.stop_asking()
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Asks what becomes of live runs and operations, keeps the geometry."""
        if self._ask_on_close and not (self.pages.may_close() and self._may_end()):
            event.ignore()
            return
        self._state.setValue("geometry", self.saveGeometry())
        self.context.hardware.watch(False)
        self.pages.hide_current()
        event.accept()
        self.closed.emit()

    def _may_end(self) -> bool:
        """Asks about runs, where the person wants that, and about operations, which always end with the window."""
        runs = self.context.runs
        live = runs.live_runs() if self.context.preferences.values.confirm_close else []
        missed = operations().missed()
        if not live and not missed:
            return True
        dialog = CloseWindowDialog(live, missed, self)
        dialog.exec()
        choice = dialog.choice
        dialog.deleteLater()
        if choice is CloseChoice.STOP_AND_SAVE:
            for run in live:
                runs.stop(run.id, "save")
        return choice is not CloseChoice.CANCEL

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Esc that nothing else takes puts the toast away."""
        if event.key() == Qt.Key.Key_Escape and self.toast.isVisible():
            self.toast.hide()
            return
        super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """A minimised window repaints and polls nothing."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            shown = not self.isMinimized()
            self.context.hardware.watch(shown)
            if shown:
                self.pages.show_current()
            else:
                self.pages.hide_current()

    def showEvent(self, event: QShowEvent) -> None:
        """The first picture is up: fit the rail."""
        super().showEvent(event)
        self._fit_rail()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Folds the rail when the window gets narrow."""
        super().resizeEvent(event)
        self._fit_rail()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Takes files from anywhere over the window."""
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()
            self._overlay.cover(self.pages.words_for_files())

    def dragLeaveEvent(self, _event: QDragLeaveEvent) -> None:
        """The files went elsewhere."""
        self._overlay.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        """Opens the files on the page in front if it takes any, else on the Train page."""
        self._overlay.hide()
        event.acceptProposedAction()
        files = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        if files and not self.pages.take_files(files):
            self.show_page("train", files)

    def _rail_wanted_collapsed(self) -> bool:
        return bool(self._state.value("rail_collapsed", False, type=bool))

    def _fit_rail(self) -> None:
        collapsed = self.width() < _FOLD_BELOW_PX or self._rail_wanted_collapsed()
        if collapsed != self.rail.collapsed:
            self.rail.set_collapsed(collapsed)

    def _show_title(self) -> None:
        title = self.pages.current_title()
        self.setWindowTitle(window_title(f"{title} – Tunesmith" if title else "Tunesmith"))

    def _on_reading(self, reading: Reading) -> None:
        self.rail.strip.show_reading(reading)

    def _on_live_runs_changed(self) -> None:
        live = self.context.runs.live_runs()
        self._show_live_runs()
        wanted = bool(live) and self.context.preferences.values.keep_awake
        self.context.desktop.keep_awake(wanted, self.tr("A run is in progress"))

    def _show_live_runs(self) -> None:
        live = self.context.runs.live_runs() if "runs" in self.context.__dict__ else []
        self.activity.show_runs(live)
        self._show_activity()

    def _show_activity(self) -> None:
        live = self.context.runs.live_runs() if "runs" in self.context.__dict__ else []
        self.rail.activity.set_words(*self._activity_words(live))

    def _activity_words(self, live: list[LiveRun]) -> tuple[str, str]:
        """What goes on, and the name in it."""
        if not live:
            words, name = self.activity.told
            return words or self.tr("Idle"), name
        first = live[0]
        if len(live) == 1 and first.state is RunState.RUNNING and first.num_steps:
            return tr.fill(self.tr("%1%, %2"), 100 * first.step // first.num_steps, first.name), first.name
        if len(live) == 1:
            return tr.fill(self.tr("%1: %2"), state_word(first.state), first.name), first.name
        return self.tr("%n active run(s)", "", len(live)), ""

    def _open_folder(self, folder: Path) -> None:
        current = self.pages.currentWidget()
        if isinstance(current, Page):
            current.open_folder(folder)

    def _on_error(self, error: TunesmithError) -> None:
        self.toast.show_message("error", f"{core_text(error.message)}\n{core_text(error.hint)}")

    def _on_unsaved_setting(self, error: TunesmithError) -> None:
        words = self.tr("The setting was not saved. It holds until you close Tunesmith.")
        self.toast.show_message("error", f"{words}\n{core_text(error.message)}")

    def _on_run_error(self, _run_id: str, error: TunesmithError) -> None:
        self._on_error(error)

    def _on_first_rows(self) -> None:
        self.banners.show_interrupted(self.context.library.rows)

    def _on_run_started(self, run_id: str) -> None:
        # Later an older run can only have been resumed.
        just_opened = time.time() - self._opened_at < _LANDING_S
        if just_opened and self.context.runs.run(run_id).created_at < self._opened_at:
            name = next(run.name for run in self.context.runs.live_runs() if run.id == run_id)
            self.toast.show_message("accent", tr.fill(self.tr("%1 is still running."), name))
            if self._untouched:
                self.show_page("dashboard", run_id)

    def _on_export_ended(self, export: Export) -> None:
        """Tells how an export ended whose sheet was closed."""
        if export.watched:
            return
        from tunesmith_gui.export.model import notice

        tone, text = notice(export.name, export.spec.label, export.answer, export.error)
        self.toast.show_message(tone, text)
        if self.context.preferences.values.notify_run_end and not self.isActiveWindow():
            self.context.desktop.notify(text, export.name, self)

    def _on_run_ended(self, run_id: str, name: str, state: str) -> None:
        self.activity.show_run_end(run_id, name, RunState(state))
        word = state_word(RunState(state))
        text = tr.fill(self.tr("%1: %2"), word, name)
        tones = {"finished": "ok", "stopped": "accent", "failed": "error", "interrupted": "warn"}
        self.toast.show_message(tones.get(state, "accent"), text)
        if self.context.preferences.values.notify_run_end and not self.isActiveWindow():
            self.context.desktop.notify(word, name, self)
