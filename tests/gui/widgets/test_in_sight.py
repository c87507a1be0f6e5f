"""A control that a page was asked for stays in sight while the page grows, and no longer."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QPushButton, QScrollArea, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tunesmith_gui.widgets import in_sight
from tunesmith_gui.widgets.in_sight import InSight


def test_it_follows_while_the_page_grows_and_not_for_long(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_sight, "_STAY_MS", 300)
    area, holder = QScrollArea(), QWidget()
    qtbot.addWidget(area)
    above, wanted = QWidget(), QPushButton("Here")
    above.setFixedHeight(1000)
    column = QVBoxLayout(holder)
    column.addWidget(above)
    column.addWidget(wanted)
    area.setWidgetResizable(True)
    area.setWidget(holder)
    area.resize(200, 200)
    area.show()
    follower = InSight(area, wanted)
    qtbot.waitUntil(lambda: not wanted.visibleRegion().isEmpty(), timeout=5000)
    above.setFixedHeight(3000)
    qtbot.waitUntil(lambda: area.verticalScrollBar().maximum() > 2000, timeout=5000)
    with qtbot.waitSignal(follower.destroyed, timeout=5000):
        qtbot.waitUntil(lambda: wanted.visibleRegion().boundingRect().height() == wanted.height(), timeout=200)
    above.setFixedHeight(5000)
    settle()
    assert wanted.visibleRegion().isEmpty(), "a person who reads on isn't pulled back"
