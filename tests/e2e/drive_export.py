"""Exports a finished run in the real window with mouse and keyboard, as a process of its own: see `test_export_window`.

Counts the clicks and takes pictures.
"""

from __future__ import annotations

import sys
import time

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton

from tests.e2e.drive_window import Driver, click, drive, rest, wait_for
from tunesmith_gui.export.outcome import Outcome
from tunesmith_gui.export.sheet import ExportSheet
from tunesmith_gui.theme import Scheme, theme

LOOKS = [("light", 1280, 800), ("dark", 1280, 800), ("light", 1024, 640), ("dark", 1024, 640)]


class ExportDriver(Driver):
    """One person who exports."""

    def shoot(self, name: str) -> None:
        """Take a picture of the window and what lies over it."""
        rest(0.4)
        picture = self.window.grab()
        for sheet in filter(ExportSheet.isVisible, self.window.findChildren(ExportSheet)):
            painter = QPainter(picture)
            painter.drawPixmap(self.window.mapFromGlobal(sheet.mapToGlobal(sheet.rect().topLeft())), sheet.grab())
            painter.end()
        picture.save(str(self.shots / f"{name}.png"))

    @property
    def sheet(self) -> ExportSheet:
        """The sheet that is open."""
        wait_for(lambda: any(map(ExportSheet.isVisible, self.window.findChildren(ExportSheet))), "the sheet")
        return next(filter(ExportSheet.isVisible, self.window.findChildren(ExportSheet)))

    def press(self, button: QPushButton) -> None:
        """Click a button once one can."""
        wait_for(lambda: button.isVisible() and button.isEnabled(), button.text())
        click(button)
        self.seen["clicks"] = self.seen.get("clicks", 0) + 1

    def export(self, run: str) -> None:
        """Open a run, and export it as it is proposed."""
        self.window.show_page("dashboard", run)
        wait_for(lambda: hasattr(self.page, "header"), "the run")
        began = time.monotonic()
        self.press(self.page.header.export)
        wait_for(lambda: self.sheet.start.isEnabled(), "the choices")
        self.look_at_all("export-form")
        self.press(self.sheet.start)
        wait_for(lambda: self.window.context.exports.live() or self.sheet.outcome, "the start")
        rest(1)
        self.shoot("export-progress")
        wait_for(lambda: self.sheet.outcome, "the end")
        outcome = self.sheet.outcome
        self.seen["title"] = outcome.title if isinstance(outcome, Outcome) else "refused"
        self.seen["seconds"] = round(time.monotonic() - began, 1)
        self.look_at_all("export-end")
        QTest.keyClick(self.sheet, Qt.Key.Key_Escape)
        wait_for(lambda: not any(map(ExportSheet.isVisible, self.window.findChildren(ExportSheet))), "Esc")

    def look_at_all(self, name: str) -> None:
        """Take pictures in light and dark, large and small."""
        for scheme, width, height in LOOKS:
            theme().set_appearance(Scheme(scheme), 1.0)
            self.window.resize(width, height)
            self.shoot(f"{name}-{scheme}-{width}")


def main(run: str, shots: str, report: str) -> int:
    """Drive one export."""
    return drive(ExportDriver, shots, report, lambda driver: driver.export(run))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
