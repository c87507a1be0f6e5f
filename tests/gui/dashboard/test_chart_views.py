"""A chart seen large leaves nothing behind when it closes."""

from __future__ import annotations

from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from tunesmith_gui.dashboard.chart_card import ChartCard
from tunesmith_gui.dashboard.chart_views import LargeChartDialog
from tunesmith_gui.widgets.metric_plot import Line


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
