"""A card with one chart and its menu, and what the chart's x axis counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from tunesmith_core.files import atomic_write_text
from tunesmith_gui.dashboard.chart_views import ChartTableDialog, LargeChartDialog, lines_csv, mouse_help
from tunesmith_gui.models.metric_series import Floats
from tunesmith_gui.plain_text import set_tip
from tunesmith_gui.theme import theme
from tunesmith_gui.tokens import SPACE
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.card import Card
from tunesmith_gui.widgets.metric_plot import MetricPlot
from tunesmith_gui.widgets.save_file import ask_where_to_save

Numbers = TypeVar("Numbers", float, Floats)


@dataclass(frozen=True, slots=True)
class Scale:
    """What an x axis counts.

    Attributes:
        column: of a run's series: step, tokens or t.
        title: words for a person, with the unit.
        zero, unit: the column's value at the left end, and what 1 on the axis is worth.
    """

    column: str
    title: str
    zero: float = 0.0
    unit: float = 1.0

    def places(self, values: Numbers) -> Numbers:
        """Turn values of the column into places on the axis."""
        return values if self.unit == 1.0 and not self.zero else (values - self.zero) / self.unit

    def value(self, place: float) -> float:
        """Turn a place on the axis into a value of the column."""
        return place * self.unit + self.zero


class ChartCard(Card):
    """Heading, chart and menu.

    Attributes:
        plot: the chart.
        scale: what its x axis counts.
    """

    def __init__(self, title: str, y_title: str, *, height_px: int, parent: QWidget | None = None) -> None:
        super().__init__(title, parent=parent)
        self._title = title
        self.plot = MetricPlot(title, y_title=y_title, parent=self)
        self.scale = Scale("step", self.tr("Step"))
        self._height_px = height_px
        self.plot.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._more = IconButton("more", f"{title}: " + self.tr("chart menu"), self._open_menu, parent=self)
        set_tip(self._more, mouse_help())
        self.add_action(self._more)
        self.body.addWidget(self.plot, 1)
        self.body.setSpacing(SPACE)
        self.plot.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.plot.customContextMenuRequested.connect(lambda at: self._menu().exec(self.plot.mapToGlobal(at)))
        theme().changed.connect(self._scale)
        self._scale()

    def set_scale(self, scale: Scale, end: float = 0.0) -> None:
        """Let the x axis count something, up to `end` at least."""
        self.scale = scale
        self.plot.set_x(scale.title, whole=scale.column != "t", end=end)

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
        menu.addAction(self.tr("Show all"), self.plot.fit)
        return menu

    def _show_table(self) -> None:
        ChartTableDialog(self._title, self.plot.lines, self.plot.x_title, self.window()).exec()

    def _save_csv(self) -> None:
        path = ask_where_to_save(self, self.tr("Save CSV"), f"{self._title}.csv", "CSV (*.csv)")
        if path is not None:
            atomic_write_text(path, lines_csv(self.plot.lines, self.plot.x_title))
