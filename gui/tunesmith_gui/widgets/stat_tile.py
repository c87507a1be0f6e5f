"""One number with its name above it, and a number as a part of a whole: the tiles and meters of a dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QVBoxLayout, QWidget

from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.progress_bar import ProgressBar
from tunesmith_gui.widgets.safe_label import SafeLabel

UNKNOWN = "–"
"""Shown where a number is not known."""


class StatTile(QWidget):
    """A muted name and a large value; `detail` stands muted behind the value. It is never narrower than its words.

    Args:
        role: type size of the value, heading or hero.
    """

    def __init__(self, name: str, *, role: str = "heading", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        self.name = SafeLabel(name, role="caption", tone="muted", parent=self)
        column.addWidget(self.name)
        row = QHBoxLayout()
        row.setSpacing(SPACE // 2)
        self.value = SafeLabel(UNKNOWN, role=role, tone="muted", parent=self)
        self.detail = SafeLabel("", role="caption", tone="muted", parent=self)
        row.addWidget(self.value, 0, Qt.AlignmentFlag.AlignBottom)
        beside = QVBoxLayout()
        # Near the line that a large value stands on.
        beside.setContentsMargins(0, 0, 0, SPACE // 2 if role == "hero" else 0)
        beside.addWidget(self.detail, 0, Qt.AlignmentFlag.AlignBottom)
        row.addLayout(beside, 1)
        column.addLayout(row, 1)

    def set_name(self, name: str) -> None:
        """Name something else."""
        self._name = name
        self.name.setText(name)

    def set_value(self, value: str, detail: str = "") -> None:
        """Show another value."""
        if value != self.value.text():
            self.value.setText(value)
            self.value.set_tone("muted" if value == UNKNOWN else "text")
        if detail != self.detail.text():
            self.detail.setText(detail)
        self.setAccessibleName(f"{self._name}: {value} {detail}".strip())


class TileGrid(QWidget):
    """Tiles in columns of one width, as many as fit the widest tile."""

    def __init__(self, tiles: Sequence[StatTile], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tiles = tuple(tiles)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setHorizontalSpacing(SPACE * 2)
        self._grid.setVerticalSpacing(SPACE * 3 // 2)
        self._arranged: tuple[int, tuple[StatTile, ...]] = (0, ())
        self._arrange()

    def minimumSizeHint(self) -> QSize:
        """As narrow as the widest tile."""
        return QSize(self._widest_px(), super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Other columns where the width asks for them."""
        super().resizeEvent(event)
        self._arrange()

    def event(self, event: QEvent) -> bool:
        """Longer words or another font size may ask for other columns."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._arrange()
        return super().event(event)

    def _widest_px(self) -> int:
        return max((tile.sizeHint().width() for tile in self._tiles if not tile.isHidden()), default=0)

    def _arrange(self) -> None:
        shown = tuple(tile for tile in self._tiles if not tile.isHidden())
        gap = self._grid.horizontalSpacing()
        columns = max(1, min(len(shown), (self.width() + gap) // max(self._widest_px() + gap, 1)))
        if (columns, shown) == self._arranged:
            return
        self._arranged = (columns, shown)
        for place, tile in enumerate(shown):
            self._grid.addWidget(tile, place // columns, place % columns)
        for column in range(len(self._tiles)):
            self._grid.setColumnStretch(column, 1 if column < columns else 0)


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
        self._bar = ProgressBar(self)
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
