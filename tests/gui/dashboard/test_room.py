"""What comes to a run's page while it loads has its room before it is painted, also on a busy computer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped_now
from tests.gui.run_folders import make_run
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run
from tunesmith_gui.dashboard.model import pack
from tunesmith_gui.dashboard.page import DashboardPage

BESIDE_THE_RAIL = (960, 640)
"""The page in a window of 1024 x 640."""

LONG = "Rows left out because their answers begin beyond the context length of 256 tokens: 212 of 1,240. " * 2


@pytest.fixture
def live() -> Iterator[Run]:
    run = make_run("live")
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    run.lease_path.write_text("{}")
    yield run
    lock.release()


@pytest.fixture
def loading(context: Any, qtbot: Any, live: Run, monkeypatch: pytest.MonkeyPatch) -> DashboardPage:
    """The page of a run that loads its model, without charts yet."""
    with monkeypatch.context() as without_charts:
        without_charts.setattr(DashboardPage, "_build_charts", lambda _page, _imported: None)
        page = DashboardPage(context)
        qtbot.addWidget(page)
        page.resize(*BESIDE_THE_RAIL)
        page.show()
        qtbot.waitExposed(page)
        page.on_shown(live.id)
        settle()
    page._tick.stop()
    tell(page, ("hello", {"device_name": "Test CPU"}), ("phase", {"name": "model"}))
    settle()
    return page


def tell(page: DashboardPage, *events: tuple[str, dict[str, Any]]) -> None:
    page._receive(pack([Event(number, 1000.0 + number, *event) for number, event in enumerate(events)]))
    page._repaint()


def squeezed(page: DashboardPage) -> list[str]:
    """What the page's layouts have not made room for by now."""
    whole = page._area.widget()
    layout = whole.layout()
    assert layout is not None
    wanted = max(layout.minimumSize().height(), layout.heightForWidth(whole.width()))
    missing = [f"{wanted} px wanted, {whole.height()} given"] if whole.height() < wanted else []
    return [*missing, *clipped_now(page)]


def test_charts_that_arrive_have_room_at_once(loading: DashboardPage) -> None:
    assert squeezed(loading) == []
    loading._build_charts(None)
    assert squeezed(loading) == []
    assert loading._area.verticalScrollBar().maximum() > 0, "there is more than the window shows"


def test_nothing_of_what_was_there_before_lies_over_the_charts(loading: DashboardPage) -> None:
    before = loading.panes._shown["charts"]
    loading._build_charts(None)
    assert before.isHidden()
    assert loading.charts is not None
    shown = [each for each in loading.charts.samples.findChildren(QWidget) if each.isVisible()]
    assert [each for each in shown if type(each).__name__ == "StatusChip"] == []


@pytest.mark.parametrize("pane", ["charts", "samples", "settings"])
def test_a_warning_that_arrives_has_room_at_once(loading: DashboardPage, pane: str) -> None:
    loading._build_charts(None)
    loading.panes.show_pane(pane)
    settle()
    tell(loading, ("warning", {"code": "dataset-rows-unlearned", "message": LONG, "hint": "Nothing has to be done."}))
    assert loading._banner is not None
    assert loading._banner.isVisible()
    assert squeezed(loading) == []
    loading.show_notice("warn", "The base model is in the trash", LONG, ())
    assert loading._notice is not None
    assert loading._notice.isVisible()
    assert squeezed(loading) == []


def test_another_part_of_the_run_has_room_at_once(loading: DashboardPage) -> None:
    loading._build_charts(None)
    settle()
    for pane in ("samples", "charts", "evaluation"):
        loading.panes.show_pane(pane)
        assert squeezed(loading) == []


def test_nothing_is_painted_before_all_is_told(loading: DashboardPage, qapp: QApplication) -> None:
    class Painted(QObject):
        num_paints = 0

        def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
            self.num_paints += event.type() == QEvent.Type.Paint
            return False

    loading._build_charts(None)
    settle()
    painted = Painted(loading)
    qapp.installEventFilter(painted)
    gpu = {"device": "cuda:0", "device_bytes": 3 << 30, "reserved_bytes": 3 << 30, "total_bytes": 4 << 30}
    step = {"step": 1, "loss": 2.79, "tokens_per_s": 512.0, "step_s": 1.0}
    tell(loading, ("setup", {"total_steps": 465}), ("gpu", gpu), ("step", step))
    qapp.removeEventFilter(painted)
    assert painted.num_paints == 0
    assert loading.charts is not None
    assert loading.charts.device.memory._bar.value() == 750


def test_no_button_is_there_before_it_is_known_what_the_run_allows(context: Any, qtbot: Any) -> None:
    page = DashboardPage(context)
    qtbot.addWidget(page)
    page.show()
    header = page.header
    shown = [each.text() for each in header.findChildren(QPushButton) if each.isVisible() and each.text()]
    assert shown == []
    settle()
