"""The locks: complete, in step with each other, and every wheel they name exists with the hash they name.

PyTorch's CUDA builds for Windows are the exception: their index is not asked here, and `torch-windows.md` lists them.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tunesmith_setup.environments.profiles import PROFILES
from tunesmith_setup.packages.sources import INDEX_VARIABLES, Sources
from tunesmith_setup.packages.uvtool import LOCKS

PYTHONS = ("3.11", "3.12", "3.13")
ADDED = {"harness": "lm-eval", "rewards": "reasoning-gym"}
"""Packages that get folders of their own, and one that each of them is for."""

PLATFORMS = {"linux": "x86_64-manylinux_2_34", "win": "x86_64-pc-windows-msvc"}
FITTING = {
    system: re.compile(rf"[-.](?:{tag}|any)[.\w]*\.whl$")
    for system, tag in (("linux", r"manylinux\w*_x86_64"), ("win", "win_amd64"))
}
"""End of the name of a wheel that a system can install."""

TRITON = {"2.6.0": ("3.2.0", "3.2.0.post21"), "2.10.0": ("3.6.0", "3.6.0.post26")}
"""Triton for Linux and for Windows that go with a release of PyTorch."""

DIFFERING = re.compile(r"torch|triton|triton-windows|sympy|nvidia-.*|cuda-.*")
"""PyTorch and what it pins itself: all that may differ between the profiles of one system and Python."""

ON_PYTORCH_INDEX = [
    f"torch-{release}-cp3{minor}-cp3{minor}-win_amd64.whl"
    for release in ("2.6.0+cu124", "2.10.0+cu128")
    for minor in (11, 12, 13)
]
"""Named by the locks, not downloaded and not asked for here."""

ENTRY = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==([\w.+!]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")


@dataclass(frozen=True)
class Lock:
    """A lock: its name's parts, and version and hashes by package."""

    kind: str
    system: str
    python: str
    pins: dict[str, tuple[str, frozenset[str]]]

    @property
    def name(self) -> str:
        return name_of(self.kind, self.system, self.python)


def name_of(kind: str, system: str, python: str) -> str:
    return f"{kind}-{system}-py{python.replace('.', '')}"


