"""A table of a million rows: how long the window stands still while rows are read, scrolled through and found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QWidget

from tests.bench.budget import report
from tests.bench.test_gui_budgets import spin
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data.grid import Grid
from tunesmith_gui.data.rows import Rows
from tunesmith_gui.shell.stall_watchdog import StallWatchdog
from tunesmith_gui.theme import Scheme, theme

NUM_ROWS = 1_000_000
STALL_MS = 50


@pytest.fixture(scope="module")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "million.jsonl"
    answer = "water it in the evening and keep the leaves dry " * 6
    with path.open("w", encoding="utf-8") as file:
        for row in range(NUM_ROWS):
            line = {"question": f"What does plant {row} need?", "answer": f"{row}: {answer}", "score": row % 100}
            file.write(json.dumps(line) + "\n")
    return path


@pytest.fixture
def read_grid(data_file: Path, home: Path, qapp: QApplication) -> Iterator[Callable[[], Grid]]:
    """Reads the file into a new grid at each call."""
    del home, qapp
    theme().install(Scheme.LIGHT, 1.0)
    windows: list[tuple[QWidget, Grid]] = []

    def close() -> None:
        for window, grid in windows:
            grid.finder.cancel()
            grid.rows.close()
            window.deleteLater()
        windows.clear()

    def read() -> Grid:
        close()
        window = QWidget()
        rows = Rows(SourceSpec(path=str(data_file)), "jsonl", window)
        grid = Grid(rows, ("question", "answer", "score"), data_file, window)
        windows.append((window, grid))
        window.resize(1100, 700)
        grid.resize(1100, 700)
        window.show()
        spin(lambda: grid.rows.is_complete)
        assert len(grid.rows) == NUM_ROWS
        return grid

    yield read
    close()


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


def test_a_million_rows_never_stall_the_window(caplog: pytest.LogCaptureFixture, read_grid: Callable[[], Grid]) -> None:
    del caplog  # What the watchdog logs is judged here, by the budgets.
    watchdog = StallWatchdog()
    grids: list[Grid] = []

    def worst_ms(action: Callable[[], object]) -> float:
        # What stood still before, such as the yardstick of the row above, is not this action's.
        spin(lambda: watchdog.worst_s > 0)
        watchdog.worst_s = 0.0
        action()
        spin(lambda: watchdog.worst_s > 0)
        return watchdog.worst_s * 1000

    def while_doing(action: Callable[[Grid], object]) -> Callable[[], float]:
        return lambda: worst_ms(lambda: action(grids[-1]))

    rows = {
        "they are read": lambda: worst_ms(lambda: grids.append(read_grid())),
        "scrolling": while_doing(scroll),
        "finding": while_doing(find),
        "filtering": while_doing(keep_only_found),
    }
    for what, measure in rows.items():
        report(f"1 M rows, worst stall while {what}", measure, STALL_MS, "ms")
    watchdog.shutdown()
