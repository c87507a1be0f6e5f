"""Trains on a file that is dropped on the Data page, with mouse and keyboard: see `test_data_window`.

Counts the clicks, notes every red message that is shown at any time, and takes pictures.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QFrame, QWidget

from tests.e2e.drive_window import Driver, click, drop_file, wait_for
from tunesmith_core.checkpoint_manifest import newest_noted
from tunesmith_core.runs import open_run
from tunesmith_gui.app import App

LOOK_MS = 20


class DataDriver(Driver):
    """One person with a file."""

    def __init__(self, app: App, shots: Path) -> None:
        super().__init__(app, shots)
        self.seen |= {"clicks": 0, "errors": [], "seconds": {}}
        self._began = time.monotonic()
        self._eyes = QTimer(app.window)
        self._eyes.timeout.connect(self._look)
        self._eyes.start(LOOK_MS)

    def press(self, widget: QWidget) -> None:
        """Click a button once one can."""
        wait_for(lambda: widget.isVisible() and widget.isEnabled(), widget.accessibleName())
        click(widget)
        self.seen["clicks"] += 1

    def reach(self, station: str) -> None:
        """Note when a station was reached, and take its picture."""
        self.seen["seconds"][station] = round(time.monotonic() - self._began, 1)
        self.shoot(station)

    def _look(self) -> None:
        for frame in self.window.findChildren(QFrame):
            if frame.property("banner") == "error" and frame.isVisible():
                words = f"{frame.accessibleName()}: {frame.accessibleDescription()}"
                self.seen["errors"] = sorted({*self.seen["errors"], words})

    def train_with(self, data: Path) -> None:
        """Data page, drop, "Train with it", Start; then wait for the end."""
        wait_for(lambda: "train" in self.window.rail.buttons, "the window")
        self._began = time.monotonic()
        self.press(self.window.rail.buttons["data"])
        drop_file(self.window, data)
        wait_for(lambda: self.page.rows is not None and self.page.rows.is_complete, "the rows")
        self.reach("data")
        self.seen["facts"] = self.page.summary.facts.text()
        self.press(self.page.summary.train)
        wait_for(lambda: hasattr(self.page, "start_bar"), "the Train page")
        wait_for(lambda: self.page.start_bar.start.isEnabled(), "Start")
        self.reach("train")
        self.press(self.page.start_bar.start)
        wait_for(lambda: hasattr(self.page, "charts"), "the dashboard")
        self.seen["run"] = self.page.run.id
        self.reach("started")
        wait_for(lambda: not self.page.model.status.state.live, "the end")
        self.reach("ended")
        self.seen["state"] = self.page.model.status.state.value
        self.seen["steps"] = self.page.model.status.step
        manifest = newest_noted(open_run(self.seen["run"]).checkpoints_path)
        self.seen["pairs"] = manifest.fingerprint["pairs"] if manifest else ""


def main(data: str, shots: str, report: str) -> int:
    """Drive and report; the exit code is 0 when every station was reached."""
    application = QApplication(["tunesmith"])
    app = App(application)
    app.window.show()
    driver = DataDriver(app, Path(shots))
    try:
        driver.train_with(Path(data))
    finally:
        driver.shoot("last")
        Path(report).write_text(json.dumps(driver.seen), encoding="utf-8")
        app.window.close_without_asking()
        app.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
