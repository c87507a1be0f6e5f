"""Widgets in a circle end in the window's thread, whichever thread makes the next objects."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
from PySide6.QtCore import QObject

from tunesmith_gui.garbage import Garbage


class Circle:
    """Says in which thread it ended."""

    ended_in: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self.ended_in.append(threading.get_ident())


@pytest.fixture
def garbage() -> Iterator[Garbage]:
    Circle.ended_in.clear()
    gc.enable()
    parent = QObject()
    result = Garbage(parent)
    yield result
    result.stop()
    parent.deleteLater()
    # As every test here begins, and as `no_leftovers` takes back.
    gc.disable()


def make_many() -> None:
    kept = [[number] for number in range(10 * sum(gc.get_threshold()))]
    assert kept


def test_a_worker_that_makes_many_objects_collects_none(garbage: Garbage) -> None:
    Circle()
    worker = threading.Thread(target=make_many)
    worker.start()
    worker.join()
    assert Circle.ended_in == []
    keep = [[number] for number in range(2 * gc.get_threshold()[0])]
    garbage.collect()
    assert keep
    assert Circle.ended_in == [threading.get_ident()]


def test_nothing_is_collected_before_it_is_due(garbage: Garbage) -> None:
    gc.collect()
    Circle()
    garbage.collect()
    assert Circle.ended_in == []


def test_python_begins_by_itself_again_at_the_end(garbage: Garbage) -> None:
    assert not gc.isenabled()
    garbage.stop()
    assert gc.isenabled()
