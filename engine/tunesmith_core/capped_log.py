"""A log file that can't fill the disk: its head and its tail are kept, the middle is counted and left out.

The head says how a process started, the tail says how it ended; a flood lies between.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tunesmith_core import files
from tunesmith_core.redact import redact

LOG_CAP_BYTES = 8 << 20
MAX_LINE_BYTES = 1 << 16
STARTED_AGAIN = "[... started again ...]"
"""Line between what two processes printed into one log, such as before and after a run was resumed."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Return printed text as plain lines: no terminal escapes, no control characters, no secrets.

    Of a line that was drawn over with carriage returns (a progress bar) the last state stays.
    """
    text = _CONTROLS.sub("", _ESCAPES.sub("", text).replace("\r\n", "\n"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return redact("\n".join(lines))


class CappedLog:
    """Writes cleaned lines to a file of at most `cap_bytes` plus one block.

    Attributes:
        num_dropped_bytes: what was left out between head and tail.
    """

    def __init__(self, path: Path, cap_bytes: int = LOG_CAP_BYTES) -> None:
        self.path = path
        self.num_dropped_bytes = 0
        self._cap_bytes = cap_bytes
        self._head_bytes = cap_bytes // 2
        self._tail_bytes = cap_bytes // 4
        self._pending = b""
        self._gap_bytes = 0
        self._file = files.open_file(path, "a+b")
        if self._file.tell():
            self._file.write(f"\n{STARTED_AGAIN}\n".encode())

    def write(self, block: bytes) -> None:
        """Add output as it came from a pipe; the last, unfinished line waits for its rest."""
        self._pending += block
        end = self._pending.rfind(b"\n") + 1
        if not end and len(self._pending) < MAX_LINE_BYTES:
            return
        end = end or len(self._pending)
        lines, self._pending = self._pending[:end], self._pending[end:]
        self._append(clean(lines.decode("utf-8", "replace")).encode("utf-8", "replace"))

    def _append(self, lines: bytes) -> None:
        self._file.write(lines)
        if self._file.tell() > self._cap_bytes:
            self._drop_middle()
        self._file.flush()

    def _drop_middle(self) -> None:
        size = self._file.tell()
        self._file.seek(size - self._tail_bytes)
        tail = self._file.read()
        tail = tail[tail.find(b"\n") + 1 :]
        # The mark of an earlier drop lies in the middle too and is dropped with it.
        self.num_dropped_bytes += size - self._head_bytes - len(tail) - self._gap_bytes
        mark = f"\n[... {self.num_dropped_bytes} bytes left out ...]\n".encode()
        self._gap_bytes = len(mark)
        self._file.truncate(self._head_bytes)
        self._file.write(mark + tail)

    def close(self) -> None:
        """Write what is pending and close the file."""
        if self._pending:
            self._append(clean(self._pending.decode("utf-8", "replace")).encode("utf-8", "replace"))
            self._pending = b""
        self._file.close()


def copy_pipe(pipe: BinaryIO, log: CappedLog, on_error: Callable[[OSError], None]) -> None:
    """Read a pipe to its end into a log; what can't be written is left out, so that the writer never blocks."""
    broken = False
    while block := pipe.read1(MAX_LINE_BYTES):  # type: ignore[attr-defined]  # a buffered reader has it
        try:
            log.write(block)
        except OSError as error:
            if not broken:
                on_error(error)
            broken = True
        else:
            broken = False


def tail_of(path: Path, num_lines: int = 40, max_bytes: int = 1 << 14) -> str:
    """Return the last lines of a text file, "" when it can't be read."""
    try:
        with files.open_file(path) as file:
            file.seek(max(0, file.seek(0, 2) - max_bytes))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-num_lines:])
