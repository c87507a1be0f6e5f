"""A table of a million rows: how long the window stands still while rows are read, scrolled through and found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from tests.bench.budget import own_s, report
from tests.bench.test_gui_budgets import spin
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.rows import Rows
from tunesmith_gui.theme import Scheme, theme

NUM_ROWS = 1_000_000
STALL_MS = 50
BEAT_MS = 5

pytestmark = pytest.mark.usefixtures("own_garbage")


@pytest.fixture(scope="module")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "million.jsonl"
    answer = "water it in the evening and keep the leaves dry " * 6
    with path.open("w", encoding="utf-8") as file:
        for row in range(NUM_ROWS):
            line = {"question": f"What does plant {row} need?", "answer": f"{row}: {answer}", "score": row % 100}
            file.write(json.dumps(line) + "\n")
    return path


class Beats(QObject):
    """Measures how long the window stood still by itself: a busy machine lets it wait besides."""

    def __init__(self) -> None:
        super().__init__()
        self._last_s = self._worst_s = 0.0
        self._timer = QTimer(self)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._beat)

    def _beat(self) -> None:
        now_s = own_s()
        self._worst_s = max(self._worst_s, now_s - self._last_s - BEAT_MS / 1000)
        self._last_s = now_s

    def worst_ms(self, action: Callable[[], object]) -> float:
        """Do something; return the longest time without a beat meanwhile."""
        self._last_s, self._worst_s = own_s(), 0.0
        self._timer.start(BEAT_MS)
        action()
        self._timer.stop()
        self._beat()
        return self._worst_s * 1000


class Pictures(QObject):
    """Counts how often a widget is painted."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.number = 0
        widget.installEventFilter(self)

    def eventFilter(self, _widget: QObject, event: QEvent) -> bool:
        self.number += event.type() == QEvent.Type.Paint
        return False

    def after(self, action: Callable[[], object]) -> None:
        """Do something that changes the picture, and wait for the new one."""
        before = self.number
        action()
        spin(lambda: self.number > before)


@pytest.fixture
def open_grid(data_file: Path, home: Path, qapp: QApplication) -> Iterator[Callable[[], Grid]]:
    """Shows the file in a new grid at each call, whose reading has just begun."""
    del home, qapp
    theme().install(Scheme.LIGHT, 1.0)
    windows: list[tuple[QWidget, Grid]] = []

    def close() -> None:
        for window, grid in windows:
            grid.finder.cancel()
            grid.rows.close()
            window.deleteLater()
        windows.clear()

    def show() -> Grid:
        close()
        window = QWidget()
        rows = Rows(SourceSpec(path=str(data_file)), "jsonl", window)
        grid = Grid(rows, ("question", "answer", "score"), data_file, window)
        windows.append((window, grid))
        window.resize(1100, 700)
        grid.resize(1100, 700)
        Pictures(grid).after(window.show)
        return grid

    yield show
    close()


def read(grid: Grid) -> None:
    spin(lambda: grid.rows.is_complete)
    assert len(grid.rows) == NUM_ROWS


def scroll(grid: Grid) -> None:
    """Show rows of the beginning, of the whole file and on the way back, each painted before the next is asked for."""
    bar, pictures = grid.table.verticalScrollBar(), Pictures(grid.table.viewport())
    for place in (*range(1, 3000, 21), *(bar.maximum() * step // 200 for step in range(201)), *range(3000, 0, -31)):
        pictures.after(lambda: bar.setValue(place))  # noqa: B023


def find(grid: Grid) -> None:
    grid.finder.look_for("plant 99999")
    spin(lambda: not grid.finder.is_looking)
    assert len(grid.finder.places) == 11


def keep_only_found(grid: Grid) -> None:
    pictures = Pictures(grid.table.viewport())
    for only_found in (True, False):
        pictures.after(lambda: grid.only_found.setChecked(only_found))  # noqa: B023


def test_a_million_rows_never_stall_the_window(open_grid: Callable[[], Grid]) -> None:
    beats = Beats()
    grids: list[Grid] = []

    def worst_ms(action: Callable[[Grid], object]) -> float:
        return beats.worst_ms(lambda: action(grids[-1]))

    def worst_ms_of_reading() -> float:
        grids.append(open_grid())
        return worst_ms(read)

    rows = {
        "they are read": worst_ms_of_reading,
        "scrolling": lambda: worst_ms(scroll),
        "finding": lambda: worst_ms(find),
        "filtering": lambda: worst_ms(keep_only_found),
    }
    for what, measure in rows.items():
        report(f"1 M rows, worst stall while {what}", measure, STALL_MS, "ms", own_s)
