"""A number input that takes any text, so that a wrong one is kept, marked and explained instead of being swallowed."""

from __future__ import annotations

import math
import re

from PySide6.QtCore import Signal
from PySide6.QtGui import QFocusEvent, QValidator
from PySide6.QtWidgets import QAbstractSpinBox, QWidget

from tunesmith_gui.new_run.setting_text import number_text
from tunesmith_gui.tokens import SPACE

_LEADING_ZEROS = re.compile(r"^0+(?=\d)")


class NumberBox(QAbstractSpinBox):
    """Text with step buttons; arrow keys and the wheel step as well.

    Args:
        whole: steps are 1; else they are a tenth of the number's order of magnitude.
        zero: what 0 stands for, shown in its place until somebody comes to change it; "" where 0 is an amount.
        unset: what no number stands for, shown where there is none.

    Signals:
        text_changed: the person typed or stepped.
    """

    text_changed = Signal(str)

    def __init__(self, *, whole: bool, zero: str = "", unset: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._whole, self._zero = whole, zero
        self.lineEdit().setTextMargins(SPACE - 2, 0, 0, 0)
        self.lineEdit().setPlaceholderText(unset)
        self.lineEdit().textEdited.connect(self.text_changed)

    def set_text(self, text: str) -> None:
        """Shows a text without a signal."""
        text = self._zero if self._zero and text == "0" and not self.hasFocus() else text
        if self.text() != text:
            self.lineEdit().setText(text)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Shows the number, which can be changed."""
        if self._zero and self.text() == self._zero:
            self.lineEdit().setText("0")
        super().focusInEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Shows what 0 stands for, and a number without the zeros that stood there before somebody typed."""
        super().focusOutEvent(event)
        text = _LEADING_ZEROS.sub("", self.text().strip())
        if text != self.text().strip():
            self.text_changed.emit(text)
        self.set_text(text)

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        """Lets every text in; judging it is the view-model's work."""
        return QValidator.State.Acceptable, text, position

    def stepEnabled(self) -> QAbstractSpinBox.StepEnabledFlag:
        """Both directions; bounds are told in words."""
        return QAbstractSpinBox.StepEnabledFlag.StepUpEnabled | QAbstractSpinBox.StepEnabledFlag.StepDownEnabled

    def stepBy(self, steps: int) -> None:
        """Steps the number; a text that is none stays as it is."""
        try:
            value = float(self.text().replace(" ", ""))
        except ValueError:
            return
        if not math.isfinite(value):
            return
        if self._whole:
            value = float(round(value) + steps)
        else:
            unit = 10.0 ** math.floor(math.log10(abs(value))) if value else 1.0
            value = round(value + steps * unit / 10, 15)
        text = number_text(value)
        self.lineEdit().setText(text)
        self.text_changed.emit(text)
