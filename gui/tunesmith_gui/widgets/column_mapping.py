"""Says what each column of the data holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QDialog, QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from tunesmith_core.datafmt import ROLES
from tunesmith_core.datafmt.guessing import ALIKE, guess_columns, guess_format
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.datafmt.unsuited import IN_ONE_WAY
from tunesmith_gui.plain_text import add_choice
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.column_choice import ColumnChoice
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.row_words import format_word, role_word, unused_words
from tunesmith_gui.widgets.safe_label import SafeLabel

_WIDTH_LETTERS = 72


class ColumnMappingDialog(QDialog):
    """The format of the rows and a column for each role, filled in as far as can be guessed. Open it with `open()`.

    Signals:
        mapped: (format, dict of role -> column).
    """

    mapped = Signal(str, object)

    def __init__(
        self,
        head: Sequence[Row],
        found_format: str,
        format_name: str,
        mapping: Mapping[str, str],
        parent: QWidget | None = None,
    ) -> None:
        """Fills in what is known.

        Args:
            head: the first rows of the file.
            found_format: the format that the names of the columns tell, "auto" when they tell none.
            format_name, mapping: what the form holds.
        """
        super().__init__(parent)
        self._head = head
        self._picked = {ALIKE.get(role, role): column for role, column in mapping.items()}
        self._rows: dict[str, ColumnChoice] = {}
        self.setWindowTitle(self.tr("Map columns"))
        self.setMinimumWidth(self.fontMetrics().averageCharWidth() * _WIDTH_LETTERS)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        column.setSpacing(SPACE * 2)
        column.addWidget(SafeLabel(self.tr("Map columns"), role="heading", parent=self))
        words = self.tr("Choose what each column holds. What could be guessed is filled in.")
        column.addWidget(SafeLabel(words, tone="muted", wrap=True, parent=self))
        self.format = QComboBox(self)
        # Labels are learned by a way to teach of their own, whose rows are read in no other way.
        for name in [format_name] if format_name in IN_ONE_WAY else [each for each in ROLES if each not in IN_ONE_WAY]:
            add_choice(self.format, format_word(name), name)
        known = format_name if format_name in ROLES else found_format
        self.format.setCurrentIndex(self.format.findData(known if known in ROLES else guess_format(head)))
        self.format.activated.connect(lambda _index: self._build_roles())
        column.addWidget(Field(self.tr("Each row holds"), self.format, parent=self))
        self._roles = QWidget()
        self._role_column = QVBoxLayout(self._roles)
        self._role_column.setContentsMargins(0, 0, 0, 0)
        self._role_column.setSpacing(SPACE * 2)
        self._role_column.addStretch(1)
        # A question with eight options has more roles than a low screen has room for.
        self._area = QScrollArea(self)
        self._area.setWidgetResizable(True)
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.setWidget(self._roles)
        column.addWidget(self._area, 1)
        self.note = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        column.addWidget(self.note)
        row = QHBoxLayout()
        row.addStretch(1)
        self.cancel = button(self.tr("Cancel"), self.reject, parent=self)
        self.apply = button(self.tr("Map columns"), self._apply, kind="primary", parent=self)
        self.apply.setDefault(True)
        row.addWidget(self.cancel)
        row.addWidget(self.apply)
        column.addLayout(row)
        self._build_roles()

    @property
    def role_combos(self) -> dict[str, QComboBox]:
        """The list of columns of each role."""
        return {role: row.combo for role, row in self._rows.items()}

    def _format(self) -> str:
        return str(self.format.currentData())

    def _build_roles(self) -> None:
        for row in self._rows.values():
            row.hide()
            row.deleteLater()
        self._rows = {}
        guesses = guess_columns(self._format(), self._head)
        for role in ROLES[self._format()]:
            nothing = self.tr("Choose a column") if role.required else self.tr("None")
            row = ColumnChoice(role_word(role.name), nothing, self._head, self._roles)
            row.choose(self._picked.get(ALIKE.get(role.name, role.name), guesses.get(role.name, "")))
            row.combo.activated.connect(lambda _index, role=role.name: self._pick(role))
            self._rows[role.name] = row
            self._role_column.insertWidget(self._role_column.count() - 1, row)
        stops = [self.format, *self.role_combos.values(), self.cancel, self.apply]
        for before, after in pairwise(stops):
            QWidget.setTabOrder(before, after)
        self._check()
        self.adjustSize()

    def _pick(self, role: str) -> None:
        self._picked[ALIKE.get(role, role)] = str(self._rows[role].combo.currentData())
        self._rows[role].show_examples()
        self._check()

    def _check(self) -> None:
        mapping = self._mapping()
        missing = [role for role in ROLES[self._format()] if role.required and role.name not in mapping]
        twice = [column for column in mapping.values() if list(mapping.values()).count(column) > 1]
        unused = [
            name for name in dict.fromkeys(name for row in self._head for name in row) if name not in mapping.values()
        ]
        why = ""
        if missing:
            why = fill(self.tr("Choose a column for %1."), role_word(missing[0].name))
        elif twice:
            why = fill(self.tr("%1 is chosen twice."), twice[0])
        self.apply.setEnabled(not why)
        self.apply.setAccessibleDescription(why)
        self.note.setText(why or unused_words(unused))
        self.note.set_tone("error" if why else "muted")
        self.note.setVisible(bool(self.note.text()))

    def _mapping(self) -> dict[str, str]:
        return {role: str(combo.currentData()) for role, combo in self.role_combos.items() if combo.currentData()}

    def _apply(self) -> None:
        self.mapped.emit(self._format(), self._mapping())
        self.accept()
