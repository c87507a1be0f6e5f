"""A labelled control: no input stands in a form without words, unit, help and a place for its error.

`Field` gives the control its accessible name and description, shows an error below it in words, and keeps the mouse
wheel from changing a value the person only scrolled over.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QFocusEvent
from PySide6.QtWidgets import QAbstractSpinBox, QComboBox, QHBoxLayout, QSlider, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.safe_label import SafeLabel, restyle

_WHEEL_CONTROLS = (QComboBox, QAbstractSpinBox, QSlider)


class _WheelGuard(QObject):
    """Lets the wheel through to the page unless a person has given the control the focus."""

    _is_chosen = False
    """The focus may also have come where a page leads to a setting, maybe under the resting pointer."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QFocusEvent):
            self._is_chosen = event.gotFocus() and event.reason() is not Qt.FocusReason.OtherFocusReason
        elif event.type() in (QEvent.Type.MouseButtonPress, QEvent.Type.KeyPress):
            self._is_chosen = True
        has_focus = isinstance(watched, QWidget) and watched.hasFocus()
        if event.type() == QEvent.Type.Wheel and not (has_focus and self._is_chosen):
            event.ignore()
            return True
        return False


def guard_wheel(control: QWidget) -> None:
    """Makes a control ignore the mouse wheel unless a person has gone to it; `Field` does it for its own."""
    if isinstance(control, _WHEEL_CONTROLS):
        control.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        control.installEventFilter(_WheelGuard(control))


class Field(QWidget):
    """Label above, control, then unit; help or the error below.

    Args:
        label: words above the control; also its accessible name.
        control: the input; the field takes it over.
        unit: short unit shown after the control, e.g. "tokens".
        help_text: one sentence below, replaced by the error while there is one.
        inline: label left of the control instead of above it.

    Raises:
        ValueError: the label is empty.
    """

    def __init__(
        self,
        label: str,
        control: QWidget,
        *,
        unit: str = "",
        help_text: str = "",
        inline: bool = False,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        if not label.strip():
            raise ValueError("a field needs a label")
        self.control = control
        self._help_text = help_text
        self.label = SafeLabel(label, role="body" if inline else "strong", parent=self)
        self.label.setBuddy(control)
        control.setAccessibleName(f"{label} ({unit})" if unit else label)
        control.setAccessibleDescription(help_text)
        guard_wheel(control)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        if inline:
            row.addWidget(self.label)
            row.addStretch(1)
        else:
            column.addWidget(self.label)
        row.addWidget(control, 0 if inline else 1)
        if unit:
            row.addWidget(SafeLabel(unit, tone="muted", parent=self))
        column.addLayout(row)
        self.message = SafeLabel(help_text, role="caption", tone="muted", wrap=True, parent=self)
        self.message.setVisible(bool(help_text))
        column.addWidget(self.message)
        column.addStretch(1)  # fields of one row align at their labels

    def set_error(self, error: str) -> None:
        """Shows an error below the control and marks it; an empty string clears it and brings the help back."""
        self.message.setText(error or self._help_text)
        self.message.set_tone("error" if error else "muted")
        self.message.setVisible(bool(error or self._help_text))
        self.control.setAccessibleDescription(error or self._help_text)
        if self.control.property("invalid") != bool(error):
            self.control.setProperty("invalid", bool(error))
            restyle(self.control)
