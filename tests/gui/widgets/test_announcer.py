"""What a screen reader is told."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtWidgets import QWidget

from tunesmith_gui.widgets import announcer


def test_announcements_keep_a_pause(qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(announcer.QAccessible, "updateAccessibility", lambda event: said.append(event.message()))
    monkeypatch.setattr(announcer, "PAUSE_S", 0.3)
    speaker = QWidget()
    qtbot.addWidget(speaker)
    voice = announcer.Announcer(speaker)
    for text in ("one", "two", "three"):
        voice.say(text)
    assert said == ["one"]
    qtbot.waitUntil(lambda: said == ["one", "three"], timeout=3000)
