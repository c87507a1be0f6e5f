"""A progress bar that is painted together with what is around it."""

from __future__ import annotations

from PySide6.QtWidgets import QProgressBar


class ProgressBar(QProgressBar):
    """Paint with the rest of the window.

    Qt's own bar is painted as soon as its value changes, and with it everything in the window that has changed. Where
    layouts had not yet made room for that, a page was seen squeezed and cut off, on a busy computer for seconds.
    """

    def setValue(self, value: int) -> None:
        """Takes a value."""
        self.setUpdatesEnabled(False)
        super().setValue(value)
        self.setUpdatesEnabled(True)

    def setRange(self, minimum: int, maximum: int) -> None:
        """Takes a range, which may reset the bar."""
        self.setUpdatesEnabled(False)
        super().setRange(minimum, maximum)
        self.setUpdatesEnabled(True)
