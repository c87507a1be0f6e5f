"""Locks between processes: an operating-system lock on a file, released by the system when its holder dies."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tunesmith_core import claims, files

logger = logging.getLogger(__name__)
_POLL_S = 0.02

if sys.platform == "win32":  # pragma: no cover
    import ctypes
    import msvcrt
    from ctypes import wintypes

    _FAIL_IMMEDIATELY, _EXCLUSIVE = 1, 2

    class _Overlapped(ctypes.Structure):
        _fields_ = (
            ("Internal", ctypes.c_size_t),
            ("InternalHigh", ctypes.c_size_t),
            ("Offset", wintypes.DWORD),
            ("OffsetHigh", wintypes.DWORD),
            ("hEvent", wintypes.HANDLE),
        )

    def _lock(descriptor: int, flags: int = _FAIL_IMMEDIATELY | _EXCLUSIVE) -> None:
        # Not msvcrt.locking, which knows no shared lock.
        kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
        handle = wintypes.HANDLE(msvcrt.get_osfhandle(descriptor))
        if not kernel32.LockFileEx(handle, flags, 0, 1, 0, ctypes.byref(_Overlapped())):
            raise ctypes.WinError(ctypes.get_last_error())

    def _probe(descriptor: int) -> None:
        _lock(descriptor, _FAIL_IMMEDIATELY)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _probe(descriptor: int) -> None:
        # Shared, so that two processes that only look do not take each other for a holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


class FileLock:
    """A lock that one process holds at a time; also a context manager that waits for nobody.

    Attributes:
        path: the lock file. It is never deleted: deleting would let two processes lock two files of one name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._claimed = False

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None or self._claimed

    def acquire(self) -> bool:
        """Take the lock if nobody holds it; return whether it is held now."""
        if self.held:
            return True
        files.private_folder(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            self._claimed = error.errno in claims.WITHOUT_LOCKS and claims.take(self.path)
            if self._claimed:
                logger.warning("%s: this drive knows no locks; a file stands for one", self.path)
            return self._claimed
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back; no effect when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._claimed:
            claims.drop(self.path)
            self._claimed = False

    @contextmanager
    def waiting(self, patience_s: float) -> Iterator[None]:
        """Hold the lock when its present holder is done. Raises TimeoutError when that one keeps it for too long."""
        deadline = time.monotonic() + patience_s
        while not self.acquire():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path} is locked by another process")
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            self.release()

    def __enter__(self) -> Self:
        if not self.acquire():
            raise BlockingIOError(f"{self.path} is locked by another process")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock on a file."""
    try:
        # Not for writing: a run of another person, or on a read-only disk, is looked at like any other.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        _probe(descriptor)
    except OSError as error:
        return error.errno not in claims.WITHOUT_LOCKS or claims.is_taken(path)
    finally:
        os.close(descriptor)
    return False
