"""Fetches the largest wheels piece by piece, so that an interruption costs no more than what was in flight.

uv keeps every wheel that it has fetched and begins a cut one anew, which is fine except for PyTorch and the CUDA
libraries: some are larger than two gigabytes. Those are fetched here first, into a folder that uv then takes them from.
uv itself tells their addresses, so index, mirror and proxy are the same. Nothing here can make an installation fail:
what can't be fetched this way, uv fetches in its own.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
import tomllib
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from tunesmith_core import files, paths
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message
from tunesmith_setup.packages import scratch, uvtool, wheel_sizes
from tunesmith_setup.packages.growth import DOWNLOAD, Speed
from tunesmith_setup.packages.sources import Sources
from tunesmith_setup.packages.stores import normal_name
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.progress import Progress

LARGE_BYTES = 64_000_000
NUM_AT_ONCE = 4
NUM_ATTEMPTS = 5
"""Attempts in a row that bring nothing, after which a wheel is left to uv."""
PAUSE_S = 2.0
TIMEOUT_S = 60.0
BLOCK_BYTES = 1 << 20
QUESTION, ANSWER, MERGED = "large.txt", "pylock.toml", "fetched.txt"
"""Files between us and uv."""
PARTIAL_CONTENT, BEYOND_THE_END = 206, 416


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel to fetch; it is right when its SHA-256 is."""

    address: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it lies when it is complete: in a folder that is named by its hash."""
        return folder() / self.sha256 / PurePosixPath(unquote(urlsplit(self.address).path)).name

    @property
    def part(self) -> Path:
        """Where it grows."""
        return folder() / f"{self.sha256}.part"


def folder() -> Path:
    """Return the folder in which fetched wheels wait until they are installed."""
    return paths.cache_dir() / "wheels"


def with_fetched(locks: Sequence[Path]) -> list[Path]:
    """Return locks for uv that take the wheels of the folder from there; the locks themselves when it holds none.

    Not an index or a folder of links: among equal wheels uv prefers the one whose hash a page tells, which is the one
    that would be downloaded again. Of the lock's hashes only that of the wheel stays, as uv wants it for a file; it
    checks it as ever.
    """
    fetched = {_package(path): path for path in folder().glob("*/*-*-*.whl")}
    blocks, taken = [], False
    for package, lines in scratch.pins(locks).items():
        wheel = fetched.get(package)
        digest = f"--hash=sha256:{wheel.parent.name}" if wheel else ""
        # A line with a condition is for some computers only: uv decides.
        if wheel is not None and digest in lines and ";" not in lines:
            lines, taken = f"{package[0]} @ {wheel.as_uri()} {digest}\n", True
        blocks.append(lines)
    if not taken:
        return list(locks)
    (folder() / MERGED).write_text("".join(blocks), encoding="utf-8")
    return [folder() / MERGED]


def forget_origin(site_packages: Path) -> None:
    """Remove uv's notes of the folder that wheels came from, so that it makes no difference how they were fetched."""
    for note in site_packages.glob("*.dist-info/direct_url.json"):
        record = note.with_name("RECORD")
        rows = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [row for row in rows if not row.startswith(f"{note.parent.name}/{note.name},")]
        record.write_text("".join(kept), encoding="utf-8")
        note.unlink()


def _package(wheel: Path) -> tuple[str, str]:
    name, version, _ = wheel.name.split("-", 2)
    return normal_name(name), version


def drop_damaged() -> bool:
    """Remove wheels that decayed since they were fetched; return whether there were any."""
    damaged = [path for path in folder().glob("*/*.whl") if files.sha256_file(path) != path.parent.name]
    for path in damaged:
        path.unlink()
    return bool(damaged)


def clear(locks: Sequence[Path]) -> None:
    """Remove the wheels of some locks, whole ones and parts: they are installed. Those of others stay."""
    text = "".join(lock.read_text(encoding="utf-8") for lock in locks)
    for path in folder().glob("*"):
        if path.name not in (QUESTION, ANSWER, MERGED) and f"sha256:{path.stem}" not in text:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder().rmdir()


