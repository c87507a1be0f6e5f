"""Which rows of a file a model wrote, and which of them nobody has looked at yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QObject, QTimer, Signal

from tunesmith_gui.data.place_set import PlaceSet
from tunesmith_gui.data.rows import Rows, is_kept, is_made

_AT_ONCE = 500
"""Rows that are looked at before the window is asked again whether it has something to do."""


class Reviewed(QObject):
    """Looks through all rows, and again at those that are changed.

    Signals:
        counted: more of them are known, or others.
    """

    counted = Signal()

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._rows = rows
        self._made, self._kept = PlaceSet(), PlaceSet()
        self._num_seen = 0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._go_on)
        rows.grew.connect(self._timer.start)
        rows.changed.connect(self._on_changed)

    def __len__(self) -> int:
        return len(self._made)

    def waiting(self) -> NDArray[np.int64]:
        """The places of those that nobody has looked at: they are neither kept nor deleted."""
        done = np.union1d(self._kept.places(), self._rows.deleted.places())
        return np.setdiff1d(self._made.places(), done, assume_unique=True)

    def next_after(self, place: int) -> int | None:
        """The next that nobody has looked at, from the beginning where there is none behind; None where all were."""
        waiting = self.waiting()
        waiting = waiting[waiting != place]
        return int(waiting[np.searchsorted(waiting, place) % len(waiting)]) if len(waiting) else None

    def all_waiting(self) -> NDArray[np.int64]:
        """As `waiting`, of all rows: the rest is looked at at once."""
        self._look(range(self._num_seen, len(self._rows)))
        self._num_seen = len(self._rows)
        return self.waiting()

    def _go_on(self) -> None:
        end = min(self._num_seen + _AT_ONCE, len(self._rows))
        self._look(range(self._num_seen, end))
        self._num_seen = end
        if end < len(self._rows):
            self._timer.start()
        self.counted.emit()

    def _on_changed(self, places: list[int]) -> None:
        self._look([place for place in places if place < self._num_seen])
        self.counted.emit()

    def _look(self, places: range | list[int]) -> None:
        for place in places:
            row = self._rows.whole(place).values
            at = range(place, place + 1)
            for marks, wanted in ((self._made, is_made(row)), (self._kept, is_kept(row))):
                marks.add(at) if wanted else marks.remove(at)
