"""Says which column of the data plays which role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QDialog, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_core.datafmt import ROLES
from tunesmith_gui.new_run.data_picker import format_word, role_word
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import fill
from tunesmith_gui.widgets.buttons import button
from tunesmith_gui.widgets.field import Field
from tunesmith_gui.widgets.safe_label import SafeLabel


class ColumnMappingDialog(QDialog):
    """The row format and one choice of column per role. Open it with `open()`.

    Signals:
        mapped: (format, dict of role -> column); roles that are found by their usual names are left out.
    """

    mapped = Signal(str, object)

    def __init__(
        self,
        columns: Sequence[str],
        found_format: str,
        format_name: str,
        mapping: Mapping[str, str],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._columns = list(columns)
        self._found_format = found_format
        self._mapping = dict(mapping)
        self.role_combos: dict[str, QComboBox] = {}
        self.setWindowTitle(self.tr("Map columns"))
        self.setMinimumWidth(SPACE * 56)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 2)
        column.setSpacing(SPACE * 2)
        column.addWidget(SafeLabel(self.tr("Map columns"), role="heading", parent=self))
        seen = fill(self.tr("The file has the columns %1."), ", ".join(columns))
        column.addWidget(SafeLabel(seen, tone="muted", wrap=True, parent=self))
        self.format = QComboBox(self)
        found = fill(self.tr("Found by itself: %1"), format_word(found_format))
        self.format.addItem(found, "auto")
        for name in ROLES:
            self.format.addItem(format_word(name), name)
        self.format.setCurrentIndex(max(0, self.format.findData(format_name)))
        self.format.activated.connect(lambda _index: self._build_roles())
        column.addWidget(Field(self.tr("Row format"), self.format, parent=self))
        self._roles = QWidget(self)
        self._role_column = QVBoxLayout(self._roles)
        self._role_column.setContentsMargins(0, 0, 0, 0)
        self._role_column.setSpacing(SPACE)
        column.addWidget(self._roles)
        column.addStretch(1)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(button(self.tr("Cancel"), self.reject, parent=self))
        self.apply = button(self.tr("Use this mapping"), self._apply, kind="primary", parent=self)
        self.apply.setDefault(True)
        row.addWidget(self.apply)
        column.addLayout(row)
        self._build_roles()

    def _format(self) -> str:
        chosen = str(self.format.currentData())
        if chosen != "auto":
            return chosen
        return self._found_format if self._found_format in ROLES else "messages"

    def _build_roles(self) -> None:
        for child in self._roles.findChildren(Field):
            child.hide()
            child.deleteLater()
        self.role_combos = {}
        for role in ROLES[self._format()]:
            combo = QComboBox(self._roles)
            usual = next((name for name in self._columns if name.lower() in role.usual_names), "")
            none = self.tr("None") if not role.required else self.tr("Choose a column")
            combo.addItem(none, "")
            for name in self._columns:
                combo.addItem(name, name)
            combo.setCurrentIndex(max(0, combo.findData(self._mapping.get(role.name, usual))))
            combo.activated.connect(self._check)
            self.role_combos[role.name] = combo
            self._role_column.addWidget(Field(role_word(role.name), combo, inline=True, parent=self._roles))
        self._check()

    def _check(self, _index: int = 0) -> None:
        roles = {role.name: role for role in ROLES[self._format()]}
        missing = [name for name, combo in self.role_combos.items() if roles[name].required and not combo.currentData()]
        self.apply.setEnabled(not missing)
        why = fill(self.tr("Choose a column for %1"), role_word(missing[0])) if missing else ""
        self.apply.setToolTip(why)
        self.apply.setAccessibleDescription(why)

    def _apply(self) -> None:
        mapping = {role: str(combo.currentData()) for role, combo in self.role_combos.items() if combo.currentData()}
        self.mapped.emit(str(self.format.currentData()), mapping)
        self.accept()
