"""Drives the real window with mouse and keyboard, as a process of its own: usage in `test_real_window.py`.

Does what a person does: type a model, drop data, change settings, start, look at the charts, stop and save, resume,
finish. Takes a screenshot at each station and writes what it saw as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from PySide6.QtCore import QEventLoop, QMimeData, QPoint, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from tunesmith_gui.app import App
from tunesmith_gui.dashboard.stop_run import StopRunDialog
from tunesmith_gui.theme import Scheme, theme

OneDriver = TypeVar("OneDriver", bound="Driver")
LIMIT_S = 300.0
NUM_STEPS = 400


def rest(seconds: float) -> None:
    """Let the window live for a while; unlike QTest.qWait this leaves the interpreter to worker threads."""
    loop = QEventLoop()
    QTimer.singleShot(round(seconds * 1000), loop.quit)
    loop.exec()


def wait_for(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit_s:g} s for {what}")
        rest(0.05)


def click(widget: QWidget) -> None:
    """Click the middle of a widget."""
    QTest.mouseClick(widget, Qt.MouseButton.LeftButton)


def drop_file(window: QWidget, path: Path) -> None:
    """Drop a file onto the window."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    copy, left, none = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    QApplication.sendEvent(window, QDragEnterEvent(QPoint(300, 300), copy, data, left, none))
    QApplication.sendEvent(window, QDropEvent(QPointF(300, 300), copy, data, left, none))


