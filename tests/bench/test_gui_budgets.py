"""The window's budgets as tests: start, chart, flood, opening a long run, memory, filter, and Python's None.

Each test prints a row of figures, see budget.py.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PySide6.QtCore import QEventLoop, QObject, QTimer
from PySide6.QtWidgets import QApplication

from tests.bench.budget import report
from tunesmith_core.protocol import Event, encode
from tunesmith_core.runs import RunState
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.models.run_row import RunRow
from tunesmith_gui.runs.table import RunFilter, RunTableModel
from tunesmith_gui.services.journal_tail import JournalTail
from tunesmith_gui.shell.stall_watchdog import StallWatchdog
from tunesmith_gui.widgets.safe_label import SafeLabel

NUM_STEPS = 100_000
FOLDERS = [str(Path(__file__).parents[2] / name) for name in ("gui", "engine", "assets", "installers")]

pytestmark = pytest.mark.usefixtures("own_garbage")


def spin(until: Callable[[], bool], limit_s: float = 120.0) -> None:
    """Run the event loop, which lets other threads have the interpreter, until something is true."""
    end = time.perf_counter() + limit_s
    while not until():
        assert time.perf_counter() < end, "waited too long"
        loop = QEventLoop()
        QTimer.singleShot(5, loop.quit)
        loop.exec()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flood") / "events.jsonl"
    events = [Event(1, 1.0, "hello", {"resumed_from_step": 0}), Event(2, 1.0, "setup", {"total_steps": NUM_STEPS})]
    for step in range(1, NUM_STEPS + 1):
        data = {"step": step, "epoch": step / 1e4, "loss": 1.0 + step % 7, "lr": 1e-4, "grad_norm": 0.5}
        data |= {"tokens": step * 512, "tokens_per_s": 900.0, "step_s": 0.1, "vram_peak_bytes": 2**32}
        events.append(Event(step + 2, step * 0.1, "step", data))
    path.write_bytes(b"".join(encode(event) for event in events))
    return path


def ms_of(work: Callable[[], object]) -> float:
    """Return how long some work takes in ms."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


@pytest.mark.parametrize("text_scale", [1.0, 2.0])
def test_chart_of_100k_points(qtbot: Any, text_scale: float) -> None:
    from tunesmith_gui.models.metric_series import smooth
    from tunesmith_gui.theme import Scheme, theme
    from tunesmith_gui.widgets.metric_plot import Line, MetricPlot

    x = np.arange(float(NUM_STEPS))
    y = np.random.default_rng(0).normal(size=NUM_STEPS)
    smoothed = smooth(y, 0.9)
    theme().set_appearance(Scheme.LIGHT, text_scale)
    plot = MetricPlot("Loss")
    qtbot.addWidget(plot)
    plot.resize(800, 300)
    plot.show()

    def update() -> None:
        plot.set_lines([Line("loss", x, y, "raw"), Line("smoothed", x, smoothed, "smooth", filled=True)])
        plot.grab()

    update()
    qtbot.waitExposed(plot)
    QApplication.processEvents()  # the canvas was hidden while it was empty, and gets its size now
    report(f"chart update, 100 k points, with painting, at {text_scale:.0%}", lambda: ms_of(update), 16, "ms")
    theme().set_appearance(Scheme.LIGHT, 1.0)
    report("smoothing of 100 k points", lambda: ms_of(lambda: smooth(y, 0.9)), 50, "ms")


def test_flood_of_100k_events_never_stalls_the_window(
    caplog: pytest.LogCaptureFixture,  # stalls are what is measured, so their log is no surprise
    journal: Path,
    themed_app: QApplication,
) -> None:
    del themed_app
    took: list[float] = []

    def worst_stall_ms() -> float:
        owner, model = QObject(), DashboardModel()
        tail, watchdog = JournalTail(owner), StallWatchdog()
        try:
            spin(lambda: watchdog.worst_s > 0)
            watchdog.worst_s = 0.0
            start = time.perf_counter()
            follow = tail.follow(journal, pack, model.apply, pytest.fail)
            spin(lambda: follow.caught_up)
            took.append(time.perf_counter() - start)
        finally:
            tail.shutdown()
            watchdog.shutdown()
        assert len(model.steps) == NUM_STEPS
        return watchdog.worst_s * 1000

    report("flood of 100 k events, worst stall", worst_stall_ms, 50, "ms")
    report("flood of 100 k events, until all are in", lambda: min(took), 10, "s")


