"""Deleted runs, to be restored or deleted for good."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QHBoxLayout,
    QListWidget,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core import files, trash
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run, display_name
from tunesmith_core.trash import DeletedRun
from tunesmith_gui import tr
from tunesmith_gui.plain_text import list_item
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.safe_label import SafeLabel


class TrashDialog(QDialog):
    """A list of deleted runs, the last deleted first.

    Attributes:
        changed: whether a run was restored.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.changed = False
        self.setWindowTitle(self.tr("Trash"))
        self.setMinimumSize(SPACE * 64, SPACE * 40)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        column.setSpacing(SPACE * 2)
        self.title = SafeLabel("", role="heading", parent=self)
        column.addWidget(self.title)
        self.list = QListWidget(self)
        self.list.setAccessibleName(self.tr("Deleted runs"))
        self.list.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.list.itemSelectionChanged.connect(self._enable)
        column.addWidget(self.list, 1)
        self.problem = SafeLabel("", tone="danger", wrap=True, parent=self)
        self.problem.hide()
        column.addWidget(self.problem)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.erase = button(self.tr("Delete for good"), self._erase, kind="danger", icon_name="trash", parent=self)
        self.restore = button(self.tr("Restore"), self._restore, parent=self)
        self.close_button = button(self.tr("Close"), self.accept, parent=self)
        row.addWidget(self.erase)
        row.addStretch(1)
        row.addWidget(self.restore)
        row.addWidget(self.close_button)
        column.addLayout(row)
        self._read()

    def _read(self) -> None:
        self.list.clear()
        for run in trash.deleted_runs():
            when_text = tr.moment(run.deleted_at)
            size = tr.size(files.folder_bytes(run.path))
            item = list_item(f"{display_name(Run(run.path))}   {size}   {when_text}")
            item.setData(Qt.ItemDataRole.UserRole, run)
            self.list.addItem(item)
        words = self.tr("%n deleted run(s)", "", self.list.count())
        self.title.setText(words if self.list.count() else self.tr("The trash is empty"))
        self._enable()

    def _chosen(self) -> list[DeletedRun]:
        return [item.data(Qt.ItemDataRole.UserRole) for item in self.list.selectedItems()]

    def _enable(self) -> None:
        for each in (self.erase, self.restore):
            each.setEnabled(bool(self._chosen()))

    def _restore(self) -> None:
        self._each(trash.restore)
        self.changed = True

    def _erase(self) -> None:
        self._each(trash.erase)

    def _each(self, work: Callable[[DeletedRun], object]) -> None:
        self.problem.setText("")
        self.problem.hide()
        for run in self._chosen():
            try:
                work(run)
            except TunesmithError as error:
                self.problem.setText(core_text(error.message))
                self.problem.show()
        self._read()
