"""One number with its name above it, and a number as a part of a whole: the tiles and meters of a dashboard."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QSizePolicy, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.safe_label import ElidedLabel, SafeLabel

UNKNOWN = "–"
"""Shown where a number is not known."""


class StatTile(QWidget):
    """A muted name and a large value; `detail` stands muted behind the value."""

    def __init__(self, name: str, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        self.name = ElidedLabel(name, role="caption", tone="muted", parent=self)
        self.name.setMinimumWidth(0)
        column.addWidget(self.name)
        row = QHBoxLayout()
        row.setSpacing(SPACE // 2)
        self.value = SafeLabel(UNKNOWN, role="heading", parent=self)
        self.detail = ElidedLabel("", role="caption", tone="muted", parent=self)
        self.detail.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        row.addWidget(self.value)
        row.addWidget(self.detail, 1)
        column.addLayout(row)

    def set_value(self, value: str, detail: str = "") -> None:
        """Show another value."""
        if value != self.value.text():
            self.value.setText(value)
        if detail != self.detail.text():
            self.detail.setText(detail)
        self.setAccessibleName(f"{self._name}: {value} {detail}".strip())


class Meter(QWidget):
    """A named bar: how much of something is in use."""

    def __init__(self, name: str, *, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE // 2)
        row = QHBoxLayout()
        self.name = SafeLabel(name, role="caption", tone="muted", parent=self)
        self.value = SafeLabel(UNKNOWN, role="strong", parent=self)
        row.addWidget(self.name)
        row.addStretch(1)
        row.addWidget(self.value)
        column.addLayout(row)
        self._bar = QProgressBar(self)
        self._bar.setRange(0, 1000)
        self._bar.setTextVisible(False)
        column.addWidget(self._bar)

    def set_name(self, name: str) -> None:
        """Name something else."""
        self._name = name
        self.name.setText(name)

    def set_value(self, fraction: float, text: str) -> None:
        """Show a share of 0 to 1 with its words."""
        self._bar.setValue(round(min(max(fraction, 0.0), 1.0) * 1000))
        if text != self.value.text():
            self.value.setText(text)
        self._bar.setAccessibleName(f"{self._name}: {text}")
