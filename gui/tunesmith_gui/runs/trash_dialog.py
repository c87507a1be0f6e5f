"""Deleted runs and models, to be restored or deleted for good."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QDialog, QHBoxLayout, QHeaderView, QTreeWidget, QVBoxLayout, QWidget

from tunesmith_core import files, trash
from tunesmith_core.errors import TunesmithError
from tunesmith_core.trash import Deleted
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
    """A table of deleted runs and models, the last deleted first.

    Attributes:
        changed: whether something was restored.
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
        self.list.setAccessibleName(self.tr("Deleted runs and models"))
        self.list.setHeaderLabels([self.tr("Name"), self.tr("Kind"), self.tr("Size"), self.tr("Deleted at")])
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
        kinds = {"run": self.tr("Run"), "model": self.tr("Model")}
        found = list(trash.contents())
        names = [each.name for each in found]
        for each, name in zip(found, names, strict=True):
            folder = each.origin.name
            shown = f"{name} ({folder})" if names.count(name) > 1 and name != folder else name
            size = tr.size(files.folder_bytes(each.path))
            item = tree_item([shown, kinds[each.kind], size, tr.moment(each.deleted_at)])
            set_item_tip(item, 0, str(each.origin))
            item.setData(0, Qt.ItemDataRole.UserRole, each)
            self.list.addTopLevelItem(item)
        words = self.tr("%n deleted item(s)", "", len(found))
        self.title.setText(words if found else self.tr("The trash is empty"))
        self._enable()

    def _chosen(self) -> list[Deleted]:
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
            fill(self.tr("%1, deleted %2"), line(item.text(0), _NAME_LETTERS), item.text(3))
            for item in items[:_MAX_NAMED]
        ]
        if len(items) > _MAX_NAMED:
            named.append(self.tr("and %n more", "", len(items) - _MAX_NAMED))
        title = self.tr("Delete %n item(s) for good?", "", len(items))
        note = self.tr("All of their files are deleted. This can’t be undone.")
        accept = self.tr("Delete for good")
        if ConfirmDialog(title, "\n".join(named), note, accept, self, danger=True).exec():
            self._each(trash.erase)

    def _each(self, work: Callable[[Deleted], object]) -> None:
        self.problem.setText("")
        self.problem.hide()
        for deleted in self._chosen():
            try:
                work(deleted)
            except TunesmithError as error:
                self.problem.setText(f"{core_text(error.message)}\n{core_text(error.hint)}")
                self.problem.show()
        self._read()
