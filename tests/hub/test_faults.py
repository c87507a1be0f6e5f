"""Random network faults and killed processes: never a damaged model, never a file again from its beginning."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.hub.conftest import QUICK, Journal
from tests.hub.loopback import Fault, LoopbackHub
from tests.processes import KILLED
from tunesmith_core import downloads
from tunesmith_core.downloads import Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_folder import hub_folder, open_model_folder
from tunesmith_engine.hub.download import download

KINDS = tuple("cut cut cut stall 500 502 503 429 408 login ignore-range wrong-range refused".split())
SHARE = 0.55
"""Of the requests that end badly."""


class Weather:
    """Draws faults, and checks that each request starts where the partial file ends."""

    def __init__(self, hub: LoopbackHub, seed: int, hub_id: str) -> None:
        self._random = random.Random(seed)
        self._staging = downloads.staging_of(hub_folder(hub_id))
        self._held: Counter[str] = Counter()
        self.num_faults = 0
        self.restarts: list[tuple[str, int, int]] = []
        hub.fault = self.draw

    def look(self) -> None:
        """Note how much of each file is on the disk; it never becomes less."""
        for part in self._staging.glob("*.part"):
            name = part.name.removesuffix(".part")
            with contextlib.suppress(FileNotFoundError):
                self._held[name] = max(self._held[name], part.stat().st_size)

    def part_bytes(self) -> int:
        """Return how many bytes of files that are not whole are on the disk."""
        sizes = 0
        for part in self._staging.glob("*.part"):
            with contextlib.suppress(FileNotFoundError):
                sizes += part.stat().st_size
        return sizes

    def draw(self, name: str, start: int) -> Fault | None:
        self.look()
        # config.json is also read for the facts, before each download.
        if start != self._held[name] and name != "config.json":
            self.restarts.append((name, start, self._held[name]))
        if self._random.random() > SHARE:
            return None
        self.num_faults += 1
        kind = self._random.choice(KINDS)
        return Fault("cut" if kind == "refused" else kind, 0 if kind == "refused" else self._random.randrange(60_000))


def check_whole(folder: Path, source: Path) -> None:
    for path in source.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    open_model_folder(folder)


def see_through(hub: LoopbackHub, hub_id: str, journal: Journal, weather: Weather) -> Path:
    """Download, as often as a person would click Resume."""
    for _ in range(50):
        try:
            # Few tries, so that downloads also end and are begun again.
            return download(journal, hub_id, endpoint=hub.endpoint, retry=dataclasses.replace(QUICK, tries=2))
        except TunesmithError as error:
            code = error.code
        weather.look()
        assert code in ("hub-offline", "hub-busy", "hub-answer-wrong")
        assert not hub_folder(hub_id).exists(), "half a model has the name of a whole one"
    raise AssertionError("never whole")


@pytest.mark.parametrize(
    "num_faults", [pytest.param(15, id="15"), pytest.param(300, id="300", marks=pytest.mark.long)]
)
def test_random_faults_damage_nothing_and_restart_nothing(
    num_faults: int,
    hub: LoopbackHub,
    sharded_model: Path,
    journal: Journal,
    home: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    met, restarts, seed = 0, list[tuple[str, int, int]](), 0
    while met < num_faults:
        weather = Weather(hub, seed, "org/sharded")
        folder = see_through(hub, "org/sharded", journal, weather)
        check_whole(folder, sharded_model)
        assert not downloads.staging_of(folder).exists()
        met, seed, restarts = met + weather.num_faults, seed + 1, restarts + weather.restarts
        folder.rename(home / f"done-{seed}")
    assert restarts == []
    with capsys.disabled():
        sys.stdout.write(f"\n{met} faults in {seed} downloads: 0 damaged, {len(restarts)} restarts\n")


CHILD = """
import sys
from tests.hub.conftest import QUICK, Journal
from tunesmith_engine.hub.download import download
print(download(Journal(), sys.argv[2], endpoint=sys.argv[1], retry=QUICK, num_at_once=2))
"""


class Killed:
    """Downloads in a process that is killed."""

    def __init__(self, hub: LoopbackHub) -> None:
        self._hub, self._number = hub, 0

    def start(self, weather: Weather, num_bytes: int | None) -> int:
        """Return the exit code of a process, killed once so many bytes of a file are there that is not whole."""
        self._number += 1
        origin = f"child-{self._number}"
        variables = os.environ | {"HF_HUB_USER_AGENT_ORIGIN": origin}
        command = [sys.executable, "-c", CHILD, self._hub.endpoint, "org/sharded"]
        child = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
        before = weather.part_bytes()
        while child.poll() is None:
            if num_bytes is not None and weather.part_bytes() - before >= num_bytes:
                child.kill()
                # Requests of its that were not looked at yet would be taken for those of the next one.
                self._hub.dead.add(origin)
            time.sleep(0.001)
        weather.look()
        return child.returncode


@pytest.mark.parametrize("num_kills", [pytest.param(4, id="4"), pytest.param(40, id="40", marks=pytest.mark.long)])
def test_a_killed_process_goes_on_where_it_was(
    num_kills: int, hub: LoopbackHub, sharded_model: Path, home: Path
) -> None:
    draw, killed, killer, continued = random.Random(7), 0, Killed(hub), 0
    while killed < num_kills:
        weather = Weather(hub, 0, "org/sharded")

        def fault(name: str, start: int, weather: Weather = weather) -> Fault | None:
            weather.draw(name, start)
            # So many bytes of a file arrive for as long as the process lives.
            return Fault("stall", draw.randrange(1, 30_000)) if draw.random() < 0.6 else None

        hub.fault = fault
        hub.requests.clear()
        while code := killer.start(weather, draw.randrange(1, 20_000) if killed < num_kills else None):
            killed += code == KILLED
            assert not hub_folder("org/sharded").exists()
        check_whole(hub_folder("org/sharded"), sharded_model)
        assert weather.restarts == []
        continued += sum(start > 0 for _, start in hub.requests)
        hub_folder("org/sharded").rename(home / f"done-{killed}")
    assert continued >= num_kills / 2, "most were killed in the middle of a file"


@pytest.mark.parametrize("point", ["download.after-record", "download.after-file", "download.before-publish"])
def test_a_process_killed_between_two_steps_goes_on(
    point: str, hub: LoopbackHub, sharded_model: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNESMITH_CRASHPOINT", point)
    command = [sys.executable, "-c", CHILD, hub.endpoint, "org/sharded"]
    assert subprocess.run(command, check=False).returncode == KILLED
    assert not hub_folder("org/sharded").exists()
    (begun,) = downloads.unfinished()
    assert (begun.asked, downloads.is_going(begun)) == ("org/sharded", False)
    monkeypatch.delenv("TUNESMITH_CRASHPOINT")
    check_whole(download(journal, "org/sharded", endpoint=hub.endpoint, retry=QUICK), sharded_model)
    assert list(downloads.unfinished()) == []


def test_a_download_is_known_by_its_record(hub: LoopbackHub, journal: Journal) -> None:
    folder = download(journal, "org/whole", endpoint=hub.endpoint, retry=QUICK)
    record = downloads.read_record(folder)
    assert isinstance(record, Download)
    assert list(downloads.changed_files(folder, record)) == []
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    (folder / "config.json").unlink()
    assert set(downloads.changed_files(folder, record)) == {"config.json", "model.safetensors"}
