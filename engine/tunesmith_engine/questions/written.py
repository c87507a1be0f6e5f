"""The file of questions while it grows: rows told of are on the disk, and a note beside says how far it is."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.operations.kinds.questions import note_path
from tunesmith_engine.questions.reply import Pair

VERSION = 1


class Written:
    """Rows of a JSONL file; a context manager.

    The note beside the file holds how many bytes of it are whole. A crash between both costs no row: what stands
    behind them is written again.

    Args:
        target: the file.
        key: of everything that decides what is written.
        total: how many passages there are.
        overwrite: whether a file that is there is replaced.

    Attributes:
        next: number of the passage that comes next.
        counts: what became of the passages so far.

    Raises:
        UserError: `usage` for a file that is there and no unfinished one of the same key.
    """

    def __init__(self, target: Path, key: str, total: int, *, overwrite: bool) -> None:
        self.target, self.next = target, 0
        self.counts: dict[str, int] = {"rows": 0, "empty": 0, "duplicates": 0, "unread": 0, "silent": 0}
        self._key, self._total, self._note = key, total, note_path(target)
        self._questions: set[str] = set()
        num_bytes = 0
        if not overwrite and target.exists():
            note = _read_note(self._note)
            if not note or note["key"] != key or target.stat().st_size < note["bytes"]:
                raise _is_there(target, was_begun=bool(note))
            self.next, num_bytes = note["next"], note["bytes"]
            self.counts |= note["counts"]
        # Before the file is made, so that a crash leaves none that nobody continues.
        self._keep_note(num_bytes)
        self._file: BinaryIO = target.open("r+b" if num_bytes else "w+b")
        self._file.truncate(num_bytes)
        self._questions.update(Pair(str(json.loads(line).get("question", "")), "").key for line in self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def is_new(self, pair: Pair) -> bool:
        """Return whether a question was not asked before, and remember it."""
        is_new = pair.key not in self._questions
        self._questions.add(pair.key)
        return is_new

    def add(self, rows: Sequence[dict[str, Any]], num_passages: int) -> None:  # Any: JSON values
        """Write the rows of the next passages."""
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        self._file.write(lines.encode("utf-8", "replace"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.next += num_passages
        self.counts["rows"] += len(rows)
        self._keep_note(self._file.tell())

    def finish(self) -> None:
        """Remove the note: the file is whole."""
        self._file.close()
        self._note.unlink(missing_ok=True)

    def _keep_note(self, num_bytes: int) -> None:
        note = {
            "version": VERSION,
            "key": self._key,
            "next": self.next,
            "total": self._total,
            "bytes": num_bytes,
            "counts": self.counts,
        }
        files.atomic_write_json(self._note, note)


def _read_note(path: Path) -> dict[str, Any]:  # Any: JSON values
    """Return what a note says, nothing where there is none or another version wrote it."""
    with contextlib.suppress(OSError, ValueError):
        note = files.read_json(path)
        if isinstance(note, dict) and note.get("version") == VERSION:
            return note
    return {}


def _is_there(target: Path, *, was_begun: bool) -> TunesmithError:
    if was_begun:
        return TunesmithError(
            "usage",
            "{path} was begun with other documents or settings.",
            hint=Message("Continue with the same documents and settings, or choose another name."),
            path=target,
        )
    return TunesmithError(
        "usage",
        "{path} already exists.",
        hint=Message("Choose another name, or replace the file."),
        path=target,
    )
