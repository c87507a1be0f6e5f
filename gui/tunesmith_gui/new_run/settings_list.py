"""All settings of a run as one searchable list, built from their declarations; a row explains itself on demand."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from tunesmith_core.spec import Setting
from tunesmith_gui.new_run.facts import ENCODING
from tunesmith_gui.new_run.form import NewRunForm
from tunesmith_gui.new_run.number_box import NumberBox
from tunesmith_gui.new_run.setting_paths import LISTED, SETTINGS, SMOOTHING
from tunesmith_gui.new_run.setting_text import choice_text, help_text, unit_text, value_text
from tunesmith_gui.new_run.start_picker import HELD, START
from tunesmith_gui.plain_text import add_choice, set_tip
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import core_text, fill, number, translate
from tunesmith_gui.widgets.buttons import IconButton, button
from tunesmith_gui.widgets.card import Card, line
from tunesmith_gui.widgets.field import guard_wheel
from tunesmith_gui.widgets.safe_label import SafeLabel, restyle

MIN_CHARACTERS = 8
DEVICES = ("auto", "cpu", "cuda")
"""What may be chosen; a GPU's number is typed behind the last."""
LONG_TEXTS = ("data.system_prompt", "model.new_tokens", "evaluation.sample_prompts")


def section_word(section: str) -> str:
    """Heading of a section of the spec."""
    return {
        "model": translate("SettingsList", "Model"),
        "data": translate("SettingsList", "Data"),
        "objective": translate("SettingsList", "Objective"),
        "rollouts": translate("SettingsList", "Rollouts"),
        "teacher": translate("SettingsList", "Bigger model"),
        "adapter": translate("SettingsList", "Adapter"),
        "quantization": translate("SettingsList", "Quantization"),
        "optimizer": translate("SettingsList", "Optimizer"),
        "schedule": translate("SettingsList", "Schedule"),
        "evaluation": translate("SettingsList", "Evaluation"),
        "saving": translate("SettingsList", "Saving"),
        "hardware": translate("SettingsList", "Hardware"),
    }[section]


