"""A chart seen another way: large, or as a table that a screen reader and a spreadsheet understand."""

from __future__ import annotations

import csv
import io

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QTableWidget, QVBoxLayout, QWidget

from tunesmith_gui import plain_text
from tunesmith_gui.plain_text import table_item, window_title
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.tr import translate
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.metric_plot import Line, MetricPlot
from tunesmith_gui.widgets.safe_label import SafeLabel

MAX_TABLE_ROWS = 500


def mouse_help() -> str:
    """What the mouse does in a chart."""
    return translate(
        "Charts",
        "Drag to zoom into an area. Hold Shift to move instead. Double-click to show everything.\n"
        "Turn the wheel to zoom after a click on the chart, or with Ctrl held.\n"
        "Click a symbol in the legend to hide its line.",
    )


def lines_csv(lines: list[Line], x_title: str) -> str:
    """Every point of the curves as CSV: line name, x, value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["line", x_title, "value"])
    for line in lines:
        writer.writerows((line.name, f"{x:.10g}", f"{y:.10g}") for x, y in zip(line.x, line.y, strict=True))
    return out.getvalue()


class ChartTableDialog(QDialog):
    """The curves as a table of at most MAX_TABLE_ROWS evenly spaced rows each."""

    def __init__(self, title: str, lines: list[Line], x_title: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(window_title(title))
        self.resize(SPACE * 70, SPACE * 70)
        column = QVBoxLayout(self)
        column.addWidget(SafeLabel(title, role="heading", parent=self))
        rows = [(line.name, x, y) for line in lines for x, y in _some(line)]
        self.table = QTableWidget(len(rows), 3, self)
        self.table.setAccessibleName(title)
        self.table.setHorizontalHeaderLabels([self.tr("Line"), plain_text.line(x_title), self.tr("Value")])
        self.table.verticalHeader().hide()
        self.table.setEditTriggers(QTableWidget.EditTrigger.NoEditTriggers)
        self.table.setShowGrid(False)
        self.table.horizontalHeader().setStretchLastSection(True)
        for place, (name, x, y) in enumerate(rows):
            for index, text in enumerate((name, f"{x:.6g}", f"{y:.6g}")):
                item = table_item(text)
                if index:
                    item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
                self.table.setItem(place, index, item)
        self.table.resizeColumnsToContents()
        column.addWidget(self.table)


def _some(line: Line) -> list[tuple[float, float]]:
    if not len(line.x):
        return []
    chosen = np.unique(np.linspace(0, len(line.x) - 1, min(MAX_TABLE_ROWS, len(line.x))).astype(np.intp))
    return list(zip(line.x[chosen].tolist(), line.y[chosen].tolist(), strict=True))


class LargeChartDialog(QDialog):
    """A chart over the whole screen that goes on with its original; F11 or Esc closes it."""

    def __init__(self, title: str, original: MetricPlot, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(window_title(title))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowState(Qt.WindowState.WindowFullScreen)
        column = QVBoxLayout(self)
        column.setContentsMargins(SPACE * 3, SPACE * 3, SPACE * 3, SPACE * 3)
        card = Card(title, parent=self)
        card.add_action(IconButton("close", self.tr("Close (Esc)"), self.close, parent=card))
        self._original, self._plot = original, MetricPlot(title, y_title=original.y_title, parent=card)
        # A method, not a lambda: Qt disconnects it when the dialog is destroyed.
        original.lines_changed.connect(self._show_lines)
        self._show_lines()
        card.body.addWidget(self._plot, 1)
        card.body.addWidget(SafeLabel(mouse_help(), role="caption", tone="muted", parent=card))
        column.addWidget(card)
        QShortcut(QKeySequence("F11"), self, self.close)

    def _show_lines(self) -> None:
        self._plot.copy_from(self._original)