def test_first_curve_of_a_long_run(journal: Path, themed_app: QApplication) -> None:
    del themed_app

    def first_curve_ms() -> float:
        owner, model = QObject(), DashboardModel()
        tail = JournalTail(owner)
        start = time.perf_counter()
        tail.follow(journal, pack, model.apply, pytest.fail)
        spin(lambda: len(model.steps) > 0)
        took = (time.perf_counter() - start) * 1000
        tail.shutdown()
        return took

    report("long run, first curve", first_curve_ms, 300, "ms")


def test_filter_keystroke_over_5000_runs(themed_app: QApplication) -> None:
    del themed_app
    model = RunTableModel()
    rows = [
        RunRow(
            f"r{i}", Path("/r"), f"support-run-{i}", RunState.FINISHED, f"model-{i % 9}", "chats.jsonl", created_at=i
        )
        for i in range(5000)
    ]
    model.set_rows(rows)
    proxy = RunFilter(model)

    def worst_keystroke_ms() -> float:
        return max(ms_of(lambda: proxy.set_words(text)) for text in ("4", "49", "499", "49", "4", ""))  # noqa: B023

    report("filter keystroke, 5000 runs", worst_keystroke_ms, 50, "ms")
    assert proxy.rowCount() == 5000


@pytest.fixture
def themed_app(qapp: QApplication) -> QApplication:
    return qapp


def run_script(script: str, home: Path) -> list[str]:
    """Run a script in a process of its own and return the words it prints last."""
    code = f"import sys; sys.path[:0] = {FOLDERS!r}\n" + textwrap.dedent(script)
    environment = os.environ | {"TUNESMITH_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


def test_cold_start(tmp_path: Path) -> None:
    script = """
    import time; start = time.perf_counter()
    from PySide6.QtWidgets import QApplication
    app = QApplication([])
    from tunesmith_core.settings import SettingsFile
    from tunesmith_gui.context import Context
    from tunesmith_gui.shell.main_window import MainWindow
    from tunesmith_gui.services.preferences import Preferences
    from tunesmith_gui.theme import Scheme, theme
    theme().install(Scheme.LIGHT, 1.0)
    context = Context(Preferences(SettingsFile()))
    window = MainWindow(context)
    window.show()
    app.processEvents()
    sys.stdout.write(f"{time.perf_counter() - start}")
    sys.stdout.flush()
    import os; os._exit(0)
    """
    homes = itertools.count()

    def start_ms() -> float:
        return float(run_script(script, tmp_path / str(next(homes)))[-1]) * 1000

    report("start of the window until it is painted", start_ms, 1500, "ms")


def test_memory_with_four_charts(tmp_path: Path) -> None:
    script = """
    import os, numpy as np, psutil
    from PySide6.QtWidgets import QApplication
    app = QApplication([])
    from tunesmith_gui.theme import Scheme, theme
    theme().install(Scheme.LIGHT, 1.0)
    from tunesmith_gui.dashboard.charts import DashboardCharts
    from tunesmith_gui.dashboard.model import STEP_COLUMNS, DashboardModel
    model = DashboardModel()
    model.steps.extend(np.random.default_rng(0).random((100_000, len(STEP_COLUMNS))).cumsum(axis=0))
    charts = DashboardCharts(); charts.resize(1000, 800); charts.show(); charts.show_model(model); charts.grab()
    sys.stdout.write(str(psutil.Process().memory_info().rss / 2**20)); sys.stdout.flush(); os._exit(0)
    """
    report("memory with four charts of 100 k steps", lambda: float(run_script(script, tmp_path)[-1]), 250, "MiB")


def test_setting_texts_loses_no_reference_to_none(qtbot: Any) -> None:
    label = SafeLabel("")
    qtbot.addWidget(label)
    before = sys.getrefcount(None)
    for number in range(1000):
        label.setText(str(number))
    # A binding that forgets to take a reference ends the process after some hours; newer Pythons count None for ever.
    assert sys.getrefcount(None) >= before - 50
    assert psutil.Process().is_running()
