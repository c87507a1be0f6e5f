"""A card with one chart, what is under the pointer, and the chart's menu."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFileDialog, QMenu, QSizePolicy, QWidget

from tunesmith_core.files import atomic_write_text
from tunesmith_gui.dashboard.chart_views import ChartTableDialog, LargeChartDialog, lines_csv
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.metric_plot import MetricPlot
from tunesmith_gui.widgets.safe_label import ElidedLabel


class ChartCard(Card):
    """Heading, readout, chart and menu.

    Attributes:
        plot: the chart.
    """

    def __init__(self, title: str, *, x_word: str, height_px: int, parent: QWidget | None = None) -> None:
        super().__init__(title, parent=parent)
        self._title = title
        self.plot = MetricPlot(title, x_word=x_word, parent=self)
        self._height_px = height_px
        self.plot.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._readout = ElidedLabel("", role="caption", tone="muted", parent=self)
        self._readout.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._readout.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.add_action(self._readout)
        self._more = IconButton("more", f"{title}: " + self.tr("chart menu"), self._open_menu, parent=self)
        self.add_action(self._more)
        self.body.addWidget(self.plot, 1)
        self.body.setSpacing(SPACE)
        self.plot.hovered.connect(self._readout.setText)
        self.plot.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.plot.customContextMenuRequested.connect(lambda at: self._menu().exec(self.plot.mapToGlobal(at)))
        theme().changed.connect(self._scale)
        self._scale()

    def enlarge(self) -> None:
        """Show the chart over the whole screen."""
        LargeChartDialog(self._title, self.plot, self.window()).exec()

    def _scale(self) -> None:
        self.plot.setMinimumHeight(round(self._height_px * theme().font_scale))

    def _open_menu(self) -> None:
        self._menu().exec(self._more.mapToGlobal(QPoint(0, self._more.height())))

    def _menu(self) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(self.tr("Copy image"), lambda: QGuiApplication.clipboard().setImage(self.plot.image()))
        menu.addAction(self.tr("Save CSV…"), self._save_csv)
        menu.addAction(self.tr("Show as table"), self._show_table)
        menu.addAction(self.tr("Full screen"), self.enlarge)
        menu.addSeparator()
        menu.addAction(self.tr("Fit"), self.plot.fit)
        return menu

    def _show_table(self) -> None:
        ChartTableDialog(self._title, self.plot.lines, self.plot.x_word, self.window()).exec()

    def _save_csv(self) -> None:
        path, _kind = QFileDialog.getSaveFileName(self, self.tr("Save CSV"), f"{self._title}.csv", "CSV (*.csv)")
        if path:
            atomic_write_text(Path(path), lines_csv(self.plot.lines, self.plot.x_word))
