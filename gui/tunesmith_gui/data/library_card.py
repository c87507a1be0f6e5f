"""The library of data: sets that were kept under a name, their versions, and the runs that used them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QGridLayout, QHBoxLayout, QLineEdit, QPushButton, QWidget

from tunesmith_core import data_library
from tunesmith_core.data_library import DataSet, DataUse
from tunesmith_core.runs import iter_runs
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill, size, translate
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.dialog_frame import framed
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.path_combo import PathChoice, labels
from tunesmith_gui.widgets.row_words import format_word
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel

Kept = tuple[DataSet, list[DataUse]]


def kept_sets() -> list[Kept]:
    """Return every set with the runs that used it; reads files, so it is called on a worker thread."""
    runs = list(iter_runs())
    return [(each, data_library.users(each, runs)) for each in data_library.sets()]


class LibraryCard(Card):
    """One line for each set.

    Signals:
        chosen: (DataSet) is to be opened.
        remove_asked: (str) the set with this name is to be forgotten.
    """

    chosen = Signal(object)
    remove_asked = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(translate("LibraryCard", "Library"), parent=parent)
        self.names: dict[str, QPushButton] = {}
        self.facts: dict[str, ElidedLabel] = {}
        self._widgets: list[QWidget] = []
        self._paths: dict[str, str] = {}
        self._rows = QGridLayout()
        self._rows.setHorizontalSpacing(SPACE * 2)
        self._rows.setVerticalSpacing(SPACE // 2)
        self._rows.setColumnStretch(1, 1)
        self.body.addLayout(self._rows)
        self.hide()

    def show_sets(self, kept: Sequence[Kept]) -> None:
        """Shows the sets."""
        for widget in self._widgets:
            self._rows.removeWidget(widget)
            widget.hide()
            widget.deleteLater()
        self._widgets, self.names, self.facts = [], {}, {}
        self._paths = {data_set.name: data_set.sources[0].path for data_set, _uses in kept}
        files = [PathChoice(Path(path).name, path) for path in self._paths.values()]
        for place, ((data_set, uses), file) in enumerate(zip(kept, labels(files), strict=True)):
            self._add_row(place, data_set, uses, file)
        self.setVisible(bool(kept))

    def proposed_name(self, path: str) -> str:
        """A name for a file that no set of another file has: with as many folders as tell them apart."""
        sets = [PathChoice(name, of_set) for name, of_set in self._paths.items()]
        return labels([PathChoice(Path(path).stem, path), *sets])[0]

    def _add_row(self, place: int, data_set: DataSet, uses: list[DataUse], file: str) -> None:
        name = button(
            data_set.name, lambda: self.chosen.emit(data_set), kind="link", icon_name="data", parent=self
        )
        name.setEnabled(not data_set.missing)
        tone = "warn" if data_set.missing else "muted"
        facts = ElidedLabel(self._words(data_set, uses, file), tone=tone, parent=self)
        name.setAccessibleDescription(facts.text())
        set_tip(name, "\n".join([*(source.path for source in data_set.sources), *(each.run for each in uses)]))
        removed = fill(self.tr("Remove %1 from the library"), data_set.name)
        remove = IconButton("close", removed, lambda: self.remove_asked.emit(data_set.name), parent=self)
        self._rows.addWidget(name, place, 0, Qt.AlignmentFlag.AlignLeft)
        for column, widget in ((1, facts), (2, remove)):
            self._rows.addWidget(widget, place, column)
        self._widgets += [name, facts, remove]
        self.names[data_set.name], self.facts[data_set.name] = name, facts

    def _words(self, data_set: DataSet, uses: list[DataUse], file: str) -> str:
        if data_set.missing:
            return fill(self.tr("%1 is not there any more"), data_set.missing[0])
        # Files of one name say in which folder they are.
        is_alike = file != Path(data_set.sources[0].path).name
        parts = [*([file] if is_alike else []), format_word(data_set.format)]
        if data_set.is_synthetic:
            parts.append(self.tr("Synthetic"))
        if data_set.versions:
            parts.append(size(data_set.versions[-1].size_bytes))
            parts.append(fill(self.tr("version %1"), len(data_set.versions)))
        parts.append(self.tr("used by %n run(s)", "", len(uses)) if uses else self.tr("not used yet"))
        return "  ·  ".join(parts)


class KeepDialog(QDialog):
    """Asks for the name of a set; open it with `open()`.

    Signals:
        named: (str).
    """

    named = Signal(str)

    def __init__(self, proposed: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        column = framed(self, self.tr("Add to the library"))
        words = self.tr("The library remembers the file, its versions and the runs that used them. The file stays put.")
        column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        self.keep = button(self.tr("Add to the library"), self._keep, kind="primary", parent=self)
        self.edit = QLineEdit(proposed, self)
        self.edit.textChanged.connect(lambda text: self.keep.setEnabled(bool(text.strip())))
        column.addWidget(Field(self.tr("Name"), self.edit, parent=self))
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addStretch(1)
        row.addWidget(button(self.tr("Cancel"), self.reject, parent=self))
        self.keep.setDefault(True)
        row.addWidget(self.keep)
        column.addLayout(row)
        self.edit.selectAll()
        self.edit.setFocus()

    def _keep(self) -> None:
        self.named.emit(self.edit.text().strip())
        self.accept()


def ask_to_replace(window: QWidget, name: str, path: str, free: str) -> int:
    """Return `Accepted` to replace a file of the library, `ConfirmDialog.OTHER` to use the free name, or `Rejected`."""
    title = fill(translate("KeepDialog", "Replace %1 in the library?"), name)
    words = fill(translate("KeepDialog", "The library already keeps %1 as %2."), path, name)
    note = translate("KeepDialog", "The versions of the data set are kept. No file is changed.")
    other = fill(translate("KeepDialog", "Add as %1"), free)
    dialog = ConfirmDialog(title, words, note, translate("KeepDialog", "Replace"), window, other=other)
    answer = dialog.exec()
    dialog.deleteLater()
    return answer
