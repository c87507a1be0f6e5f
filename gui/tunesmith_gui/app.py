"""The program: one QApplication, the services, the window, and what happens when something goes wrong in a slot."""

from __future__ import annotations

import logging
import signal
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from PySide6.QtCore import QMessageLogContext, QObject, QThreadPool, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication

from tunesmith_core import __version__, paths
from tunesmith_core.errors import BugError, wrap
from tunesmith_core.files import private_folder
from tunesmith_core.settings import SettingsFile
from tunesmith_gui import tr
from tunesmith_gui.background import Job
from tunesmith_gui.context import Context
from tunesmith_gui.garbage import Garbage
from tunesmith_gui.icons import app_icon
from tunesmith_gui.plain_text import keep_breaks_out_of
from tunesmith_gui.services import hub_token
from tunesmith_gui.services.desktop import raise_window
from tunesmith_gui.services.operation import operations
from tunesmith_gui.services.preferences import Preferences
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.shell.single_instance import SingleInstance, hand_over
from tunesmith_gui.shell.stall_watchdog import watch_if_asked
from tunesmith_gui.theme import Scheme, theme

if TYPE_CHECKING:
    from tunesmith_gui.environment.model import Installed

WARM_UP_MS = 1000
FIRST_LOOK_MS = 3000
_LOG_BYTES, _LOG_FILES = 1 << 20, 2
log = logging.getLogger("tunesmith_gui")


class App(QObject):
    """Owns everything that lives as long as the program."""

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self._application = application
        self._garbage = Garbage(self)
        self.context = Context(Preferences(SettingsFile()))
        settings = self.context.preferences.values
        self._language = tr.resolve_language(settings.language)
        theme().install(Scheme(settings.theme), settings.font_scale_percent / 100)
        tr.install_language(settings.language)
        self.context.preferences.changed.connect(self._on_preferences_changed)
        application.commitDataRequest.connect(self._on_session_end)
        keep_breaks_out_of(application.clipboard())
        self.window = self._make_window()

    def open_files(self, files: list[str]) -> None:
        """Another start happened: come forward and take its files."""
        raise_window(self.window)
        self.window.open_files(files)

    def warm_up(self) -> None:
        """Imports what the next pages need on a worker thread while the person looks at the first one."""
        Job.start(self, _import_pages, lambda _nothing: self.window.look_for_interrupted(), self.report_error)

    def first_look(self) -> None:
        """Offers the set-up once where training is not installed; else runs the quick checks in the background."""
        from tunesmith_gui.environment.installed import read_installed

        Job.start(self, read_installed, self._take_installed, self.report_error)

    def _take_installed(self, installed: Installed) -> None:
        self.context.setup.model.installed = installed
        if installed.problem is None:
            self.context.setup.check()
            self.context.downloads.resume()
        else:
            self.window.offer_setup()

    def shutdown(self) -> None:
        """Ends our threads; runs go on."""
        self.context.shutdown()
        operations().shutdown()
        QThreadPool.globalInstance().waitForDone(5000)
        self._garbage.stop()

    def report_error(self, error: BaseException) -> None:
        """Logs an error nobody caught and tells the person in one line."""
        problem = wrap(error)
        log.error("not caught: %s\n%s", problem.message, problem.context or "")
        words = tr.core_text(problem.title)
        self.window.toast.show_message(
            "error", words if isinstance(problem, BugError) else tr.core_text(problem.message)
        )

    def _make_window(self, memories: dict[str, object] | None = None) -> MainWindow:
        window = MainWindow(self.context, memories)
        window.closed.connect(self._application.quit)
        return window

    def _on_session_end(self) -> None:
        # The person logs out or shuts down: a question would only hold that up.
        self.window.stop_asking()

    def _on_preferences_changed(self) -> None:
        settings = self.context.preferences.values
        theme().set_appearance(Scheme(settings.theme), settings.font_scale_percent / 100)
        language = tr.resolve_language(settings.language)
        if language != self._language:
            self._language = language
            QTimer.singleShot(0, self, self._rebuild_window)  # the list that the choice was made in closes first

    def _on_hold_ended(self, _outcome: object) -> None:
        QTimer.singleShot(0, self, self._rebuild_window)  # after all who listen for the end

    def _rebuild_window(self) -> None:
        """Builds the window again in another language; runs, services and what was typed stay as they are."""
        old = self.window
        holding = next((task for task in operations().live if task.holds_page), None)
        if holding is not None:
            words = self.tr("The language changes once this is done: %1")
            old.toast.show_message("accent", tr.fill(words, holding.words))
            holding.ended.connect(self._on_hold_ended)
            return
        tr.install_language(self._language)
        self.window = self._make_window(old.pages.memories())
        for ended in old.activity.ended_runs:
            self.window.activity.show_run_end(*ended)
        self.window.setGeometry(old.geometry())
        page = old.pages.current_key()  # where the command line changed it, any other than Settings
        self.window.show_page(page, "language" if page == "settings" else None)
        self.window.show()
        old.closed.disconnect()
        old.close_without_asking()
        old.deleteLater()


def main(arguments: list[str]) -> int:
    """Opens the window, or hands its files to the one that is open.

    Args:
        arguments: files and folders for the Train page.

    Returns:
        The exit code of the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl+C in a terminal; a run does not depend on the window
    application = QApplication([sys.argv[0]])
    application.setApplicationName("Tunesmith")
    application.setApplicationVersion(__version__)
    application.setDesktopFileName("tunesmith")
    application.setWindowIcon(app_icon())
    application.setQuitOnLastWindowClosed(False)
    files = [str(Path(each).expanduser().absolute()) for each in arguments]
    instance = SingleInstance()
    if not instance.claim():
        return 0 if hand_over(files) else _say_busy()
    _open_log()
    hub_token.use_keyring()
    app = App(application)
    sys.excepthook = lambda kind, error, trace: _on_uncaught(app, kind, error, trace)
    instance.raised.connect(app.open_files)
    app.window.show()
    app.window.open_files(files)
    QTimer.singleShot(WARM_UP_MS, app.warm_up)
    QTimer.singleShot(FIRST_LOOK_MS, app.first_look)
    watchdog = watch_if_asked(lambda: app.window.pages.current_title(), app)
    code = application.exec()
    if watchdog is not None:
        watchdog.shutdown()
    sys.excepthook = sys.__excepthook__
    app.shutdown()
    instance.release()
    return code


def _import_pages() -> None:
    import tunesmith_gui.dashboard.charts
    import tunesmith_gui.runs.page
    import tunesmith_gui.services.library  # noqa: F401


def _say_busy() -> int:
    from tunesmith_core.errors import EnvironmentProblem
    from tunesmith_gui.early import show_problem

    words = "Another Tunesmith window is open and does not answer."
    return show_problem(EnvironmentProblem("window-not-answering", words))


def _open_log() -> None:
    if not paths.read_only_problem():
        path = private_folder(paths.logs_dir()) / "window.log"
        handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.INFO)
        # On a full disk the log has gaps: the terminal must not get a traceback for each.
        logging.raiseExceptions = False
    qInstallMessageHandler(_on_qt_message)


def _on_qt_message(kind: QtMsgType, _context: QMessageLogContext, message: str) -> None:
    levels = {QtMsgType.QtDebugMsg: logging.DEBUG, QtMsgType.QtInfoMsg: logging.INFO}
    level = levels.get(kind, logging.WARNING)
    logging.getLogger("qt").log(level, message)


def _on_uncaught(app: App, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        app.report_error(error)
