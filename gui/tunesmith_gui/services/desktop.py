"""What the window asks of the desktop: stay awake, tell that a run ended, show a folder.

Everything is best effort: a desktop without a tray, a bus or a file manager takes nothing from a run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget
from shiboken6 import isValid

from tunesmith_gui.background import Job
from tunesmith_gui.icons import app_icon
from tunesmith_gui.plain_text import notification

_BUS_TIMEOUT_MS = 2000
_LAUNCHERS = (("xdg-open",), ("gio", "open"))
_LAUNCH_S = 3.0


class Desktop(QObject):
    """One per program."""

    def __init__(self) -> None:
        super().__init__()
        self._tray: QSystemTrayIcon | None = None
        self._window: QWidget | None = None
        self._awake_wanted = False
        self._sleep_lock: int | None = None
        self._launched: list[subprocess.Popen[bytes]] = []

    def keep_awake(self, wanted: bool, reason: str) -> None:
        """Keeps the computer from sleeping, or lets it again; asking twice changes nothing."""
        if wanted == self._awake_wanted:
            return
        self._awake_wanted = wanted
        if sys.platform == "win32":  # pragma: no cover
            _set_execution_state(wanted)
        elif wanted:
            Job.start(self, lambda: _sleep_lock(reason), self._on_sleep_lock, lambda _error: None)
        else:
            self._release_sleep_lock()

    def notify(self, title: str, text: str, window: QWidget) -> None:
        """Shows a message of the desktop and marks the window in the task bar."""
        QApplication.alert(window)
        if not QSystemTrayIcon.isSystemTrayAvailable() or not QSystemTrayIcon.supportsMessages():
            return
        self._window = window
        if self._tray is None:
            self._tray = QSystemTrayIcon(app_icon(), self)
            self._tray.activated.connect(self._raise)
            self._tray.messageClicked.connect(self._raise)
        self._tray.show()
        self._tray.showMessage(notification(title), notification(text))

    def _raise(self) -> None:
        """Raises the window that told something last; another one takes the place of one that is gone."""
        if self._window is not None and isValid(self._window):
            raise_window(self._window)

    def reveal(self, path: Path) -> bool:
        """Opens the file manager at a folder, or at the folder of a file; False when there is none.

        Waits for its launcher, so it is for a worker thread. Not QDesktopServices, which takes a launcher that fails
        for one that worked.
        """
        folder = path if path.is_dir() else path.parent
        if sys.platform == "win32":  # pragma: no cover
            try:
                os.startfile(folder)
            except OSError:
                return False
            return True
        launcher = next((each for each in _LAUNCHERS if shutil.which(each[0])), None)
        if launcher is None:
            return False
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([*launcher, str(folder)], stdout=quiet, stderr=quiet, start_new_session=True)
        try:
            return process.wait(_LAUNCH_S) == 0
        except subprocess.TimeoutExpired:
            # Some launchers stay for as long as the file manager does.
            self._launched.append(process)
            return True

    def shutdown(self) -> None:
        """Gives back what was taken."""
        self.keep_awake(False, "")
        if self._tray is not None:
            self._tray.hide()

    def _on_sleep_lock(self, descriptor: int | None) -> None:
        self._sleep_lock = descriptor
        if not self._awake_wanted:
            self._release_sleep_lock()

    def _release_sleep_lock(self) -> None:
        if self._sleep_lock is not None:
            os.close(self._sleep_lock)
            self._sleep_lock = None


def raise_window(window: QWidget) -> None:
    """Brings a window to the front, out of the task bar if need be."""
    window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
    window.show()
    window.raise_()
    window.activateWindow()


def _set_execution_state(awake: bool) -> None:  # pragma: no cover - Windows only
    """The Windows way: a state of the UI thread that lasts until it is taken back."""
    import ctypes

    continuous, system_required = 0x80000000, 0x00000001
    kernel32 = ctypes.windll.kernel32  # type: ignore[attr-defined, unused-ignore]
    kernel32.SetThreadExecutionState(continuous | (system_required if awake else 0))


def _sleep_lock(reason: str) -> int | None:
    """The Linux way: a descriptor from logind that keeps sleep away while it is open; None without logind."""
    from PySide6.QtDBus import QDBusConnection, QDBusMessage, QDBusUnixFileDescriptor

    bus = QDBusConnection.systemBus()
    if not bus.isConnected():
        return None
    message = QDBusMessage.createMethodCall(
        "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "Inhibit"
    )
    message.setArguments(["sleep:idle", "Tunesmith", reason, "block"])
    answer = bus.call(message, timeout=_BUS_TIMEOUT_MS)
    values = answer.arguments()
    if answer.type() != QDBusMessage.MessageType.ReplyMessage or not isinstance(values[0], QDBusUnixFileDescriptor):
        return None
    return os.dup(values[0].fileDescriptor())
