"""Limits for work on what others made: chat templates, tokenizers and data files may need any time and any memory.

The child says in a small file which portion of its work it begins. Whoever conducts it looks at the processor time that
the child has used since then and ends it when that is too much: wall time would fail good rows on a busy computer. What
memory it may use the system enforces: on Linux the child limits itself, on Windows its job does.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tunesmith_core import memory_limits
from tunesmith_core.datafmt.encoding import row_place
from tunesmith_core.datafmt.reading import KIND_OF_SUFFIX, READ_BY_ENGINE
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.process_identity import cpu_seconds

GIB = 1 << 30

WALL_FACTOR = 30.0
"""A portion may take this many times its processor time by the clock: a child that waits for ever ends too."""

WORK = {
    "tokenizer-loading": Message("loading the tokenizer"),
    "reader": Message("reading the next row"),
    "template": Message("the chat template"),
    "tokenizer": Message("the tokenizer"),
    "prompt": Message("the chat template of a sample prompt"),
    "pattern": Message("the pattern"),
    "reward": Message("your reward"),
}
"""What a portion may be, as it is told."""

NAMES = tuple(WORK)
KINDS = ("", *dict.fromkeys(KIND_OF_SUFFIX.values()), *sorted(READ_BY_ENGINE.difference(KIND_OF_SUFFIX.values())))

_RECORD = struct.Struct("<QdQQBBH")
MAX_PATH_BYTES = 4096
FILE_BYTES = _RECORD.size + MAX_PATH_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an operation may use for work on what others made.

    Attributes:
        cpu_s: processor time of a portion of usual size.
        memory_bytes: memory beyond what the child had when its portions began.
        loading_cpu_s, loading_memory_bytes: the same while a tokenizer is loaded.
    """

    cpu_s: float = 2.0
    memory_bytes: int = GIB
    loading_cpu_s: float = 20.0
    loading_memory_bytes: int = 2 * GIB


@dataclass(frozen=True, slots=True)
class Portion:
    """A portion of work, as its child announced it.

    Attributes:
        number: of the portion, from 1.
        cpu_s: processor time that it may take.
        work: a key of WORK.
        path: the file or folder that it is about.
        kind: of the file, "" where it is none of rows.
        row: from 1; 0 where it is about the whole.
        last_row: the same, or the last of several.
    """

    number: int
    cpu_s: float
    work: str
    path: str
    kind: str
    row: int
    last_row: int

    def over_time(self) -> TunesmithError:
        """Return the error of a portion that took too long."""
        return self._error(Message("took longer than {seconds:,.0f} s", seconds=self.cpu_s))

    def over_memory(self) -> TunesmithError:
        """Return the error of a portion that needed too much memory."""
        return self._error(Message("needed too much memory"))

    def over_output(self, limit: int) -> TunesmithError:
        """Return the error of a portion that wrote too many characters."""
        return self._error(Message("wrote more than {limit:,} characters", limit=limit))

    def crashed(self, code: int, output: str) -> TunesmithError:
        """Return the error of a portion during which the process ended."""
        if memory_limits.speaks_of_memory(output):
            return self.over_memory().with_context(output)
        return self._error(Message("ended its process with exit code {code}", code=code)).with_context(output)

    def _error(self, what: Message) -> TunesmithError:
        return TunesmithError(
            "foreign-limit", "{place}: {work} {what}.", place=self._place(), work=WORK[self.work], what=what
        )

    def _place(self) -> str:
        if self.last_row > self.row:
            return Message("{path}, rows {first} to {last}", path=self.path, first=self.row, last=self.last_row)
        return row_place(Path(self.path), self.kind, self.row) if self.row else self.path


