"""The rows of an open file as far as they are read, with what a person has changed; the file itself never changes."""

from __future__ import annotations

import contextlib
import shutil
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QObject, Signal

from tunesmith_core.data_library import REVIEWED, SYNTHETIC
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.datafmt.reading import READ_BY_ENGINE
from tunesmith_core.datafmt.row_index import RowIndex, holds, read_line
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, said
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.rows import COPY_ROWS, INDEX_ROWS, EditedRows, IndexSpec, SaveRowsSpec, new_folder
from tunesmith_core.protocol import Event
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.background import Job
from tunesmith_gui.data.place_set import Places, PlaceSet, places_of
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.widgets.row_words import number_words

MOST_SHOWN_BYTES = 64 * 1024
"""Of a row in the table; reading a longer one would take too long for a picture."""
MOST_EDITED_BYTES = 128 * 1024
"""Of a row that is edited; a text box takes too long for a longer one."""
NUM_CACHED = 1024


def is_made(row: Row | None) -> bool:
    """Whether a model wrote a row."""
    return row is not None and row.get(SYNTHETIC) is True


def is_kept(row: Row | None) -> bool:
    """Whether a person has looked at a row that a model wrote, and kept it."""
    return row is not None and is_made(row) and row.get(REVIEWED) is True


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row as the table shows it.

    Attributes:
        values: its columns; None where it can't be read or is too long.
        text: its line, or the beginning of a long one, where there are no values.
        is_long: whether it is too long to be shown whole.
    """

    values: Row | None
    text: str = ""
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class _Change:
    """What brings rows back as they were before a change.

    Attributes:
        edits: of rows that were edited before, None where they were not.
        deleted: rows that the change deleted.
        restored: rows that it brought back.
    """

    edits: dict[int, Row | None]
    deleted: Places = range(0)
    restored: Places = range(0)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a person has changed, with what takes it back."""

    edits: dict[int, Row]
    deleted: PlaceSet
    undo: list[_Change]
    saved: Changed | None = None


Changed = tuple[dict[int, Row], PlaceSet]
"""What was edited, and what was deleted."""


