"""Copies of an open file are saved one at a time, and what was typed meanwhile is not forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from tunesmith_core.errors import wrap
from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.kinds.data import SAVE_DATA, SaveDataSpec
from tunesmith_core.operations.kinds.rows import SAVE_ROWS, SAVE_TABLE
from tunesmith_core.spec import RunSpec
from tunesmith_gui.data.copy_name import JSON_LINES
from tunesmith_gui.data.open_file import OpenFile
from tunesmith_gui.data.rows import Changed, Rows
from tunesmith_gui.services.operation import OperationTask
from tunesmith_gui.tr import listed
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.which_rows import ask_which_rows

Answer = dict[str, Any]  # Any: JSON values


class Saving(QObject):
    """Saves what is open in a file as another one.

    Signals:
        told: (tone, text) one line for the person.
        failed: (TunesmithError).
        copy_asked: (Path) a copy is to be opened.
    """

    told = Signal(str, str)
    failed = Signal(object)
    copy_asked = Signal(object)

    def __init__(self, file: OpenFile) -> None:
        super().__init__(file)
        self._file = file
        self._task: OperationTask | None = None
        file.save_asked.connect(lambda path: self.save_rows(path, self.copy_asked.emit))

    @property
    def is_busy(self) -> bool:
        """Whether a copy is on its way."""
        return self._task is not None

    def save_then(self, done: Callable[[Path], object]) -> None:
        """Asks where to save the changes; `done` gets the copy once it is whole."""
        grid = self._file.grid
        if grid is None or not grid.rows.is_complete:
            self.told.emit("warn", self.tr("The file is still being read. Save when all rows are there."))
            return
        if not grid.pane.keep_typed():
            self._file.parts.set_value("rows")  # where it is said
            return
        path = grid.ask_where()
        if path is not None:
            self.save_rows(path, done)

    def save_rows(self, path: Path, done: Callable[[Path], object]) -> None:
        """Saves the rows with their changes; `done` gets the copy once it is whole.

        Rows that nobody has reviewed are asked about.
        """
        rows = self._file.rows
        if rows is None:
            return
        left_out = self._file.unreviewed()
        if len(left_out):
            note = self.tr("Only reviewed rows are saved as a file of their own. This file stays as it is.")
            answer = ask_which_rows(self._file.window(), len(left_out), len(rows) - len(rows.deleted), note)
            if answer == ConfirmDialog.DialogCode.Rejected:
                return
            left_out = left_out if answer == ConfirmDialog.DialogCode.Accepted else left_out[:0]
        saved = rows.state()

        def go_on(answer: Answer) -> None:
            if self._file.rows is not rows:
                return
            if not rows.is_as(saved):
                words = self.tr("Your latest changes are not in the copy. Save again to keep them.")
                self.told.emit("warn", words)
                return
            num_edited = sum(rows.is_edited(place) for place in rows.edits if place not in rows.deleted)
            num_read, num_deleted = len(rows), len(rows.deleted)
            rows.forget_changes()
            done(path)
            num_rows = answer["num_rows"]
            parts = (
                self.tr("%Ln row(s)", "", num_rows),
                self.tr("%Ln of them edited", "", num_edited) if num_edited else "",
                self.tr("%Ln deleted by hand", "", num_deleted) if num_deleted else "",
                self.tr("%Ln left out", "", num_read - num_rows - num_deleted) if len(left_out) else "",
            )
            self._file.tell_copy(path, listed(parts))

        try:
            spec = rows.save_spec(path, left_out)
        except OSError as error:
            self.failed.emit(wrap(error))
            return
        self._start(SAVE_ROWS if path.suffix.lower() == JSON_LINES else SAVE_TABLE, spec, go_on)

    def save_repaired(self, path: Path, spec: RunSpec, folder: str, actions: dict[str, str]) -> None:
        """Saves the rows that a spec names with what was chosen about each problem; the copy is offered then."""
        rows = self._file.rows
        if rows is None:
            return
        saved = rows.state()
        try:
            save = SaveDataSpec(spec, folder, AbsolutePath(str(path)), actions, rows.edited_rows())
        except OSError as error:
            self.failed.emit(wrap(error))
            return
        self._start(SAVE_DATA, save, lambda answer: self._offer_copy(path, rows, saved, answer))

    def _offer_copy(self, path: Path, rows: Rows, saved: Changed, answer: Answer) -> None:
        if self._file.rows is not rows:
            return
        rows.take_saved(saved)

        def open_it() -> None:
            if rows.is_as(saved):
                rows.forget_changes()
            self.copy_asked.emit(path)

        num_repaired, num_edited = answer["num_repaired_rows"], answer["num_edited_rows"]
        num_left_out, num_deleted = answer["num_left_out_rows"], answer["num_deleted_rows"]
        parts = (
            self.tr("%Ln row(s)", "", answer["num_read_rows"] - num_left_out),
            self.tr("%Ln of them edited", "", num_edited) if num_edited else "",
            self.tr("%Ln of them repaired", "", num_repaired) if num_repaired else "",
            self.tr("%Ln left out", "", num_left_out - num_deleted) if num_left_out > num_deleted else "",
            self.tr("%Ln deleted by hand", "", num_deleted) if num_deleted else "",
        )
        self._file.tell_copy(path, listed(parts), open_it)

    def _start(
        self,
        kind: Kind,
        spec: Any,  # Any: of the kind
        done: Callable[[Answer], object],
    ) -> None:
        if self._task is not None:
            self.told.emit("warn", self.tr("Another file is being saved. Wait until it is whole."))
            return
        self._task = OperationTask(kind, spec, parent=self)
        self._task.holds_page = True
        self._task.succeeded.connect(done)
        self._task.failed.connect(self.failed)
        self._task.ended.connect(lambda _outcome: self._forget())
        self._task.start()

    def _forget(self) -> None:
        self._task = None

