"""Collects what refers to itself in a circle in the window's thread alone.

Python collects in whichever thread happens to make the next object. A widget in a circle is destroyed there, and a
timer of Qt that ends in a thread other than its own ends the program with it.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

PAUSE_MS = 1000


class Garbage(QObject):
    """Takes the place of Python's own way to begin a collection until it is stopped."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        gc.disable()
        self._timer = QTimer(self)
        self._timer.setInterval(PAUSE_MS)
        self._timer.timeout.connect(self.collect)
        self._timer.start()

    def collect(self) -> None:
        """Collects the oldest generation that is due by Python's own count."""
        counts = enumerate(zip(gc.get_count(), gc.get_threshold(), strict=True))
        due = [generation for generation, (count, threshold) in counts if count > threshold]
        if due:
            gc.collect(due[-1])

    def stop(self) -> None:
        """Lets Python begin by itself again."""
        self._timer.stop()
        gc.enable()