class Rows(QObject):
    """Rows by their places, from 0.

    Signals:
        grew: more rows can be shown.
        read: all of them can.
        failed: (TunesmithError) reading ended; rows before that can be shown.
        changed: (list of places) a person changed rows, or took that back; the places are those with other values.
    """

    grew = Signal()
    read = Signal()
    failed = Signal(object)
    changed = Signal(object)

    def __init__(self, source: SourceSpec, kind: str, parent: QObject) -> None:
        super().__init__(parent)
        self.edits: dict[int, Row] = {}
        self.deleted = PlaceSet()
        self.share: float | None = None
        self.is_complete = self.is_broken = False
        self.folder: Path | None = None
        self._source, self.kind = source, kind
        self._index: RowIndex | None = None
        self._cache: OrderedDict[int, ShownRow] = OrderedDict()
        self._undo: list[_Change] = []
        self._saved: Changed | None = None
        self._told: dict[int, tuple[bool, bool]] = {}  # of edits
        self._numbers = count(1)
        self._task: OperationTask | None = None
        self._remove: Callable[[], None] = lambda: None  # the folder
        Job.start(self, new_folder, self._begin, self.failed.emit)

    def __len__(self) -> int:
        return len(self._index) if self._index else 0

    @property
    def num_rows(self) -> int | None:
        """How many can be read; None while that is not known."""
        return len(self) if self.is_complete or self.is_broken else None

    def close(self) -> None:
        """Ends the reading and removes what was made for it."""
        if self._task is not None:
            self._task.cancel()
        if self._index is not None:
            self._index.close()
            self._index = None
        if self.folder is not None:
            # It may hold gigabytes, and the window has something else to show by now. A thread, which the program waits
            # for when it ends.
            self.destroyed.disconnect(self._remove)
            threading.Thread(target=self._remove, name="remove rows").start()
            self.folder = None

    def _begin(self, folder: Path) -> None:
        self.folder, self._remove = folder, lambda: shutil.rmtree(folder, ignore_errors=True)
        # At once: where nobody has closed them, the program is closing.
        self.destroyed.connect(self._remove)
        kind = COPY_ROWS if self.kind in READ_BY_ENGINE else INDEX_ROWS
        spec = IndexSpec(self._source, AbsolutePath(str(folder)))
        self._task = OperationTask(kind, spec, parent=self)
        self._task.happened.connect(self._follow)
        self._task.succeeded.connect(self._end)
        self._task.failed.connect(self._fail)
        self._task.start()

    def _follow(self, event: Event) -> None:
        if event.type == "progress" and self.folder is not None:
            assert self._task is not None
            self.share = self._task.status.share
            self._look()

    def _look(self) -> None:
        assert self.folder is not None
        if self._index is None:
            self._index = RowIndex(self.folder)
        else:
            self._index.refresh()
        self.grew.emit()

    def _end(self, _answer: object) -> None:
        self._task = None
        self.is_complete = True
        self._look()
        self.read.emit()

    def _fail(self, error: TunesmithError) -> None:
        self._task, self.is_broken = None, True
        with contextlib.suppress(OSError):  # nothing was read
            self._look()
        self.failed.emit(error)

    # Looking

    def number(self, place: int) -> int:
        """The number of a row in its file, from 1; 0 once the file is closed."""
        return self._index.number(place) if self._index else 0

    def words(self, place: int) -> str:
        """Which row it is: its line, page or number."""
        return number_words(self.kind, self.number(place))

    def place_of(self, file: str, line: int, row: Row | None = None) -> int | None:
        """The place of the row with this line or number in a file, None where there is none.

        Of several pieces of a page it is that of the row which is given, if it is among them.
        """
        places = self._index.places_of(file, line) if self._index else range(0)
        if len(places) < 2 or row is None:
            return places[0] if places else None
        return next((place for place in places if self.shown(place).values == row), places[0])

    def shown(self, place: int) -> ShownRow:
        """A row as it is shown: as it was changed, if it was."""
        if place in self.edits:
            return ShownRow(self.edits[place])
        if place not in self._cache:
            self._cache[place] = self._read(place, MOST_SHOWN_BYTES)
            if len(self._cache) > NUM_CACHED:
                self._cache.popitem(last=False)
        return self._cache[place]

    def whole(self, place: int) -> ShownRow:
        """A row to edit, whole unless it is too long for that."""
        row = self.shown(place)
        return self._read(place, MOST_EDITED_BYTES) if row.is_long else row

    def _read(self, place: int, most_bytes: int) -> ShownRow:
        if self._index is None:
            return ShownRow(None)
        if self._index.num_bytes(place) > most_bytes:
            return ShownRow(None, self._index.raw(place, most_bytes // 16).decode("utf-8", "replace"), is_long=True)
        row = read_line(self._index.raw(place))
        if isinstance(row, dict):
            return ShownRow(row)
        # A line that is no row is foreign text, which nobody has translated.
        words = said(row) if isinstance(row, Message) else row
        # Why it can't be read begins with the file, which everybody sees is open.
        return ShownRow(None, words.removeprefix(self._source.path).lstrip(",， "))

    def columns(self, known: Iterable[str] = ()) -> list[str]:
        """The names of the columns: those that are known, and those of the first rows."""
        names = dict.fromkeys(known)
        for place in range(min(len(self), 50)):
            names |= dict.fromkeys(self.shown(place).values or ())
        return list(names)

    # Changing

    @property
    def has_changes(self) -> bool:
        """Whether rows were edited or deleted; this file has nothing of that."""
        return bool(self.edits or self.deleted)

    @property
    def has_unsaved(self) -> bool:
        """Whether any of that is in no copy either."""
        return self.has_changes and not (self._saved and self.is_as(self._saved))

    def state(self) -> Changed:
        """What is edited and deleted now."""
        return dict(self.edits), self.deleted.copy()

    def is_as(self, changed: Changed) -> bool:
        """Whether nothing was changed since."""
        edits, deleted = changed
        return edits == self.edits and deleted.same_as(self.deleted)

    def take_saved(self, changed: Changed) -> None:
        """A copy has these changes; this file does not."""
        self._saved = changed

    def changes(self) -> Changes:
        """The changes, for the rows of the same file in another window."""
        return Changes(self.edits, self.deleted, self._undo, self._saved)

    def take_changes(self, changes: Changes) -> None:
        """Starts with changes that were made before the file was opened again."""
        self.edits, self.deleted, self._undo = changes.edits, changes.deleted, changes.undo
        self._saved = changes.saved

    def forget_changes(self) -> None:
        """Drops the changes, which are in a file now."""
        places = list(self.edits)
        self.edits, self.deleted, self._undo, self._told = {}, PlaceSet(), [], {}
        self.changed.emit(places)

    def is_edited(self, place: int) -> bool:
        """Whether a row says something else than in the file; keeping it is no edit."""
        return place in self.edits and self._tell(place)[0]

    def num_edited(self) -> int:
        """How many say something else than in the file."""
        return sum(self._tell(place)[0] for place in self.edits)

    def num_kept(self) -> int:
        """How many a person has kept since the file was opened."""
        return sum(self._tell(place)[1] for place in self.edits)

    def _tell(self, place: int) -> tuple[bool, bool]:
        """Whether a changed row was edited, and whether it was kept."""
        if place not in self._told:
            before, now = self._read(place, MOST_EDITED_BYTES).values or {}, self.edits[place]
            kept = is_kept(now) and not is_kept(before)
            self._told[place] = not kept or before | {REVIEWED: True} != now, kept
        return self._told[place]

    @property
    def can_undo(self) -> bool:
        """Whether anything was changed."""
        return bool(self._undo)

    def edit(self, place: int, row: Row) -> None:
        """Puts another row in the place of one; one that was deleted is back."""
        restored = self.deleted.remove(places_of([place]))
        self._undo.append(_Change({place: self.edits.get(place)}, restored=restored))
        self.edits[place] = row
        self._told.pop(place, None)
        self.changed.emit([place])

    def restore(self, places: Iterable[int]) -> None:
        """Brings rows back that were deleted."""
        self._undo.append(_Change({}, restored=self.deleted.remove(places_of(places))))
        self.changed.emit([])

    def delete(self, places: Iterable[int]) -> None:
        """Leaves rows out of what is saved."""
        self._undo.append(_Change({}, deleted=self.deleted.add(places_of(places))))
        self.changed.emit([])

    def undo(self) -> None:
        """Takes the last change back."""
        change = self._undo.pop()
        for place, edit in change.edits.items():
            self.edits.pop(place, None)
            self._told.pop(place, None)
            if edit is not None:
                self.edits[place] = edit
        self.deleted.remove(change.deleted)
        self.deleted.add(change.restored)
        self.changed.emit(list(change.edits))

    def save_spec(self, target: Path, left_out: NDArray[np.int64]) -> SaveRowsSpec:
        """What saves the rows with their changes as another file, some left out. Raises OSError."""
        return SaveRowsSpec(AbsolutePath(str(target)), self._edited(np.union1d(self.deleted.places(), left_out)))

    def edited_rows(self) -> EditedRows:
        """The changes as operations on data take them. Raises OSError."""
        return self._edited(self.deleted.places())

    def _edited(self, deleted: NDArray[np.int64]) -> EditedRows:
        assert self.folder is not None
        return EditedRows(self._edits_by_place(), AbsolutePath(str(self.folder)), self._written(deleted))

    def _edits_by_place(self) -> dict[str, Row]:
        """As JSON has them."""
        return {str(place): row for place, row in self.edits.items()}

    def _written(self, places: NDArray[np.int64]) -> AbsolutePath:
        """Write places into a file: a million take a second as JSON."""
        assert self.folder is not None
        path = self.folder / f"deleted-{next(self._numbers)}"
        path.write_bytes(places.astype("<u8").tobytes())
        return AbsolutePath(str(path))

    def corrected(self, found: array[int], text: str) -> array[int]:
        """The places that were found in the file, with what was changed since taken into account."""
        wanted = text.casefold()
        for place, row in self.edits.items():
            at = bisect_left(found, place)
            is_there = at < len(found) and found[at] == place
            if is_there and not holds(row, wanted):
                del found[at]
            elif not is_there and holds(row, wanted):
                found.insert(at, place)
        return found