class Driver:
    """One person at the window.

    Attributes:
        seen: what is asserted by the test.
    """

    def __init__(self, app: App, shots: Path) -> None:
        self.app = app
        self.window = app.window
        self.shots = shots
        self.seen: dict[str, Any] = {}

    def shoot(self, name: str) -> None:
        """Take a screenshot."""
        rest(0.4)
        self.window.grab().save(str(self.shots / f"{name}.png"))

    @property
    def page(self) -> Any:  # Any: each page has widgets of its own
        """The page in front."""
        return self.window.pages.currentWidget()

    def fill_form(self, model: Path, data: Path) -> None:
        """Choose model by keyboard, data by dropping, a name and the number of steps by keyboard."""
        wait_for(lambda: hasattr(self.page, "model_picker"), "the Train page")
        page = self.page
        self.shoot("train-empty")
        line = page.model_picker.combo.lineEdit()
        click(line)
        QTest.keyClicks(line, str(model))
        QTest.keyClick(line, Qt.Key.Key_Return)
        drop_file(self.window, data)
        wait_for(lambda: page.form.value("data.sources[0].path") == str(data), "the dropped file")
        click(page.settings_list.toggle)
        wait_for(lambda: page.settings_list.is_open, "the list of settings")
        for path, keys in {
            "schedule.max_steps": str(NUM_STEPS),
            "schedule.micro_batch_size": "4",
            "schedule.gradient_accumulation_steps": "1",
            "hardware.cpu_threads": "1",
            "data.context_length": "128",
            "evaluation.every_steps": "100",
        }.items():
            self.type_setting(path, keys)
        self.shoot("train-filled")
        wait_for(lambda: page.start_bar.start.isEnabled(), f"Start, which says {page.start_bar.start.text()!r}")

    def type_setting(self, path: str, keys: str) -> None:
        """Type a setting's value into its box."""
        rows = self.page.settings_list
        wait_for(lambda: any(r.setting.path == path for r in rows.findChildren(QWidget) if hasattr(r, "setting")), path)
        (row,) = [r for r in rows.findChildren(QWidget) if hasattr(r, "setting") and r.setting.path == path]
        row.control.setFocus()
        QTest.keyClick(row.control, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
        QTest.keyClicks(row.control, keys)
        QTest.keyClick(row.control, Qt.Key.Key_Tab)
        value = self.page.form.value(path)
        assert str(value) == keys, f"{path} is {value!r} after typing {keys}"

    def choose(self, path: str, value: str) -> None:
        """Choose a setting's value in its list by keyboard."""
        (row,) = [r for r in self.page.settings_list.rows.values() if r.setting.path == path]
        row.control.setFocus()
        for _ in range(row.control.count()):
            if row.control.currentData() != value:
                QTest.keyClick(row.control, Qt.Key.Key_Down)
        wait_for(lambda: self.page.form.value(path) == value, f"{path} to be {value}")

    def refuse_bad_input(self) -> None:
        """A rank of 0 and a learning rate of "abc" must keep Start from starting."""
        for path, keys in (("adapter.rank", "0"), ("optimizer.learning_rate", "abc")):
            rows = self.page.settings_list.findChildren(QWidget)
            (row,) = [r for r in rows if hasattr(r, "setting") and r.setting.path == path]
            row.control.setFocus()
            QTest.keyClick(row.control, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
            QTest.keyClicks(row.control, keys)
            QTest.keyClick(row.control, Qt.Key.Key_Tab)
            wait_for(lambda: not self.page.start_bar.start.isEnabled(), f"{path} = {keys} to be refused")
            self.seen[path] = self.page.form.problem(path)
            self.shoot(f"refused-{path}")
            click(row.reset)
            wait_for(lambda: self.page.start_bar.start.isEnabled(), "Start after the reset")

    def start(self) -> None:
        """Press Start and watch the charts move."""
        click(self.page.start_bar.start)
        wait_for(lambda: hasattr(self.page, "charts"), "the dashboard")
        wait_for(lambda: self.page.model.status.step > 20, "the first steps")
        wait_for(lambda: self.page.charts is not None, "the charts")
        before, picture = self.page.model.status.step, self.window.grab().toImage()
        self.shoot("dashboard-live")
        wait_for(lambda: self.page.model.status.step > before + 20, "more steps")
        rest(0.5)
        self.seen["picture_moved"] = self.window.grab().toImage() != picture
        self.seen["run"] = self.page.run.id

    def stop_and_save(self) -> None:
        """Press Stop and choose "Stop and save"."""

        def answer() -> None:
            dialog = QApplication.activeModalWidget()
            if isinstance(dialog, StopRunDialog):
                dialog.grab().save(str(self.shots / "stop-dialog.png"))
                click(dialog.save)
            else:
                QTimer.singleShot(50, answer)

        QTimer.singleShot(100, answer)
        click(self.page.header.stop)
        wait_for(lambda: self.page.model.status.state.value == "stopped", "the run to stop")
        self.seen["stopped_at"] = self.page.model.status.step
        self.shoot("dashboard-stopped")

    def resume_and_finish(self) -> None:
        """Press Resume and wait for the end."""
        wait_for(lambda: self.page.header.resume.isVisible() and self.page.header.resume.isEnabled(), "Resume")
        click(self.page.header.resume)
        wait_for(lambda: self.page.model.status.state.value == "finished", "the run to finish")
        self.seen["finished_at"] = self.page.model.status.step
        self.shoot("dashboard-finished")

    def look_around(self) -> None:
        """Pictures of every page: light and dark, small, and with 200 % text."""
        for scheme, scale, size in (
            ("light", 1.0, (1280, 800)),
            ("dark", 1.0, (1280, 800)),
            ("light", 1.0, (1024, 640)),
            ("dark", 1.0, (1024, 640)),
            ("light", 2.0, (1024, 640)),
        ):
            theme().set_appearance(Scheme(scheme), scale)
            self.window.resize(*size)
            for name in ("train", "runs", "dashboard", "settings"):
                self.window.show_page(name, self.seen["run"] if name == "dashboard" else None)
                self.shoot(f"{name}-{scheme}-{size[0]}-{round(scale * 100)}")


def drive(kind: type[OneDriver], shots: str, report: str, stations: Callable[[OneDriver], object]) -> int:
    """Open the window, visit the stations, and write what was seen; the exit code is 0 when all were reached."""
    app = App(QApplication(["tunesmith"]))
    app.window.show()
    driver = kind(app, Path(shots))
    try:
        stations(driver)
    finally:
        driver.shoot("last")
        Path(report).write_text(json.dumps(driver.seen), encoding="utf-8")
        app.window.close_without_asking()
        app.shutdown()
    return 0


def main(model: str, data: str, shots: str, report: str, objective: str = "") -> int:
    """Drive the whole way of a run; with an objective only the main job."""

    def stations(driver: Driver) -> None:
        driver.fill_form(Path(model), Path(data))
        if objective:
            driver.choose("objective.kind", objective)
        else:
            driver.refuse_bad_input()
        driver.start()
        driver.stop_and_save()
        driver.resume_and_finish()
        if not objective:
            driver.look_around()

    return drive(Driver, shots, report, stations)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
