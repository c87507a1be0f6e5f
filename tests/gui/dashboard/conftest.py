"""The page of one run on a real run folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tunesmith_core.runs import Run
from tunesmith_gui.dashboard.page import DashboardPage


@pytest.fixture
def open_dashboard(context: Any, qtbot: Any) -> Callable[[Run], DashboardPage]:
    def show(run: Run) -> DashboardPage:
        page = DashboardPage(context)
        qtbot.addWidget(page)
        page.resize(1000, 700)
        page.show()
        page.on_shown(run.id)
        qtbot.waitUntil(lambda: page.charts is not None and page.spec is not None, timeout=20_000)
        qtbot.waitUntil(lambda: page._follow is not None and page._follow.caught_up, timeout=5000)
        page._repaint()
        return page

    return show
