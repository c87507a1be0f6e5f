"""The program folder as it is packed: our packages and locks, uv, a start script, a licence."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

from tunesmith_setup.build.sources import REPOSITORY
from tunesmith_setup.packages.uvtool import LOCKS

LINUX = REPOSITORY / "installers" / "linux"
ICONS = REPOSITORY / "assets" / "tunesmith_assets" / "icons"
EXECUTABLE_NAMES = {"tunesmith", "uv", "postrm"}


def unpack_wheel(wheel: Path, folder: Path) -> None:
    """Unpack our packages; the wheel's own notes stay out, for they tell who built it and not what it is."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if ".dist-info/" not in name])


def assemble(folder: Path, wheel: Path, tools: Path, system: str) -> None:
    """Make a program folder without its manifest.

    Args:
        folder: new folder.
        wheel: the wheel of this repository.
        tools: folder with uv and its licences.
        system: "win" or "linux".
    """
    app = folder / "app"
    unpack_wheel(wheel, app)
    (app / "locks").mkdir()
    for lock in LOCKS.iterdir():
        if _is_needed(lock.name, system):
            shutil.copyfile(lock, app / "locks" / lock.name)
    shutil.copytree(tools, folder / "tools")
    shutil.copyfile(REPOSITORY / "LICENSE", folder / "LICENSE.txt")
    if system == "win":
        shutil.copyfile(ICONS / "app.ico", folder / "tunesmith.ico")
        return
    for name in ("tunesmith", "tunesmith.desktop"):
        shutil.copyfile(LINUX / name, folder / name)
    for suffix in ("svg", "png"):
        shutil.copyfile(ICONS / f"app.{suffix}", folder / f"tunesmith.{suffix}")


def _is_needed(lock_name: str, system: str) -> bool:
    """Return whether an installed program reads a file of the folder: not what tests or the locks' makers need."""
    other = "linux" if system == "win" else "win"
    return lock_name.endswith((".txt", ".json")) and not lock_name.startswith("dev") and f"-{other}-" not in lock_name


def normalise(folder: Path, source_date_s: int) -> None:
    """Give everything below a folder, and itself, the sources' date and modes that depend on nothing here."""
    for path in [*folder.rglob("*"), folder]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.name in EXECUTABLE_NAMES else 0o644)
        os.utime(path, (source_date_s, source_date_s), follow_symlinks=False)
