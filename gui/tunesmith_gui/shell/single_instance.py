"""One window per person and data root: a second start hands its files to the first window and ends.

Who is first is decided by a lock file, which the system releases even after a crash; the local socket only carries the
message. It is a Unix socket or a Windows pipe that no other user can open, never a network port.
"""

from __future__ import annotations

import hashlib
import json
import os
import time

from PySide6.QtCore import QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from tunesmith_core import paths
from tunesmith_core.locks import FileLock

CONNECT_S = 5.0
_STEP_MS = 200
_MAX_MESSAGE_BYTES = 1 << 20


def server_name() -> str:
    """The socket's name, one per data root."""
    digest = hashlib.sha256(str(paths.data_root()).encode()).hexdigest()[:16]
    name = f"tunesmith-{digest}"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return f"{runtime}/{name}" if runtime and os.path.isdir(runtime) else name  # noqa: PTH112 - a socket name


class SingleInstance(QObject):
    """Claims the place of the first window, or reaches the one that has it.

    Signals:
        raised: (list of str) another start happened; the files it was given, absolute.
    """

    raised = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = FileLock(paths.locks_dir() / "window.lock")
        self._server: QLocalServer | None = None

    def claim(self) -> bool:
        """Becomes the first window; False when there is one already."""
        if paths.read_only_problem():
            return True  # nothing can be written there, so any number of windows may look
        if not self._lock.acquire():
            return False
        QLocalServer.removeServer(server_name())  # left over from a window that was killed
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._accept)
        self._server.listen(server_name())
        return True

    def release(self) -> None:
        """Gives the place up."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._lock.release()

    def _accept(self) -> None:
        assert self._server is not None
        while (connection := self._server.nextPendingConnection()) is not None:
            connection.readyRead.connect(lambda connection=connection: self._read(connection))
            connection.disconnected.connect(connection.deleteLater)
            if connection.bytesAvailable():
                self._read(connection)

    def _read(self, connection: QLocalSocket) -> None:
        if connection.bytesAvailable() > _MAX_MESSAGE_BYTES:
            connection.abort()
            return
        if not connection.canReadLine():
            return
        try:
            message = json.loads(bytes(connection.readLine().data()))
            files = [str(each) for each in message["files"]]
            token = str(message["token"])
        except (ValueError, KeyError, TypeError):
            connection.abort()
            return
        if token:
            os.environ["XDG_ACTIVATION_TOKEN"] = token  # Wayland lets a window come forward only with it
        connection.write(b"ok\n")
        connection.flush()
        self.raised.emit(files)


def hand_over(files: list[str]) -> bool:
    """Gives files (absolute paths) to the first window and asks it to come forward; False when it does not answer."""
    message = {"files": files, "token": os.environ.get("XDG_ACTIVATION_TOKEN", "")}
    deadline = time.monotonic() + CONNECT_S
    while time.monotonic() < deadline:
        socket = QLocalSocket()
        socket.connectToServer(server_name())
        if socket.waitForConnected(_STEP_MS):
            socket.write(json.dumps(message).encode() + b"\n")
            socket.waitForBytesWritten(_STEP_MS)
            if socket.bytesAvailable() or socket.waitForReadyRead(round(CONNECT_S * 1000)):
                return True
        socket.abort()
        time.sleep(_STEP_MS / 1000)
    return False
