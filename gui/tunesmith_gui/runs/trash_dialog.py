"""Deleted runs, to be restored or deleted for good."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QDialog, QHBoxLayout, QHeaderView, QTreeWidget, QVBoxLayout, QWidget

from tunesmith_core import files, trash
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run, display_name
from tunesmith_core.trash import DeletedRun
from tunesmith_gui import tr
from tunesmith_gui.plain_text import line, set_item_tip, tree_item
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.safe_label import SafeLabel

_MAX_NAMED = 5
_NAME_LETTERS = 40


class TrashDialog(QDialog):
    """A table of deleted runs, the last deleted first.

    Attributes:
        changed: whether a run was restored.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.changed = False
        self.setWindowTitle(self.tr("Trash"))
        self.setMinimumSize(SPACE * 80, SPACE * 40)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        column.setSpacing(SPACE * 2)
        self.title = SafeLabel("", role="heading", parent=self)
        column.addWidget(self.title)
        self.list = QTreeWidget(self)
        self.list.setAccessibleName(self.tr("Deleted runs"))
        self.list.setHeaderLabels([self.tr("Run"), self.tr("Size"), self.tr("Deleted at")])
        self.list.setRootIsDecorated(False)
        self.list.setUniformRowHeights(True)
        # Where names are the same, they differ at their ends.
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.list.header().setStretchLastSection(False)
        self.list.header().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.list.header().setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.list.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.list.itemSelectionChanged.connect(self._enable)
        column.addWidget(self.list, 1)
        self.problem = SafeLabel("", tone="danger", wrap=True, parent=self)
        self.problem.hide()
        column.addWidget(self.problem)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        self.erase = button(self.tr("Delete for good…"), self._erase, kind="danger", icon_name="trash", parent=self)
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
        runs = list(trash.deleted_runs())
        names = [display_name(Run(run.path)) for run in runs]
        for run, name in zip(runs, names, strict=True):
            shown = f"{name} ({run.id})" if names.count(name) > 1 and name != run.id else name
            item = tree_item([shown, tr.size(files.folder_bytes(run.path)), tr.moment(run.deleted_at)])
            set_item_tip(item, 0, str(run.origin))
            item.setData(0, Qt.ItemDataRole.UserRole, run)
            self.list.addTopLevelItem(item)
        words = self.tr("%n deleted run(s)", "", len(runs))
        self.title.setText(words if runs else self.tr("The trash is empty"))
        self._enable()

    def _chosen(self) -> list[DeletedRun]:
        return [item.data(0, Qt.ItemDataRole.UserRole) for item in self.list.selectedItems()]

    def _enable(self) -> None:
        for each in (self.erase, self.restore):
            each.setEnabled(bool(self._chosen()))

    def _restore(self) -> None:
        self._each(trash.restore)
        self.changed = True

    def _erase(self) -> None:
        items = self.list.selectedItems()
        named = [
            fill(self.tr("%1, deleted %2"), line(item.text(0), _NAME_LETTERS), item.text(2))
            for item in items[:_MAX_NAMED]
        ]
        if len(items) > _MAX_NAMED:
            named.append(self.tr("and %n more", "", len(items) - _MAX_NAMED))
        title = self.tr("Delete %n run(s) for good?", "", len(items))
        note = self.tr("Checkpoints and adapters are deleted too. This can’t be undone.")
        accept = self.tr("Delete for good")
        if ConfirmDialog(title, "\n".join(named), note, accept, self, danger=True).exec():
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
