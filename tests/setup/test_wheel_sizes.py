"""What packages weigh comes from measurements, and what the download cache holds is not counted again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunesmith_setup.packages import wheel_sizes
from tunesmith_setup.packages.uvtool import LOCKS
from tunesmith_setup.packages.wheel_sizes import Weight

LOCK = """accelerate==1.15.0 \\
    --hash=sha256:00
torch==2.6.0+cu124 ; sys_platform == 'win32' \\
    --hash=sha256:01
# via==nothing
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock of two packages whose sizes are known."""
    path = tmp_path / "cu124-win-py311.txt"
    path.write_text(LOCK)
    sizes = {"cu124-win-py311": {"accelerate": [10, 30], "torch": [2000, 4000]}, "cpu-win-py311": {}}
    (tmp_path / "wheel_sizes.json").write_text(json.dumps(sizes))
    return path


def test_the_sizes_of_a_lock(lock: Path) -> None:
    assert wheel_sizes.pins(lock) == {"accelerate": "1.15.0", "torch": "2.6.0+cu124"}
    assert wheel_sizes.total((lock,), set()) == Weight(2010, 4030)
    assert wheel_sizes.total((lock, lock), {("torch", "2.6.0+cu124")}) == Weight(20, 60)


def test_a_lock_that_was_not_measured_has_no_sizes(lock: Path, tmp_path: Path) -> None:
    assert wheel_sizes.weights(tmp_path / "new-win-py311.txt") == {}
    (tmp_path / "wheel_sizes.json").write_text("{")
    assert wheel_sizes.total((lock,), set()) == Weight(0, 0)


def test_only_complete_downloads_count_as_fetched(tmp_path: Path) -> None:
    for name in (
        "wheels-v7/pypi/torch/2.6.0-cp311-cp311-linux_x86_64.http",
        "wheels-v7/index/0123/accelerate/1.15.0-py3-none-any.http",
        "wheels-v7/flat-index/0123/numpy/2.4.6-cp311.rev",
        "wheels-v7/pypi/peft/0.21.2-py3-none-any.msgpack",
        "simple-v27/pypi/trl/1.16.0-x.http",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert wheel_sizes.fetched(tmp_path) == {("torch", "2.6.0"), ("accelerate", "1.15.0"), ("numpy", "2.4.6")}
    assert wheel_sizes.fetched(tmp_path / "nowhere") == set()


def test_every_lock_of_an_environment_was_measured() -> None:
    for lock in LOCKS.glob("*-py3*.txt"):
        unknown = wheel_sizes.pins(lock).keys() - wheel_sizes.weights(lock).keys()
        assert not unknown, f"{lock.name}: run installers/locks/measure_sizes.py for {sorted(unknown)}"
    training = wheel_sizes.total((LOCKS / "cu124-linux-py311.txt",), set())
    assert 3e9 < training.download_bytes < 3.5e9
    assert 5.5e9 < training.disk_bytes < 6.5e9
