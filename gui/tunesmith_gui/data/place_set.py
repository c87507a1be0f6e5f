"""Sets of places of rows in which a million are put, looked for or taken out within some milliseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Set

import numpy as np
from numpy.typing import NDArray

Places = range | NDArray[np.int64]
"""In order, each once: rows one after the other, or any."""

_FEWEST = 1024


def places_of(numbers: Iterable[int]) -> Places:
    """Return places from any numbers."""
    return numbers if isinstance(numbers, range | np.ndarray) else np.unique(np.fromiter(numbers, dtype=np.int64))


class PlaceSet(Set[int]):
    """A mark for each row."""

    def __init__(self) -> None:
        self._marks = np.zeros(0, dtype=bool)
        self._num = 0

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and 0 <= place < len(self._marks) and bool(self._marks[place])

    def __iter__(self) -> Iterator[int]:
        return iter(self.places().tolist())

    def __len__(self) -> int:
        return self._num

    def places(self) -> NDArray[np.int64]:
        """All of them."""
        return np.flatnonzero(self._marks)

    def copy(self) -> PlaceSet:
        """The same places, whatever becomes of these."""
        result = PlaceSet()
        result._marks, result._num = self._marks.copy(), self._num
        return result

    def same_as(self, other: PlaceSet) -> bool:
        """Whether another has the same places."""
        return self._num == other._num and bool(np.array_equal(self.places(), other.places()))

    def has_all(self, places: Places) -> bool:
        """Whether none of these is missing."""
        return not len(places) or (places[-1] < len(self._marks) and bool(self._marks[_index(places)].all()))

    def add(self, places: Places) -> Places:
        """Puts places in; returns those that were missing."""
        if len(places) and places[-1] >= len(self._marks):
            grown = np.zeros(max(int(places[-1]) + 1, 2 * len(self._marks), _FEWEST), dtype=bool)
            grown[: len(self._marks)] = self._marks
            self._marks = grown
        return self._mark(places, True)

    def remove(self, places: Places) -> Places:
        """Takes places out; returns those that were in."""
        return self._mark(places[: bisect_left(places, len(self._marks))], False)

    def _mark(self, places: Places, mark: bool) -> Places:
        changes = self._marks[_index(places)] != mark
        if not changes.all():
            places = np.flatnonzero(changes) + places.start if isinstance(places, range) else places[changes]
        self._marks[_index(places)] = mark
        self._num += len(places) if mark else -len(places)
        return places


def _index(places: Places) -> slice | NDArray[np.int64]:
    return slice(places.start, places.stop) if isinstance(places, range) else places