def fetch_large(locks: Sequence[Path], python: Path, uv: Uv, progress: Progress) -> None:
    """Fetch the large wheels of some locks that neither the folder nor uv's cache holds.

    Args:
        locks: the lock files.
        python: the interpreter that the wheels are for.
        uv: tells the addresses.
        progress: takes how far it is.
    """
    cached = wheel_sizes.fetched(uvtool.own_cache())
    wanted, total = "", 0
    for lock in locks:
        sizes = wheel_sizes.weights(lock)
        for (name, version), lines in scratch.pins([lock]).items():
            weight = sizes.get(name)
            if weight and weight.download_bytes >= LARGE_BYTES and (name, version) not in cached:
                wanted, total = wanted + lines, total + weight.download_bytes
    if not wanted or not Sources.chosen().network:
        return
    try:
        files.private_folder(folder())
        Fetching(_addresses(wanted, python, uv), total).run(progress)
    except (EnvironmentProblem, OSError, LookupError, TypeError, ValueError) as error:
        progress.note(Message("uv downloads everything itself: {error}", error=error))


def _addresses(requirements: str, python: Path, uv: Uv) -> list[Wheel]:
    """Return where uv would take wheels from. Raises what a surprising answer of uv leads to."""
    source, answer = folder() / QUESTION, folder() / ANSWER
    source.write_text(requirements, encoding="utf-8")
    arguments = ["--quiet", "--no-deps", "--no-header", "--format", "pylock.toml", "--only-binary", ":all:"]
    uv.run("pip", "compile", *arguments, "--python", str(python), str(source), "--output-file", str(answer))
    packages = tomllib.loads(answer.read_text(encoding="utf-8"))["packages"]
    wheels = [package["wheels"][0] for package in packages]
    return [Wheel(str(wheel["url"]), str(wheel["hashes"]["sha256"])) for wheel in wheels]


class Fetching:
    """Several wheels that are fetched at once.

    Args:
        wheels: what to fetch.
        total_bytes: their size together.
    """

    def __init__(self, wheels: list[Wheel], total_bytes: int) -> None:
        self._wheels = wheels
        self._total_bytes = total_bytes
        self._stopped = threading.Event()
        proxy = Sources.chosen().proxy
        # Without a proxy of its own, urllib takes that of the variables or of the system.
        handlers = [urllib.request.ProxyHandler({"http": proxy, "https": proxy})] if proxy else []
        self._opener = urllib.request.build_opener(*handlers)

    def run(self, progress: Progress) -> None:
        """Fetch all; one that does not come is left out. An interrupt ends it, and keeps what is there."""
        speed = Speed()
        pool = ThreadPoolExecutor(NUM_AT_ONCE)
        try:
            pending = [pool.submit(self._fetch, wheel) for wheel in self._wheels]
            while not all(future.done() for future in pending):
                time.sleep(min(progress.interval_s, 0.2))
                done = sum(_size(wheel.path) or _size(wheel.part) for wheel in self._wheels)
                speed.report(progress, DOWNLOAD, min(done, self._total_bytes), self._total_bytes, time.monotonic())
            for future in pending:
                future.result()
        finally:
            self._stopped.set()
            pool.shutdown()

    def _fetch(self, wheel: Wheel) -> None:
        """Fetch one wheel; go on after each interruption as long as attempts bring something."""
        failures = 0
        while failures < NUM_ATTEMPTS and not self._stopped.is_set() and not wheel.path.exists():
            before = _size(wheel.part)
            try:
                self._append(wheel)
                _publish(wheel)
            except ValueError:
                return
            except OSError:
                failures = 0 if _size(wheel.part) > before else failures + 1
                self._stopped.wait(PAUSE_S if failures else 0)

    def _append(self, wheel: Wheel) -> None:
        """Fetch what is missing of a wheel. Raises OSError when the connection breaks."""
        start = _size(wheel.part)
        request = urllib.request.Request(wheel.address, headers={"Range": f"bytes={start}-"} if start else {})
        try:
            answer = self._opener.open(request, timeout=TIMEOUT_S)
        except HTTPError as error:
            if error.code == BEYOND_THE_END:
                return
            raise
        with answer:
            # A server that knows no ranges sends everything again.
            mode = "ab" if answer.status == PARTIAL_CONTENT else "wb"
            expected = int(answer.headers["Content-Length"])
            with wheel.part.open(mode) as file:
                while not self._stopped.is_set() and (block := answer.read(BLOCK_BYTES)):
                    file.write(block)
                    expected -= len(block)
        if expected:
            raise ConnectionError(f"{expected} bytes are missing")


def _publish(wheel: Wheel) -> None:
    """Give a wheel its name when it is the right one, else throw it away. Raises ValueError when it is not."""
    if files.sha256_file(wheel.part) != wheel.sha256:
        wheel.part.unlink()
        raise ValueError(f"{wheel.path.name} is not the wheel of the lock")
    wheel.path.parent.mkdir(exist_ok=True)
    files.replace(wheel.part, wheel.path)
    files.crashpoint("wheel.fetched")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
