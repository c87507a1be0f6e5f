"""A chart seen large leaves nothing behind when it closes."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from tunesmith_gui.dashboard.chart_card import ChartCard
from tunesmith_gui.dashboard.chart_views import LargeChartDialog
from tunesmith_gui.widgets.buttons import IconButton
from tunesmith_gui.widgets.metric_plot import Line, MetricPlot


def test_closed_large_chart_is_gone_and_later_steps_reach_only_the_original(qtbot: Any) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    card = ChartCard("Loss", "Loss", height_px=200, parent=window)
    QTimer.singleShot(0, lambda: [dialog.close() for dialog in window.findChildren(LargeChartDialog)])

    card.enlarge()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)

    assert window.findChildren(LargeChartDialog) == []
    line = Line("loss", np.arange(3.0), np.ones(3))
    card.plot.set_lines([line])  # An exception in a slot fails the test.
    assert card.plot.lines == [line]


def test_large_chart_goes_on_with_its_original_and_has_a_button_to_close(qtbot: Any) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    card = ChartCard("Loss", "Loss", height_px=200, parent=window)
    dialog = LargeChartDialog("Loss", card.plot, window)
    dialog.show()
    line = Line("loss", np.arange(3.0), np.ones(3))
    card.plot.set_x("Time (min)", whole=False)
    card.plot.set_lines([line])
    large = dialog.findChild(MetricPlot)
    assert (large.lines, large.x_title, large.y_title) == ([line], "Time (min)", "Loss")
    [close] = [each for each in dialog.findChildren(IconButton) if each.accessibleName() == "Close (Esc)"]
    QTest.mouseClick(close, Qt.MouseButton.LeftButton)
    assert not dialog.isVisible()