class Portions:
    """Says which portion of foreign work this process does; a context manager that names what ran out of memory.

    Args:
        path: the file in which it is said; None tells nobody and limits nothing.
        limits: of the operation.

    Attributes:
        limits: as given.
        row: the one being handled, from 1.
    """

    def __init__(self, path: Path | None = None, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._map: mmap.mmap | None = None
        self._number, self._cpu_s, self._work = 0, 0.0, NAMES[0]
        self._path, self._kind, self.row, self._last_row = b"", "", 0, 0
        if path is not None:
            path.write_bytes(bytes(FILE_BYTES))
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), FILE_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_short = isinstance(error, MemoryError) or memory_limits.speaks_of_memory(str(error))
        # Under a limit that this computer sets, that one is named, see `memory_limits`.
        if is_short and not any(memory_limits.of_process()):
            raise self.now.over_memory() from error
        # A library that panics ends the process; who conducts it names the portion then.
        if error is None or isinstance(error, Exception | KeyboardInterrupt):
            self.end()

    @property
    def now(self) -> Portion:
        """The portion that goes on."""
        path = self._path.decode("utf-8", "ignore")
        return Portion(self._number, self._cpu_s, self._work, path, self._kind, self.row, self._last_row)

    def about(self, path: Path, kind: str = "") -> None:
        """Say which file or folder the next portions are about, and of which kind it is."""
        self._path, self._kind = str(path).encode("utf-8", "replace")[:MAX_PATH_BYTES], kind
        self.row = self._last_row = 0
        if self._map is not None:
            self._map[_RECORD.size : _RECORD.size + len(self._path)] = self._path

    def begin(self, work: str, row: int | None = None, *, last_row: int = 0, more_cpu_s: float = 0.0) -> None:
        """Say that a portion begins.

        Args:
            work: a key of WORK.
            row: what it is about, from 1; the row of the portion before when None.
            last_row: the last one where it is about several.
            more_cpu_s: processor time that it may take beyond the usual limit.
        """
        usual_s = self.limits.loading_cpu_s if work == NAMES[0] else self.limits.cpu_s
        self._number, self._cpu_s, self._work = self._number + 1, usual_s + more_cpu_s, work
        if row is not None:
            self.row = row
        self._last_row = last_row
        self._write(NAMES.index(work) + 1)

    def end(self) -> None:
        """Say that nothing foreign goes on."""
        self._write(0)

    def _write(self, work: int) -> None:
        if self._map is not None:
            place = (self.row, self._last_row, work, KINDS.index(self._kind), len(self._path))
            _RECORD.pack_into(self._map, 0, self._number, self._cpu_s, *place)

    def limit_memory(self, num_bytes: int) -> None:
        """Let this process use so much memory beyond what it has now; only where somebody is told."""
        if self._map is not None:
            limit_own_memory(num_bytes)


class Watch:
    """Looks after the portions of a child.

    Args:
        path: the file in which the child says what it does.
        pid: the child.

    Attributes:
        late: the portion that took too long, with the time that it took at least; or None.
    """

    def __init__(self, path: Path, pid: int) -> None:
        self.late: Portion | None = None
        self._path, self._pid = path, pid
        self._number = -1
        self._since_cpu_s = self._since_s = 0.0

    def is_over(self) -> bool:
        """Look at the child; return whether it must be ended."""
        portion, cpu_s, now_s = self.portion(), cpu_seconds(self._pid), time.monotonic()
        if portion is None or cpu_s is None:
            self._number = -1
            return False
        if portion.number != self._number:
            self._number, self._since_cpu_s, self._since_s = portion.number, cpu_s, now_s
        elif cpu_s - self._since_cpu_s > portion.cpu_s:
            self.late = portion
        elif now_s - self._since_s > (wall_s := WALL_FACTOR * portion.cpu_s):
            # It only waits, so far longer by the clock than it may compute.
            self.late = replace(portion, cpu_s=wall_s)
        return self.late is not None

    def portion(self) -> Portion | None:
        """Return what the child says that it does; None where that is nothing foreign."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return None
        if len(data) != FILE_BYTES:
            return None
        number, cpu_s, row, last_row, work, kind, length = _RECORD.unpack_from(data)
        if not work:
            return None
        path = data[_RECORD.size : _RECORD.size + length].decode("utf-8", "ignore")
        return Portion(number, cpu_s, NAMES[work - 1], path, KINDS[kind], row, last_row)


if sys.platform == "win32":  # pragma: no cover

    def limit_own_memory(num_bytes: int) -> None:
        """Do nothing: the job of the child limits it, see `windows_job`."""

else:
    import resource

    def limit_own_memory(num_bytes: int) -> None:
        """Let this process use so much memory beyond what it has now.

        What is written to counts, not addresses that are only reserved: with many cores, allocators reserve gigabytes
        of those.
        """
        has_bytes = 0
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
                if line.startswith("VmData:"):
                    has_bytes = int(line.split()[1]) * 1024
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = has_bytes + num_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))