class SettingRow(QWidget):
    """Label, control, unit and mark of the default, reset and help of one setting."""

    def __init__(self, setting: Setting, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setting = setting
        self._form = form
        self._is_typing = False
        label = core_text(setting.declaration.label)
        unit = unit_text(setting)
        self._help = help_text(setting)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        column.addLayout(row)
        self.label = SafeLabel(label, wrap=True, parent=self)
        self.control = self._make_control()
        self.control.setAccessibleName(f"{label} ({unit})" if unit else label)
        self.label.setBuddy(self.control)
        guard_wheel(self.control)
        self._unit = unit
        self.note = SafeLabel(role="caption", tone="muted", wrap=True, parent=self)
        self.reset = IconButton("reset", fill(translate("SettingsList", "Reset %1"), label), self._reset, parent=self)
        keeps_place = self.reset.sizePolicy()
        keeps_place.setRetainSizeWhenHidden(True)
        self.reset.setSizePolicy(keeps_place)
        about = fill(translate("SettingsList", "About %1"), label)
        self.help = IconButton("help", about, self.toggle_help, parent=self)
        set_tip(self.help, self._help)
        for widget, stretch in ((self.label, 5), (self.control, 7), (self.note, 5)):
            row.addWidget(widget, stretch)
        row.addWidget(self.reset)
        row.addWidget(self.help)
        self.message = SafeLabel(role="caption", tone="error", wrap=True, parent=self)
        self.explanation = SafeLabel(self._help, role="note", wrap=True, selectable=True, parent=self)
        for below in (self.message, self.explanation):
            below.hide()
            column.addWidget(below)
        self.refresh()

    def refresh(self) -> None:
        """Shows the form's value, problem and whether it was changed."""
        path = self.setting.path
        self._show_value()
        problem = self._form.problem(path)
        changed = self._form.is_changed(path)
        baseline = self._form.baseline(path)
        zero = core_text(self.setting.declaration.zero)
        is_count = self.setting.type is int and self._unit
        default = number(baseline) if is_count else value_text(self.setting, baseline)
        default = choice_text(default) if self.setting.declaration.choices else default
        default = default or core_text(self.setting.declaration.unset) or translate("SettingsList", "empty")
        default = zero if zero and baseline == 0 else default
        words = fill(self._state_words(changed), default.replace("\n", " "))
        has_unit = self._unit and self._form.text(path) and not (zero and self._form.text(path) == "0")
        self.note.setText(f"{self._unit}  ·  {words}" if has_unit else words)
        self.note.set_tone("accent" if self._form.is_own_change(path) else "muted")
        self.reset.setVisible(changed)
        if is_held := path in HELD and bool(self._form.value(START)):
            self.note.setText(translate("SettingsList", "set by the adapter to start from"))
        self.control.setEnabled(not is_held)
        set_tip(self.reset, fill(translate("SettingsList", "Back to %1"), default))
        self.message.setText(problem)
        self.message.setVisible(bool(problem))
        self.control.setAccessibleDescription(problem or self._help)
        if bool(self.control.property("invalid")) != bool(problem):
            self.control.setProperty("invalid", bool(problem))
            restyle(self.control)

    def _state_words(self, changed: bool) -> str:
        if self.setting.path == ENCODING and self._form.surroundings.encoding == self._form.value(ENCODING):
            return translate("SettingsList", "detected")
        if changed and not self._form.is_own_change(self.setting.path):
            return translate("SettingsList", "comes with the data, was %1")
        if changed:
            return translate("SettingsList", "changed, was %1")
        if self.setting.path == ENCODING:
            return translate("SettingsList", "detected automatically")
        return translate("SettingsList", "default")

    def matches(self, words: list[str]) -> bool:
        """Whether all words occur in what this row says."""
        declaration = self.setting.declaration
        text = " ".join([self.setting.path, self.label.text(), declaration.label, self._help, declaration.meaning])
        return all(word in text.casefold() for word in words)

    def toggle_help(self) -> None:
        """Shows or hides the explanation below the row."""
        self.explanation.setVisible(self.explanation.isHidden())

    def _reset(self) -> None:
        self._form.reset(self.setting.path)
        self.control.setFocus(Qt.FocusReason.OtherFocusReason)

    def _make_control(self) -> QWidget:
        setting, path = self.setting, self.setting.path
        if setting.declaration.choices:
            combo = QComboBox(self)
            combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            combo.setMinimumContentsLength(MIN_CHARACTERS)
            for choice in setting.declaration.choices:
                add_choice(combo, choice_text(choice), choice)
            combo.activated.connect(lambda index: self._form.set_value(path, combo.itemData(index)))
            return combo
        if path == "hardware.devices":
            devices = QComboBox(self)
            typed = QLineEdit(devices)
            typed.setAccessibleName(core_text(setting.declaration.label))
            devices.setLineEdit(typed)
            for name in DEVICES:
                add_choice(devices, name, name)
            devices.editTextChanged.connect(self._take_text)
            return devices
        if setting.type is bool:
            box = QCheckBox(self)
            box.clicked.connect(lambda checked: self._form.set_value(path, checked))
            return box
        if setting.type in (int, float, int | None, float | None):
            zero, unset = core_text(setting.declaration.zero), core_text(setting.declaration.unset)
            number_box = NumberBox(whole=setting.type in (int, int | None), zero=zero, unset=unset, parent=self)
            number_box.text_changed.connect(self._take_text)
            return number_box
        if path in LONG_TEXTS:
            long = QPlainTextEdit(self)
            long.setTabChangesFocus(True)
            long.setFixedHeight(long.fontMetrics().lineSpacing() * 3 + SPACE * 3)
            long.textChanged.connect(lambda: self._take_text(long.toPlainText()))
            return long
        edit = QLineEdit(self)
        edit.textEdited.connect(self._take_text)
        return edit

    def _take_text(self, text: str) -> None:
        self._is_typing = True
        self._form.set_text(self.setting.path, text)
        self._is_typing = False

    def _show_value(self) -> None:
        control, path = self.control, self.setting.path
        if isinstance(control, QComboBox) and control.isEditable():
            if not self._is_typing:
                control.setEditText(self._form.text(path))
        elif isinstance(control, QComboBox):
            control.setCurrentIndex(control.findData(self._form.value(path)))
        elif isinstance(control, QCheckBox):
            control.setChecked(self._form.value(path))
        elif self._is_typing:
            return  # what is being typed must not be rewritten under the cursor
        elif isinstance(control, NumberBox):
            control.set_text(self._form.text(path))
        elif isinstance(control, QLineEdit):
            control.setText(self._form.text(path))
        elif isinstance(control, QPlainTextEdit) and control.toPlainText() != self._form.text(path):
            control.blockSignals(True)
            control.setPlainText(self._form.text(path))
            control.blockSignals(False)


class SettingsList(Card):
    """The card "All settings": closed at first; its rows are made section by section when it is opened.

    Signals:
        opened: the rows are all there.
    """

    opened = Signal()

    def __init__(self, form: NewRunForm, *, parent: QWidget | None = None) -> None:
        super().__init__(translate("SettingsList", "All settings"), parent=parent)
        self._form = form
        self.rows: dict[str, SettingRow] = {}
        self._sections: dict[str, QWidget] = {}
        self._building: Iterator[None] | None = None
        self.summary = SafeLabel(tone="accent", parent=self)
        self.reset_all = button(self.tr("Reset all"), form.reset_all, kind="link", parent=self)
        self.toggle = button("", self._toggle, parent=self)
        for each in (self.summary, self.reset_all, self.toggle):
            self.add_action(each)
        self.filter = QLineEdit(self)
        self.filter.setPlaceholderText(self.tr("Find a setting"))
        self.filter.setAccessibleName(self.tr("Find a setting"))
        self.filter.setClearButtonEnabled(True)
        self.filter.textChanged.connect(self._apply_filter)
        self.body.addWidget(self.filter)
        self._list = QWidget(self)
        self._list_column = QVBoxLayout(self._list)
        self._list_column.setContentsMargins(0, 0, 0, 0)
        self._list_column.setSpacing(SPACE * 2)
        self._nothing = SafeLabel(self.tr("No setting matches."), tone="muted", parent=self._list)
        self._nothing.hide()
        self.body.addWidget(self._list)
        self.set_open(False)
        form.changed.connect(self._on_changed)
        self._on_changed("")

    def refresh(self, path: str) -> None:
        """Shows what was found out about a setting."""
        if row := self.rows.get(path):
            row.refresh()

    @property
    def is_open(self) -> bool:
        """Whether the rows are shown."""
        return not self._list.isHidden()

    def set_open(self, is_open: bool) -> None:
        """Shows or hides the rows."""
        self._list.setVisible(is_open)
        self.filter.setVisible(is_open)
        self._name_toggle()
        if is_open and self._building is None:
            self._building = self._build()
            # Rows are not painted before the page has made room for them.
            self._list.setUpdatesEnabled(False)
            self._build_next()

    def _name_toggle(self) -> None:
        num_listed = sum(self._form.uses(path) for path in LISTED)
        words = self.tr("Hide") if self.is_open else fill(self.tr("Show all %1"), num_listed)
        self.toggle.setText(words)
        self.toggle.setAccessibleName(fill(self.tr("All settings: %1"), words))

    def reveal(self, path: str) -> None:
        """Opens the list and puts the focus on a setting."""
        self.set_open(True)
        self.filter.clear()
        for _ in self._building or ():
            continue
        self.rows[path].control.setFocus(Qt.FocusReason.OtherFocusReason)

    def explain_focused(self) -> bool:
        """Toggles the help of the row that holds the focus; False when there is none."""
        for row in self.rows.values():
            focused = row.focusWidget()
            if focused is not None and focused.hasFocus():
                row.toggle_help()
                return True
        return False

    def changeEvent(self, event: QEvent) -> None:
        """Keeps the heights of long inputs right when the font changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            for row in self.rows.values():
                if isinstance(row.control, QPlainTextEdit):
                    row.control.setFixedHeight(row.control.fontMetrics().lineSpacing() * 3 + SPACE * 3)

    def _toggle(self) -> None:
        self.set_open(not self.is_open)

    def _build_next(self) -> None:
        # One section a turn: all rows at once would hold the window up.
        if self._building is not None and next(self._building, self) is self:
            QTimer.singleShot(0, self._list, lambda: self._list.setUpdatesEnabled(True))
            self.opened.emit()
            return
        QTimer.singleShot(0, self, self._build_next)

    def _build(self) -> Iterator[None]:
        for section in dict.fromkeys(SETTINGS[path].section for path in LISTED):
            group = QWidget(self._list)
            column = QVBoxLayout(group)
            column.setContentsMargins(0, 0, 0, 0)
            column.setSpacing(SPACE)
            column.addWidget(line(group))
            column.addWidget(SafeLabel(section_word(section), role="strong", parent=group))
            for path in LISTED:
                if SETTINGS[path].section == section:
                    self.rows[path] = SettingRow(SETTINGS[path], self._form, parent=group)
                    column.addWidget(self.rows[path])
            self._sections[section] = group
            self._list_column.addWidget(group)
            self._apply_filter(self.filter.text())
            yield
        self._list_column.addWidget(self._nothing)

    def _apply_filter(self, text: str) -> None:
        words = text.casefold().split()
        any_shown = False
        for section, group in self._sections.items():
            rows = [row for row in self.rows.values() if row.setting.section == section]
            shown = [row for row in rows if self._form.uses(row.setting.path) and row.matches(words)]
            for row in rows:
                row.setVisible(row in shown)
            group.setVisible(bool(shown))
            any_shown = any_shown or bool(shown)
        self._nothing.setVisible(not any_shown and bool(self._sections))

    def _on_changed(self, path: str) -> None:
        num_changed = len(self._form.changed_paths())
        self.summary.setText(self.tr("%n changed", "", num_changed) if num_changed else "")
        self.reset_all.setVisible(num_changed > 0)
        shown_by = ("objective.dpo_loss", "objective.beta", "optimizer.name", "teacher.own_answers", SMOOTHING, START)
        if not path or path in shown_by:
            self._name_toggle()
            self._apply_filter(self.filter.text())
        problems = self._form.problems()
        for each, row in self.rows.items():
            # A change may make another setting right or wrong (early stopping needs evaluation data).
            if path in ("", each, START) or each in problems or row.message.text():
                row.refresh()
