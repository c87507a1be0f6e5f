"""The wheel holds exactly our packages: every file of them, nothing else, under product-prefixed names only."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {
    "tunesmith_gui": REPOSITORY / "gui",
    "tunesmith_core": REPOSITORY / "engine",
    "tunesmith_engine": REPOSITORY / "engine",
    "tunesmith_setup": REPOSITORY / "installers",
    "tunesmith_assets": REPOSITORY / "assets",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def tracked_files() -> set[str]:
    """The files of our packages that belong to the project, relative to their source roots."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    found = set()
    for name in listed:
        for package, root in PACKAGES.items():
            path = REPOSITORY / name
            if path.is_relative_to(root / package) and path.is_file():
                found.add(path.relative_to(root).as_posix())
    return found


def test_wheel_holds_exactly_our_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == tracked_files()
    assert {name.split("/")[0] for name in names} == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_installed_wheel_starts_and_finds_its_assets(wheel: Path, tmp_path: Path) -> None:
    """Unpacked as an installation would be, the front door and the start script work on a bare interpreter."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        entry_points = next(name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "tunesmith = tunesmith_core.cli:main" in archive.read(entry_points).decode()
    start = site / "tunesmith_core" / "start.py"
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(start), "tunesmith_core", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "0.1.0" in done.stdout
    probe = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import tunesmith_assets as a;"
        "print(len(a.icon_names()), all(a.icon_path(n).is_file() for n in a.icon_names()))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, complete = done.stdout.split()
    assert int(count) > 20
    assert complete == "True"
