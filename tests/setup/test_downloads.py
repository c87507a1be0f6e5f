"""Large wheels are fetched piece by piece, in this process or a later one, and uv takes them from there."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.setup.conftest import RecordedProgress, TinyIndex, wheel
from tests.setup.test_growth import Reports
from tunesmith_core import paths
from tunesmith_setup.environments import envs
from tunesmith_setup.environments.envs import Environment
from tunesmith_setup.packages import downloads, inventory, uvtool, wheel_sizes
from tunesmith_setup.packages.downloads import Fetching, Wheel
from tunesmith_setup.packages.sources import Sources
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe.interpreters import Interpreter

NAME = "tiny_large-1.0-py3-none-any.whl"


@pytest.fixture
def large(
    home: Path, tmp_path: Path, interpreter: Interpreter, tiny_index: TinyIndex, monkeypatch: pytest.MonkeyPatch
) -> Environment:
    """An environment of a large and a small package."""
    tiny_index.tells_hashes = True
    monkeypatch.setattr(downloads, "PAUSE_S", 0.0)
    monkeypatch.setattr(downloads, "BLOCK_BYTES", 1000)
    lock = tmp_path / "large-linux-py311.txt"
    contents = {f"tiny_large_{number}.py": f"x = {number:0500}\n" for number in range(40)}
    # As in real locks: a hash for each wheel of the version, of which one fits this computer.
    lines = wheel(tiny_index.folder, "tiny-large", "1.0", contents).rstrip() + f" \\\n    --hash=sha256:{'0' * 64}\n"
    lock.write_text(lines + wheel(tiny_index.folder, "tiny-small", "1.0", {"tiny_small.py": ""}))
    sizes = {lock.stem: {"tiny-large": [64_000_000, 130_000_000], "tiny-small": [63_999_999, 64_000_000]}}
    lock.with_name(wheel_sizes.SIZES).write_text(json.dumps(sizes))
    return Environment("large", interpreter, (lock,), ("tiny_small",), 1000)


def fetched_wheel() -> Path:
    """Return the one wheel that was fetched."""
    (path,) = downloads.folder().glob("*/*.whl")
    return path


@pytest.fixture
def fetch(large: Environment, real_uv: Path, progress: RecordedProgress) -> Callable[[], None]:
    """Fetches the large wheels of the environment."""

    def run() -> None:
        downloads.fetch_large(large.locks, large.interpreter.executable, Uv(real_uv), progress)

    return run


def test_uv_takes_what_was_fetched(
    large: Environment, real_uv: Path, progress: RecordedProgress, tiny_index: TinyIndex
) -> None:
    of_another_lock = [downloads.folder() / ("1" * 64) / "other.whl", downloads.folder() / f"{'2' * 64}.part"]
    for path in of_another_lock:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    own_part = downloads.folder() / f"{'0' * 64}.part"
    own_part.touch()
    envs.build(large, Uv(real_uv), progress)
    assert large.is_complete()
    left = [path for path in downloads.folder().rglob("*") if path.is_file()]
    assert sorted(left) == of_another_lock, "what another environment waits for stays"
    for path in of_another_lock:
        path.unlink()
    of_another_lock[0].parent.rmdir()
    downloads.clear(large.locks)
    assert not downloads.folder().exists()
    assert tiny_index.ranges[NAME] == [None], "fetched once, and not by uv"
    assert ("tiny-small", "1.0") in wheel_sizes.fetched(uvtool.own_cache())
    (info,) = envs.site_packages(large.folder).glob("tiny_large-*.dist-info")
    assert "direct_url" not in (info / "RECORD").read_text()
    assert not (info / "direct_url.json").exists()
    listed = inventory.read(large.folder)
    assert listed is not None
    assert inventory.compare(large.folder, listed, full=True) == []


def test_a_wheel_that_decayed_meanwhile_is_left_to_uv(
    large: Environment, fetch: Callable[[], None], real_uv: Path, progress: RecordedProgress, tiny_index: TinyIndex
) -> None:
    fetch()
    assert not downloads.drop_damaged()
    good = fetched_wheel().read_bytes()
    fetched_wheel().write_bytes(good[:-1] + b"?")
    assert downloads.drop_damaged()
    assert not list(downloads.folder().glob("*/*.whl"))
    (path,) = (folder / NAME for folder in downloads.folder().iterdir() if folder.is_dir())
    path.write_bytes(good[:-1] + b"?")
    envs.build(large, Uv(real_uv), progress)
    assert large.is_complete()
    assert len(tiny_index.ranges[NAME]) == 2


def test_a_later_process_goes_on_where_one_was_cut(
    large: Environment, fetch: Callable[[], None], tiny_index: TinyIndex
) -> None:
    text = large.locks[0].read_text()
    size = (tiny_index.folder / NAME).stat().st_size
    tiny_index.cut.add(NAME)
    fetch()
    (part,) = downloads.folder().glob("*.part")
    assert size / 2 <= part.stat().st_size < size
    assert not list(downloads.folder().glob("*/*.whl"))
    assert downloads.with_fetched(large.locks) == list(large.locks)
    had = part.stat().st_size
    tiny_index.cut.clear()
    tiny_index.ranges.clear()
    fetch()
    assert tiny_index.ranges[NAME] == [f"bytes={had}-"]
    assert fetched_wheel().read_bytes() == (tiny_index.folder / NAME).read_bytes()
    (lock,) = downloads.with_fetched(large.locks)
    lines = lock.read_text().splitlines()
    digest = fetched_wheel().parent.name
    assert lines[0] == f"tiny-large @ {fetched_wheel().as_uri()} --hash=sha256:{digest}"
    assert lines[1].startswith("tiny-small==1.0 ")
    for lock_text in (
        f"tiny-large==1.0 ; sys_platform == 'win32' --hash=sha256:{digest}\n",
        "tiny-large==1.0 --hash=sha256:00\n",
    ):
        large.locks[0].write_text(lock_text)
        assert downloads.with_fetched(large.locks) == list(large.locks)
    large.locks[0].write_text(text)
    tiny_index.ranges.clear()
    fetch()
    assert NAME not in tiny_index.ranges, "what is there is not asked for"


def test_a_server_without_ranges_sends_all_again(fetch: Callable[[], None], tiny_index: TinyIndex) -> None:
    tiny_index.cut.add(NAME)
    tiny_index.knows_ranges = False
    fetch()
    tiny_index.cut.clear()
    fetch()
    assert fetched_wheel().read_bytes() == (tiny_index.folder / NAME).read_bytes()


def test_a_part_that_is_complete_only_needs_its_name(fetch: Callable[[], None], tiny_index: TinyIndex) -> None:
    tiny_index.cut.add(NAME)
    fetch()
    tiny_index.cut.clear()
    (part,) = downloads.folder().glob("*.part")
    part.write_bytes((tiny_index.folder / NAME).read_bytes())
    fetch()
    assert fetched_wheel().exists()


def test_a_wrong_wheel_is_thrown_away_and_left_to_uv(fetch: Callable[[], None], tiny_index: TinyIndex) -> None:
    tiny_index.cut.add(NAME)
    fetch()
    tiny_index.cut.clear()
    (part,) = downloads.folder().glob("*.part")
    part.write_bytes(b"x" * part.stat().st_size)
    fetch()
    assert not part.exists()
    assert not list(downloads.folder().glob("*/*.whl"))


def test_what_can_not_be_fetched_is_left_to_uv(
    fetch: Callable[[], None], tiny_index: TinyIndex, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "_addresses", lambda *_: [Wheel(f"{tiny_index.address}/nothing.whl", "00")])
    fetch()
    assert not list(downloads.folder().glob("*/*.whl"))
    monkeypatch.setattr(downloads, "_addresses", lambda *_: [][0])
    fetch()
    assert "uv downloads everything itself" in progress.text


def test_nothing_is_asked_for_without_need(
    large: Environment,
    fetch: Callable[[], None],
    tiny_index: TinyIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as context:
        context.setattr(Sources, "chosen", classmethod(lambda cls: cls(wheel_folder=tmp_path)))
        fetch()
    with monkeypatch.context() as context:
        context.setattr(wheel_sizes, "weights", lambda lock: {})
        fetch()
    cached = uvtool.own_cache() / "wheels-v7" / "pypi" / "tiny-large"
    cached.mkdir(parents=True)
    (cached / "1.0-py3-none-any.http").touch()
    fetch()
    assert tiny_index.requests == []
    assert not downloads.folder().exists()


def test_an_interrupt_ends_it_and_keeps_what_is_there(
    home: Path, tiny_index: TinyIndex, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tiny_index.folder, "tiny-large", "1.0", {"a.py": "x" * 100_000})
    begun, stopped = threading.Event(), list[bool]()
    append = Fetching._append

    def slow(self: Fetching, item: Wheel) -> None:
        append(self, item)
        begun.set()
        stopped.append(self._stopped.wait(5))
        raise ConnectionError

    def interrupt(_: float) -> None:
        assert begun.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(Fetching, "_append", slow)
    monkeypatch.setattr(downloads.time, "sleep", interrupt)
    downloads.folder().mkdir(parents=True)
    address = f"{tiny_index.address.removesuffix('/simple')}/wheels/{NAME}"
    with pytest.raises(KeyboardInterrupt):
        Fetching([Wheel(address, "00")], 1000).run(progress)
    assert list(downloads.folder().glob("*.part"))
    assert stopped == [True], "the download ended with it"


def test_what_all_wheels_have_together_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # However many looks the threads take to end.
    reports, looks = Reports(), itertools.count(1)
    there, growing, gone = (Wheel(f"https://x/{name}.whl", name * 64) for name in "123")
    there.path.parent.mkdir(parents=True)
    there.path.write_bytes(bytes(300))
    freed = threading.Event()

    def look(seconds: float) -> None:
        assert seconds == reports.interval_s
        number = next(looks)
        growing.part.write_bytes(bytes(100 * min(number, 5)))
        if number == 3:
            freed.set()

    monkeypatch.setattr(Fetching, "_fetch", lambda self, wheel: freed.wait(10))
    monkeypatch.setattr(downloads, "time", SimpleNamespace(sleep=look, monotonic=itertools.count().__next__))
    Fetching([there, growing, gone], 550).run(reports)
    assert reports.reports[:2] == [("Download", 500, 550, 100, 0.5), ("Download", 550, 550, 75, 0.0)]


def test_a_wheel_is_left_to_uv_after_five_attempts_that_bring_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads.folder().mkdir(parents=True)
    wheel, attempts, pauses = Wheel("https://x/a-1-x.whl", "0" * 64), list[int](), list[float]()

    def append(self: Fetching, wheel: Wheel) -> None:
        attempts.append(len(attempts) + 1)
        if attempts[-1] in (1, 4):
            wheel.part.write_bytes(bytes(attempts[-1]))
        raise ConnectionError

    fetching = Fetching([wheel], 10)
    monkeypatch.setattr(Fetching, "_append", append)
    monkeypatch.setattr(fetching._stopped, "wait", pauses.append)
    fetching.run(Reports())
    assert len(attempts) == 4 + 5
    pause_s = downloads.PAUSE_S
    assert pauses == [0, pause_s, pause_s, 0, *[pause_s] * 5], "no pause after an attempt that brought some bytes"


def test_only_large_wheels_are_counted(
    large: Environment, real_uv: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[Wheel], int]] = []
    monkeypatch.setattr(downloads, "_addresses", lambda wanted, *_: [wanted])
    monkeypatch.setattr(Fetching, "__init__", lambda self, wheels, total: asked.append((wheels, total)))
    monkeypatch.setattr(Fetching, "run", lambda self, progress: None)
    text = large.locks[0].read_text()
    downloads.fetch_large(large.locks, large.interpreter.executable, Uv(real_uv), progress)
    downloads.fetch_large(large.locks * 2, large.interpreter.executable, Uv(real_uv), progress)
    lines = text[: text.index("tiny-small")]
    assert asked == [([lines], 64_000_000), ([lines * 2], 128_000_000)]


def test_names_come_from_addresses_and_stay_in_the_folder(home: Path) -> None:
    assert Wheel("https://x/torch-2.6.0%2Bcu124-cp311.whl#sha256=00", "00").path.name == "torch-2.6.0+cu124-cp311.whl"
    assert Wheel("https://x/a/..%2F..%2Fevil.whl", "00").path == downloads.folder() / "00" / "evil.whl"
    assert downloads.folder().is_relative_to(paths.cache_dir())


def test_the_proxy_of_the_settings_is_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sources, "chosen", classmethod(lambda cls: cls(proxy="http://proxy.example:3128")))
    handlers = [vars(handler) for handler in Fetching([], 0)._opener.handlers]
    assert any(
        handler.get("proxies") == dict.fromkeys(("http", "https"), "http://proxy.example:3128") for handler in handlers
    )