def read(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Return version and hashes by package; every character of the file must belong to an entry."""
    text = path.read_text(encoding="utf-8")
    entries = list(ENTRY.finditer(text))
    assert "".join(entry.group() for entry in entries) == text, f"{path.name} holds more than pins with hashes"
    names = [entry.group(1) for entry in entries]
    assert names == sorted(set(names)), f"{path.name} names a package twice"
    return {
        entry.group(1): (entry.group(2), frozenset(re.findall(r"sha256:(\w+)", entry.group(3)))) for entry in entries
    }


def all_locks() -> list[Lock]:
    found = []
    for path in sorted(LOCKS.glob("*-py3*.txt")):
        kind, system, tag = path.stem.rsplit("-", 2)
        found.append(Lock(kind, system, f"3.{tag.removeprefix('py3')}", read(path)))
    return found


@pytest.fixture(scope="module")
def locks() -> list[Lock]:
    return all_locks()


def pytorch_wheels() -> dict[str, tuple[str, int]]:
    """Return hash and number of agreeing sources by wheel, as `torch-windows.md` lists them."""
    table = (LOCKS / "torch-windows.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (torch-\S+\.whl) \| ([0-9a-f]{64}) \| ([\d, ]+) \|$", table, re.MULTILINE)
    return {wheel: (digest, len(sources.split(","))) for wheel, digest, sources in rows}


def test_every_profile_has_a_lock_for_both_systems_and_all_pythons(locks: list[Lock]) -> None:
    wanted = set(itertools.product((*PROFILES, "launcher", *ADDED), PLATFORMS, PYTHONS))
    wanted |= {("dev", "linux", python) for python in PYTHONS}
    assert {lock.name for lock in locks} == {name_of(*parts) for parts in wanted}


def test_added_packages_stand_beside_the_training_environment_and_repeat_nothing(locks: list[Lock]) -> None:
    by_name = {lock.name: lock for lock in locks}
    for lock in locks:
        if lock.kind in ADDED:
            assert ADDED[lock.kind] in lock.pins
            for profile in PROFILES:
                assert not lock.pins.keys() & by_name[name_of(profile, lock.system, lock.python)].pins.keys()


def test_locks_name_no_host_and_no_index() -> None:
    for path in LOCKS.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"://|\w\.(org|com|io|cn)\b|--(index|extra|find|trusted)", text), path.name
        assert read(path)


def test_one_system_and_python_has_one_version_of_what_is_shared(locks: list[Lock]) -> None:
    versions: dict[tuple[str, str, str], set[str]] = {}
    for lock in locks:
        for package, (version, _) in lock.pins.items():
            if not DIFFERING.fullmatch(package):
                versions.setdefault((lock.system, lock.python, package), set()).add(version)
    assert not {key: found for key, found in versions.items() if len(found) > 1}


@pytest.mark.parametrize("package", "transformers trl peft datasets accelerate bitsandbytes tokenizers".split())
def test_one_hugging_face_stack_serves_everybody(locks: list[Lock], package: str) -> None:
    assert len({lock.pins[package][0] for lock in locks if lock.kind in PROFILES}) == 1


def test_pytorch_and_triton_go_together(locks: list[Lock]) -> None:
    for lock in locks:
        if lock.kind not in PROFILES:
            assert not {"torch", "triton", "triton-windows"} & lock.pins.keys(), lock.name
            continue
        release, _, build = lock.pins["torch"][0].partition("+")
        linux, windows = TRITON[release]
        assert release == ("2.10.0" if lock.kind == "cu128" else "2.6.0"), lock.name
        assert build == (lock.kind if lock.system == "win" and lock.kind != "cpu" else ""), lock.name
        found = {name: lock.pins[name][0] for name in ("triton", "triton-windows") if name in lock.pins}
        if lock.system == "linux":
            assert found == {"triton": linux}, lock.name
        else:
            assert found == ({} if lock.kind == "cpu" else {"triton-windows": windows}), lock.name
        assert ("nvidia-cublas-cu12" in lock.pins) == (lock.system == "linux"), lock.name


def test_what_triton_imports_without_declaring_it_is_there(locks: list[Lock]) -> None:
    assert all("setuptools" in lock.pins for lock in locks if lock.kind in PROFILES)


def test_pytorchs_windows_builds_are_those_that_independent_locks_agree_on(locks: list[Lock]) -> None:
    listed = pytorch_wheels()
    assert sorted(listed) == sorted(ON_PYTORCH_INDEX)
    assert all(num_sources >= 2 for _, num_sources in listed.values())
    named = {}
    for lock in locks:
        version, hashes = lock.pins.get("torch", ("", frozenset[str]()))
        if "+" in version:
            tag = f"cp{lock.python.replace('.', '')}"
            (named[f"torch-{version}-{tag}-{tag}-win_amd64.whl"],) = hashes
    assert named == {wheel: digest for wheel, (digest, _) in listed.items()}


def problems_of(lock: Lock, folder: Path, environment: dict[str, str]) -> list[str]:
    """Resolve a profile for its system and Python under its lock, and return what does not fit.

    The index tells the wheels with their hashes; nothing but metadata is downloaded.
    """
    # They run in the training environment's process, whose packages they need and do not name again.
    is_added = lock.kind in ADDED
    beside = read(LOCKS / f"{name_of('cpu', lock.system, lock.python)}.txt") if is_added else {}
    pins, answer = folder / f"{lock.name}.in", folder / f"pylock.{lock.name}.toml"
    known = lock.pins | beside
    pins.write_text("".join(f"{name}=={version.partition('+')[0]}\n" for name, (version, _) in known.items()))
    command = ["uv", "pip", "compile", "--quiet", "--only-binary", ":all:", "--no-python-downloads", "--constraints"]
    command += [str(pins), str(LOCKS / f"{lock.kind}.in"), "--python-platform", PLATFORMS[lock.system]]
    command += ["--python-version", lock.python, "--format", "pylock.toml", "--output-file", str(answer)]
    command += ["--overrides", str(LOCKS / f"{lock.kind}-without.in")] if is_added else []
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return [f"{lock.name}: {done.stderr}"]
    packages = tomllib.loads(answer.read_text(encoding="utf-8"))["packages"]
    found = {package["name"]: package for package in packages if package["name"] not in beside}
    if found.keys() != lock.pins.keys():
        return [f"{lock.name}: resolved and locked differ by {sorted(found.keys() ^ lock.pins.keys())}"]
    problems = []
    for name, (version, hashes) in lock.pins.items():
        if "+" in version:
            continue
        wheels = {wheel.get("name") or wheel["url"].rpartition("/")[2]: wheel for wheel in found[name]["wheels"]}
        fitting = [wheel for file, wheel in wheels.items() if FITTING[lock.system].search(file)]
        if not fitting:
            problems.append(f"{lock.name}: {name} {version} has no wheel for this system")
        if any(wheel["hashes"]["sha256"] not in hashes for wheel in fitting):
            problems.append(f"{lock.name}: {name} {version} has other hashes than the lock")
    return problems


def index_environment(tmp_path: Path) -> dict[str, str]:
    """The variables of a uv that knows the one package index of this machine and has a cache of its own."""
    ours = {name: value for name, value in os.environ.items() if name not in INDEX_VARIABLES}
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    mirrors = {name: os.environ[name] for name in names if name in os.environ}
    return Sources().uv_variables(ours | mirrors | {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_NO_CONFIG": "1"})


@pytest.mark.long
def test_every_lock_resolves_and_every_wheel_exists_with_its_hash(locks: list[Lock], tmp_path: Path) -> None:
    environment = index_environment(tmp_path)
    locks = [*locks, *(Lock("uv", system, "3.11", read(LOCKS / "uv.txt")) for system in PLATFORMS)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda lock: problems_of(lock, tmp_path, environment), locks)
        assert not [problem for problems in found for problem in problems]
