"""A disk that refuses some calls of this process: the k-th that writes below a folder, and the ones that follow."""

from __future__ import annotations

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass
class FaultyDisk:
    """Refuses what writes below `root`.

    Attributes:
        first: number of the first call that is refused, 0 for none; calls of other threads don't count.
        count: how many of them are refused before space returns.
        number: the errno.
        torn: whether the first refused call takes half of what is written, where it writes.
        calls: what was asked so far, in order.
        num_refused: how many of them were refused.
    """

    root: Path
    first: int = 0
    count: int = 1
    number: int = errno.ENOSPC
    torn: bool = False
    calls: list[str] = field(default_factory=list)
    num_refused: int = 0

    def __post_init__(self) -> None:
        self._thread = threading.get_ident()

    def holds(self, path: Any, dir_fd: int | None = None) -> bool:
        """Return whether a path lies below the root."""
        if isinstance(path, int):
            return self.holds(Path(f"/proc/self/fd/{path}").readlink())
        if dir_fd is not None:
            return self.holds(Path(f"/proc/self/fd/{dir_fd}").readlink() / os.fsdecode(path))
        return Path(os.fsdecode(path)).is_relative_to(self.root)

    def refuses(self, call: str) -> bool:
        """Count a call and return whether it is refused."""
        if threading.get_ident() == self._thread:
            self.calls.append(call)
        refused = bool(self.first) and self.first <= len(self.calls) < self.first + self.count
        self.num_refused += refused
        return refused

    def fail(self, path: Any) -> OSError:
        """Return the error of a refused call."""
        return OSError(self.number, os.strerror(self.number), str(path))

    def check(self, call: str, path: Any, dir_fd: int | None = None) -> None:
        """Raise the error of a call that is refused."""
        if self.holds(path, dir_fd) and self.refuses(call):
            raise self.fail(path)


class _File:
    """An open file whose writes may be refused."""

    def __init__(self, file: Any, disk: FaultyDisk) -> None:
        self._file, self._disk = file, disk

    def write(self, content: Any) -> int:
        disk = self._disk
        if not disk.refuses("write"):
            return int(self._file.write(content))
        raw = isinstance(self._file, io.RawIOBase)
        if disk.torn and raw and len(disk.calls) == disk.first and len(content) > 1:
            return int(self._file.write(content[: len(content) // 2]))
        raise disk.fail(self._file.name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def install(disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the disk between this process and the system until the patches are undone."""
    plain_open = io.open

    def open_file(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        writes = not isinstance(path, int) and set(mode) & set("wax+") and disk.holds(path)
        if writes and options.get("opener") is None:
            disk.check("open", path)
        file = plain_open(path, mode, *arguments, **options)
        return _File(file, disk) if writes else file

    def opened(path: Any, flags: int, *arguments: Any, dir_fd: int | None = None, **options: Any) -> int:
        if flags & _WRITES:
            disk.check("open", path, dir_fd)
        return plain_os_open(path, flags, *arguments, dir_fd=dir_fd, **options)

    plain_os_open = os.open
    monkeypatch.setattr(io, "open", open_file)
    monkeypatch.setattr(builtins, "open", open_file)
    monkeypatch.setattr(os, "open", opened)
    for name in ("mkdir", "rename", "replace", "unlink", "rmdir", "utime", "fsync"):
        monkeypatch.setattr(os, name, _checked(disk, name))


def _checked(disk: FaultyDisk, name: str) -> Callable[..., Any]:
    plain = getattr(os, name)

    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        disk.check(name, path, options.get("dir_fd"))
        return plain(path, *arguments, **options)

    return call
