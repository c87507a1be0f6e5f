"""A choice of a few options side by side; one is always chosen. Arrow keys move, Tab leaves."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QLayout, QPushButton, QSizePolicy, QWidget
from superqt import QFlowLayout

from tunesmith_gui.widgets.buttons import button

_GAP = 2


class Segmented(QFrame):
    """Exclusive buttons in one frame.

    Args:
        name: accessible name of the whole choice.
        options: (value, words) in order; the first is chosen at the start.
        wraps: whether options go on in the next line where the width ends.

    Signals:
        changed: the person or `set_value` chose another value.

    Raises:
        ValueError: no name.
    """

    changed = Signal(str)

    def __init__(
        self, name: str, options: Sequence[tuple[str, str]], *, wraps: bool = False, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        if not name.strip():
            raise ValueError("a segmented control needs an accessible name")
        self.setAccessibleName(name)
        self.setProperty("segmented", True)
        policy = QSizePolicy.Policy.Preferred if wraps else QSizePolicy.Policy.Fixed
        self.setSizePolicy(policy, policy)
        self._wraps = wraps
        self._buttons: dict[str, QPushButton] = {}
        self._group = QButtonGroup(self)
        row: QLayout = QFlowLayout(self) if wraps else QHBoxLayout(self)
        row.setContentsMargins(_GAP, _GAP, _GAP, _GAP)
        row.setSpacing(_GAP)
        for value, words in options:
            each = button(words, kind="segment", parent=self)
            each.setCheckable(True)
            each.setAutoExclusive(True)  # a radio button to screen readers, not a check box
            each.setAccessibleDescription(name)
            self._group.addButton(each)
            self._buttons[value] = each
            row.addWidget(each)
        self._value = options[0][0]
        self._buttons[self._value].setChecked(True)
        self._update_focus()
        self._group.buttonToggled.connect(self._on_toggled)

    def sizeHint(self) -> QSize:
        """One line."""
        if not self._wraps:
            return super().sizeHint()
        hints = [each.sizeHint() for each in self._buttons.values()]
        # The layout breaks a line that ends at its very last pixel.
        return QSize(sum(hint.width() + _GAP for hint in hints) + 2 * _GAP, max(hint.height() for hint in hints) + 6)

    @property
    def value(self) -> str:
        """The chosen value."""
        return self._value

    def set_value(self, value: str) -> None:
        """Chooses a value; KeyError when it is not among the options."""
        self._buttons[value].setChecked(True)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right move the choice."""
        steps = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}
        step = steps.get(Qt.Key(event.key()))
        if step is None:
            super().keyPressEvent(event)
            return
        values = list(self._buttons)
        chosen = self._buttons[values[(values.index(self._value) + step) % len(values)]]
        chosen.setChecked(True)
        chosen.setFocus(Qt.FocusReason.TabFocusReason)

    def _on_toggled(self, _button: QPushButton, checked: bool) -> None:
        if not checked:
            return
        self._value = next(value for value, each in self._buttons.items() if each.isChecked())
        self._update_focus()
        self.changed.emit(self._value)

    def _update_focus(self) -> None:
        for value, each in self._buttons.items():
            chosen = value == self._value
            each.setFocusPolicy(Qt.FocusPolicy.StrongFocus if chosen else Qt.FocusPolicy.ClickFocus)
