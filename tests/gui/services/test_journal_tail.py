"""Tailing journals: whoever is gone or fails keeps nobody else waiting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject

from tests.gui.conftest import settle
from tunesmith_core.protocol import Event, encode
from tunesmith_gui.services.journal_tail import JournalTail


@pytest.fixture
def tail(qapp: object) -> Iterator[JournalTail]:
    del qapp
    result = JournalTail()
    yield result
    result.shutdown()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode(Event(1, 1.0, "hello", {})))
    return path


def add(journal: Path, number: int) -> None:
    with journal.open("ab") as file:
        file.write(encode(Event(number, 1.0, "log", {"message": str(number)})))


def numbers(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


def test_one_that_fails_keeps_no_other_waiting(tail: JournalTail, journal: Path, qtbot: Any) -> None:
    got: list[int] = []

    def fail(_: object) -> None:
        raise ZeroDivisionError

    with qtbot.capture_exceptions() as caught:
        tail.follow(journal, numbers, fail, print)
        tail.follow(journal, numbers, got.extend, print)
        qtbot.waitUntil(lambda: got == [1], timeout=5000)
        add(journal, 2)
        qtbot.waitUntil(lambda: got == [1, 2], timeout=5000)
    assert [kind for kind, _, _ in caught] == [ZeroDivisionError]


def test_following_ends_with_its_owner(tail: JournalTail, journal: Path, qtbot: Any) -> None:
    owner, got, others = QObject(), [], []
    tail.follow(journal, numbers, got.extend, print, owner)
    tail.follow(journal, numbers, others.extend, print)
    qtbot.waitUntil(lambda: got == others == [1], timeout=5000)
    owner.deleteLater()
    settle()
    add(journal, 2)
    qtbot.waitUntil(lambda: others == [1, 2], timeout=5000)
    assert got == [1]
