"""The question before runs are deleted, with a question of its own about their files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from PySide6.QtWidgets import QDialog, QHBoxLayout, QRadioButton, QVBoxLayout, QWidget

from tunesmith_core import trash
from tunesmith_core.runs import Run
from tunesmith_gui import tr
from tunesmith_gui.models.run_row import RunContents, RunRow, when
from tunesmith_gui.plain_text import line
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel

_MAX_NAMED = 5
_NAME_LETTERS = 100


def move_to_trash(run: Run) -> None:
    """Move a run's folder to the trash, even one whose header is damaged: the person has seen its path.

    Raises:
        TunesmithError: see `trash.delete`.
    """
    trash.delete(run, force=True)


def bring_back(folders: Iterable[Path]) -> None:
    """Restore what was deleted last from some places; what is no longer in the trash stays away.

    Raises:
        TunesmithError: see `trash.restore`.
    """
    for folder in folders:
        if deleted := trash.holding(folder.absolute()):
            trash.restore(deleted)


def erase(run: Run) -> None:
    """Delete a run's folder for good; what a broken-off deletion leaves lies in the trash.

    Raises:
        TunesmithError: see `trash.delete`.
    """
    trash.erase(trash.delete(run, force=True))


class DeleteRunDialog(QDialog):
    """Trash (default) or delete for good.

    Args:
        rows: the runs.
        contents: what is in their folders.

    Attributes:
        remove: what to do with each run after the dialog was accepted.
    """

    def __init__(self, rows: list[RunRow], contents: RunContents, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.remove = move_to_trash
        self.setWindowTitle(self.tr("Delete runs?"))
        self.setMinimumWidth(SPACE * 60)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        column.setSpacing(SPACE * 2)
        column.addWidget(SafeLabel(self.tr("Delete %n run(s)?", "", len(rows)), role="heading", parent=self))
        names = [self._named(row) for row in rows[:_MAX_NAMED]]
        if len(rows) > _MAX_NAMED:
            names.append(self.tr("and %n more", "", len(rows) - _MAX_NAMED))
        column.addWidget(SafeLabel("\n".join(map(line, names)), parent=self))
        column.addWidget(SafeLabel(self._taken(contents, len(rows)), wrap=True, parent=self))
        column.addWidget(SafeLabel(self._kept(rows), tone="muted", wrap=True, parent=self))
        self.trash = QRadioButton(self.tr("Move to the trash. Runs can be restored from there"), self)
        self.erase = QRadioButton(self.tr("Delete the files now. This can't be undone"), self)
        self.trash.setChecked(True)
        column.addWidget(self.trash)
        column.addWidget(self.erase)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addStretch(1)
        self.keep = button(self.tr("Keep"), self.reject, parent=self)
        self.delete = button(self.tr("Delete"), self._choose, kind="danger", icon_name="trash", parent=self)
        row.addWidget(self.keep)
        row.addWidget(self.delete)
        column.addLayout(row)
        self.keep.setDefault(True)
        self.keep.setFocus()

    def _named(self, row: RunRow) -> str:
        name = row.name if Run(row.path).is_proven() else str(row.path)
        return tr.fill(self.tr("%1, started %2"), name, when(row.created_at)) if row.created_at else name

    def _taken(self, contents: RunContents, num_runs: int) -> str:
        count = contents.num_links
        if not count:
            return self._taken_whole(contents)
        words = self.tr("%n run(s) are links. Only links are deleted, not the runs they point to.", "", count)
        return words if count == num_runs else f"{self._taken_whole(contents)}\n{words}"

    def _taken_whole(self, contents: RunContents) -> str:
        parts = [self.tr("%n checkpoint(s)", "", contents.num_checkpoints)] if contents.num_checkpoints else []
        if contents.num_adapters:
            parts.append(self.tr("%n trained adapter(s)", "", contents.num_adapters))
        if contents.num_models:
            parts.append(self.tr("%n trained model(s)", "", contents.num_models))
        parts.append(self.tr("settings, curves and logs"))
        size = tr.fill(self.tr("%1 in all"), tr.size(contents.size_bytes))
        return tr.fill(self.tr("Deleted: %1 (%2)"), ", ".join(parts), size)

    def _kept(self, rows: list[RunRow]) -> str:
        named = (name for row in rows for name in (row.model, row.data) if name)
        names = [line(name, _NAME_LETTERS) for name in dict.fromkeys(named)]
        words = self.tr("Kept: base models, training data and copies you made")
        return f"{words} ({', '.join(names[:_MAX_NAMED])})" if 0 < len(names) <= _MAX_NAMED else words

    def _choose(self) -> None:
        self.remove = erase if self.erase.isChecked() else move_to_trash
        self.accept()
