"""An editable list of paths: choose a known one by its short name, search by typing, or type a path or hub id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QFocusEvent, QPainter, QPaintEvent, QPalette
from PySide6.QtWidgets import (
    QComboBox,
    QCompleter,
    QLineEdit,
    QSizePolicy,
    QStyle,
    QStyleOptionFrame,
    QWidget,
)

from tunesmith_gui.icons import icon
from tunesmith_gui.plain_text import add_choice, set_choice_tip, set_tip
from tunesmith_gui.tr import fill, translate
from tunesmith_gui.widgets.field import guard_wheel

MIN_CHARACTERS = 12
_EDIT_MARGIN_PX = 2
"""Which a line edit keeps beside its text."""


class PathChoice(NamedTuple):
    """One entry: its name and the path it stands for."""

    name: str
    path: str


def short_name(path: str) -> str:
    """The last part of a full path; what is none, such as a hub id, whole."""
    return Path(path).name if Path(path).is_absolute() else path


def labels(choices: Sequence[PathChoice]) -> list[str]:
    """The names of the entries; those of one name are followed by as many folders as tell them apart."""
    return [_label(choice, [each for each in choices if each.name == choice.name]) for choice in choices]


def _label(choice: PathChoice, alike: list[PathChoice]) -> str:
    folders = Path(choice.path).parts[:-1]
    others = [Path(each.path).parts[:-1] for each in alike if each.path != choice.path]
    if not others or not folders:
        return choice.name
    depth = 1
    while depth < len(folders) and any(folders[-depth:] == each[-depth:] for each in others):
        depth += 1
    return fill(translate("PathCombo", "%1 in %2"), choice.name, Path(*folders[-depth:]))


class _Edit(QLineEdit):
    """Ends what is too long for it with an ellipsis, unless it is being typed into."""

    def shown_text(self) -> str:
        """The text as far as there is room for it, whole while it is typed into."""
        # The focus alone also stays where an entry was chosen from the list.
        is_moved = self.cursorPosition() > 0 or self.hasSelectedText() or self.isModified()
        if self.hasFocus() and is_moved:
            return self.text()
        return self.fontMetrics().elidedText(self.text(), Qt.TextElideMode.ElideRight, self._room().width())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the shortened text."""
        shown = self.shown_text()
        if shown == self.text():
            super().paintEvent(event)
            return
        room = self._room()
        painter = QPainter(self)
        painter.setPen(self.palette().color(QPalette.ColorRole.Text))
        painter.drawText(room, int(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter), shown)
        if self.hasFocus():
            painter.drawLine(room.topLeft(), room.bottomLeft())  # where typing would begin

    def _room(self) -> QRect:
        option = QStyleOptionFrame()
        self.initStyleOption(option)
        rect = self.style().subElementRect(QStyle.SubElement.SE_LineEditContents, option, self)
        return rect.adjusted(_EDIT_MARGIN_PX, 0, -_EDIT_MARGIN_PX, 0)


class PathCombo(QComboBox):
    """Shows short names and speaks of paths.

    Signals:
        path_chosen: the person chose an entry or finished typing; what was typed comes as it is.
    """

    path_chosen = Signal(str)

    def __init__(self, name: str, placeholder: str, icon_name: str, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._icon_name = icon_name
        self._path = ""
        self._choices: list[PathChoice] = []
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.setAccessibleName(name)
        self.setMinimumContentsLength(MIN_CHARACTERS)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._edit = _Edit(self)
        self.setLineEdit(self._edit)
        self._edit.setPlaceholderText(placeholder)
        self._edit.setAccessibleName(name)
        completer = QCompleter(self.model(), self)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        completer.setCompletionMode(QCompleter.CompletionMode.PopupCompletion)
        self.setCompleter(completer)
        guard_wheel(self)
        self.activated.connect(self._on_activated)
        self._edit.editingFinished.connect(self._on_edited)
        self.show_path("")

    @property
    def path(self) -> str:
        """The path that is shown."""
        return self._path

    def set_choices(self, choices: Sequence[PathChoice]) -> None:
        """Fills the list; what is shown stays, and so does what is being typed."""
        typed = self._edit.text() if self._edit.isModified() else None
        self._choices = list(choices)
        self.show_path(self._path)
        if typed is not None:
            self._edit.setText(typed)
            self._edit.setModified(True)

    def show_path(self, path: str) -> None:
        """Shows a path by its entry's name, or as it is, without a signal."""
        self._path = path
        listed = self._choices
        if Path(path).is_absolute() and path not in {each.path for each in listed}:
            listed = [PathChoice(Path(path).name, path), *listed]
        self.blockSignals(True)
        self.clear()
        for choice, label in zip(listed, labels(listed), strict=True):
            add_choice(self, label, choice.path, icon(self._icon_name, "muted"))
            set_choice_tip(self, self.count() - 1, choice.path)
        self.setCurrentIndex(self.findData(path) if path else -1)
        self.setEditText(self._shown_text())
        self.blockSignals(False)
        self._edit.setCursorPosition(0)
        set_tip(self, path)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Takes what was typed when the focus leaves."""
        super().focusOutEvent(event)
        self._on_edited()

    def _shown_text(self) -> str:
        index = self.findData(self._path) if self._path else -1
        return self.itemText(index) if index >= 0 else self._path

    def _on_activated(self, index: int) -> None:
        self._choose(str(self.itemData(index) or ""))

    def _on_edited(self) -> None:
        text = self.currentText().strip()
        if text == self._shown_text():
            return
        index = self.findText(text, Qt.MatchFlag.MatchFixedString)
        self._choose(str(self.itemData(index)) if index >= 0 else text.strip("\"'"))

    def _choose(self, path: str) -> None:
        before = self._path
        self.show_path(path)
        if path != before:
            self.path_chosen.emit(path)
