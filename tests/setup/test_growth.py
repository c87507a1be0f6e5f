"""How far an installation is, told by the growth of its folders."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.setup.conftest import RecordedProgress
from tunesmith_setup.packages import growth
from tunesmith_setup.packages.growth import Growth
from tunesmith_setup.packages.wheel_sizes import Weight

MB = 1_000_000


class Reports(RecordedProgress):
    """Keeps what was reported, and says when something was."""

    interval_s = 0.001

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[str, int, int, int, float | None]] = []
        self.reported = threading.Event()

    def progress(
        self, name: str, done_bytes: int, total_bytes: int, bytes_per_s: float, remaining_s: float | None
    ) -> None:
        self.reports.append((name, done_bytes, total_bytes, round(bytes_per_s), remaining_s))
        self.reported.set()


def grow(folder: Path, num_bytes: int) -> None:
    """Make a folder hold so much."""
    folder.mkdir(exist_ok=True)
    with (folder / "file").open("wb") as file:
        file.truncate(num_bytes)


def test_the_cache_tells_the_download_and_the_environment_the_copying(tmp_path: Path) -> None:
    cache, staging, reports = tmp_path / "cache", tmp_path / "staging", Reports()
    grow(cache, 7 * MB)
    grown = Growth(cache, staging, Weight(10 * MB, 20 * MB), 30 * MB)
    grown.tell(reports, 0.0)
    grow(cache, 11 * MB)
    grown.tell(reports, 2.0)
    grow(cache, 27 * MB)
    grown.tell(reports, 6.0)
    grow(staging, 6 * MB)
    grown.tell(reports, 7.0)
    grow(staging, 15 * MB)
    grown.tell(reports, 10.0)
    grow(staging, 33 * MB)
    grown.tell(reports, 12.0)
    assert reports.reports == [
        ("Download", 2 * MB, 10 * MB, MB, 8.0),
        ("Download", 10 * MB, 10 * MB, 1_666_667, 0.0),
        ("Copy", 15 * MB, 30 * MB, 3 * MB, 5.0),
        ("Copy", 30 * MB, 30 * MB, 4_800_000, 0.0),
    ]


def test_wheels_that_are_there_are_only_unpacked(tmp_path: Path) -> None:
    reports = Reports()
    grown = Growth(tmp_path / "cache", tmp_path / "staging", Weight(10 * MB, 20 * MB), 30 * MB, fetched=True)
    grown.tell(reports, 0.0)
    grow(tmp_path / "cache", 10 * MB)
    grown.tell(reports, 2.0)
    assert reports.reports == [("Unpack", 10 * MB, 20 * MB, 5 * MB, 2.0)]


def test_what_stands_still_has_no_end(tmp_path: Path) -> None:
    cache, reports = tmp_path / "cache", Reports()
    grown = Growth(cache, tmp_path / "staging", Weight(10 * MB, 20 * MB), 30 * MB)
    grow(cache, 4 * MB)
    grown.tell(reports, 0.0)
    grown.tell(reports, 1.0)
    assert reports.reports == [("Download", 2 * MB, 10 * MB, 0, None)]
    grow(cache, 2 * MB)
    grown.tell(reports, 2.0)
    assert len(reports.reports) == 1, "uv cleans up: nothing is told that goes back"


def test_nothing_to_download_is_not_reported(tmp_path: Path) -> None:
    reports = Reports()
    grown = Growth(tmp_path / "cache", tmp_path / "staging", Weight(0, 0), 30 * MB)
    grow(tmp_path / "cache", MB)
    grown.tell(reports, 0.0)
    grown.tell(reports, 1.0)
    assert reports.reports == []


def test_reports_come_from_a_thread_as_long_as_it_lasts(tmp_path: Path) -> None:
    cache, reports = tmp_path / "cache", Reports()
    grown = Growth(cache, tmp_path / "staging", Weight(10 * MB, 20 * MB), 30 * MB)
    grow(cache, MB)
    with growth.reported(grown, reports):
        assert reports.reported.wait(30)
    told = len(reports.reports)
    assert not [thread for thread in threading.enumerate() if thread.name == "growth"]
    assert len(reports.reports) == told


def test_an_environment_of_a_megabyte_is_still_empty(tmp_path: Path) -> None:
    reports = Reports()
    grow(tmp_path / "staging", MB)
    grown = Growth(tmp_path / "cache", tmp_path / "staging", Weight(10 * MB, 20 * MB), 30 * MB)
    grow(tmp_path / "cache", MB)
    for now_s in (0.0, 1.0):
        grown.tell(reports, now_s)
    grow(tmp_path / "staging", MB + 1)
    for now_s in (2.0, 3.0):
        grown.tell(reports, now_s)
    assert [name for name, *_ in reports.reports] == ["Download", "Copy"]


def test_the_speed_is_that_of_the_last_twenty_looks() -> None:
    speed, reports = growth.Speed(), Reports()
    for second, done in enumerate([0, *range(100, 120)]):
        speed.report(reports, "Download", done, 129, second)
    assert reports.reports[0] == ("Download", 100, 129, 100, 0.29)
    assert reports.reports[-1] == ("Download", 119, 129, 1, 10.0)


def test_looking_takes_a_fifth_of_the_time_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Event:
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return len(waits) == 3

        def set(self) -> None:
            """Nobody asks."""

    times = iter([100.0, 103.0, 200.0, 200.5])
    reports = Reports()
    reports.interval_s = 10.0
    monkeypatch.setattr(growth, "threading", SimpleNamespace(Event=Event, Thread=threading.Thread))
    monkeypatch.setattr(growth, "time", SimpleNamespace(monotonic=times.__next__))
    with growth.reported(Growth(tmp_path, tmp_path, Weight(1, 1), 1), reports):
        pass
    assert waits == [10.0, 15.0, 10.0]
