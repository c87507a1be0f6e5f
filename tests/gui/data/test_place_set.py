"""Sets of places hold what a set of numbers would."""

from __future__ import annotations

from tunesmith_gui.data.place_set import PlaceSet, places_of


def test_places_come_and_go_and_only_changes_are_told() -> None:
    places = PlaceSet()
    assert places_of([3, 1, 3]).tolist() == [1, 3]  # type: ignore[union-attr]
    assert list(places.add(range(2, 5))) == [2, 3, 4]
    assert list(places.add(range(4))) == [0, 1]
    assert list(places.add(places_of([9, 4]))) == [9]
    assert places == {0, 1, 2, 3, 4, 9}
    assert list(places.remove(range(3, 2_000_000))) == [3, 4, 9]
    assert list(places.remove(places_of([1, 5, 7_000]))) == [1]
    assert (list(places), len(places)) == ([0, 2], 2)
    assert 2 in places
    assert 1 not in places
    assert -1 not in places
    assert 10**9 not in places


def test_whether_all_are_there() -> None:
    places = PlaceSet()
    assert places.has_all(range(0))
    assert not places.has_all(range(1))
    places.add(range(100, 200))
    assert places.has_all(range(100, 200))
    assert places.has_all(places_of([100, 150]))
    assert not places.has_all(places_of([99, 150]))


def test_a_copy_stays_as_it_was() -> None:
    places = PlaceSet()
    places.add(range(5))
    copy = places.copy()
    assert copy.same_as(places)
    places.remove(range(1))
    assert not copy.same_as(places)
    places.add(range(7, 8))
    assert not copy.same_as(places)
    assert copy == set(range(5))
