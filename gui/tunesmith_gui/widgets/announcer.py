"""Says to a screen reader what changed on its own, politely and not too often."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QWidget

PAUSE_S = 10.0


class Announcer(QTimer):
    """Announces for a widget at most once per PAUSE_S; of what comes in between, the newest is said at the end."""

    def __init__(self, speaker: QWidget) -> None:
        super().__init__(speaker)
        self._speaker = speaker
        self._waiting = ""
        self._said_at = -PAUSE_S
        self.setSingleShot(True)
        self.timeout.connect(self._speak)

    def say(self, text: str) -> None:
        """Announce a text now or when the pause is over."""
        self._waiting = text
        left_s = self._said_at + PAUSE_S - time.monotonic()
        if left_s > 0:
            self.start(round(left_s * 1000) + 1)
        else:
            self._speak()

    def _speak(self) -> None:
        self._said_at = time.monotonic()
        event = QAccessibleAnnouncementEvent(self._speaker, self._waiting)
        event.setPoliteness(QAccessible.AnnouncementPoliteness.Polite)
        QAccessible.updateAccessibility(event)
