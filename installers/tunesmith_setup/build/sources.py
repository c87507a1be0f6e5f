"""What goes into every installer: the wheel of this repository, its version and date, uv, and a Python for Windows."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from tunesmith_core.errors import UserError
from tunesmith_setup.build import tools
from tunesmith_setup.packages.uvtool import LOCKS, Uv

REPOSITORY = Path(__file__).resolve().parents[3]
PLATFORMS = {"win": "x86_64-pc-windows-msvc", "linux": "x86_64-manylinux_2_28"}
"""Names that uv gives to the systems we build for."""

UV_PROGRAMS = {"win": "uv.exe", "linux": "uv"}
PYTHON_LIBRARY = re.compile(r"python3(11|12|13)\.dll", re.IGNORECASE)


def source_date_s() -> int:
    """Return the date of the sources in seconds since 1970: SOURCE_DATE_EPOCH, else the last commit's.

    Raises:
        UserError: `usage` when there is neither.
    """
    chosen = os.environ.get(tools.EPOCH_VARIABLE)
    if chosen and chosen.isascii() and chosen.isdigit():
        return int(chosen)
    command = ["git", "-C", str(REPOSITORY), "log", "-1", "--format=%ct"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=tools.TIMEOUT_S, check=True)
        return int(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        hint = f"Set {tools.EPOCH_VARIABLE} to the date of the sources, in seconds since 1970."
        raise UserError("usage", f"{REPOSITORY} has no commit that tells its date.", hint=hint) from None


def build_wheel(folder: Path, uv: Uv, source_date: int) -> Path:
    """Build the wheel of this repository with hatchling, from this Python or from the package index.

    Raises:
        EnvironmentProblem: `environment-build-failed` with what the builder said.
    """
    if importlib.util.find_spec("hatchling"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    else:
        command = [str(uv.executable), "build", "--quiet", "--no-config", "--wheel", "--out-dir", str(folder)]
    tools.run(command, REPOSITORY, source_date)
    (wheel,) = folder.glob("tunesmith-*.whl")
    return wheel


def fetch_uv(uv: Uv, system: str, folder: Path) -> Path:
    """Fetch the locked uv for a system; every file of it is checked by hash.

    Args:
        uv: the uv that fetches.
        system: "win" or "linux".
        folder: new folder that takes the package.

    Returns:
        The folder that holds the program, under its name in UV_PROGRAMS, and its licences.

    Raises:
        EnvironmentProblem: `environment-build-failed` when the package index can't be reached.
    """
    unpacked = folder / "package"
    options = ["--quiet", "--no-config", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    target = ["--target", str(unpacked), "--python-platform", PLATFORMS[system], "--python", sys.executable]
    uv.run_offline_first("pip", "install", *options, *target, "-r", str(LOCKS / "uv.txt"))
    result = folder / "tools"
    result.mkdir()
    shutil.copy(unpacked / "bin" / UV_PROGRAMS[system], result)
    for licence in unpacked.glob("uv-*.dist-info/licenses/LICENSE*"):
        shutil.copy(licence, result / f"uv-{licence.name}")
    return result


def _python_root(names: list[PurePosixPath]) -> PurePosixPath | None:
    """Return the folder inside an archive that holds the uppermost python.exe."""
    found = [name.parent for name in names if name.name.lower() == "python.exe"]
    return min(found, key=lambda path: len(path.parts), default=None)


def unpack_python(archive: Path, folder: Path) -> None:
    """Unpack a whole CPython for Windows from a zip, wherever in it its root is.

    Raises:
        UserError: `usage` when the file can't be read; `python-unsupported` when it holds no Python that serves.
    """
    try:
        with zipfile.ZipFile(archive) as source:
            names = [PurePosixPath(name) for name in source.namelist() if not name.endswith("/")]
            root = _python_root(names)
            inside = {name.relative_to(root): name for name in names if root is not None and name.is_relative_to(root)}
            _check_python(archive, {str(path).lower() for path in inside})
            for path, name in inside.items():
                if ".." in path.parts or "__pycache__" in path.parts:
                    continue
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read(str(name)))
    except (OSError, zipfile.BadZipFile) as error:
        hint = "Name a zip of a whole CPython for Windows."
        raise UserError("usage", f"{archive} can't be read as a zip: {error}.", hint=hint) from None


def _check_python(archive: Path, names: set[str]) -> None:
    """Refuse what can't carry environments."""
    if not any(PYTHON_LIBRARY.fullmatch(name) for name in names):
        reason = "holds no CPython 3.11, 3.12 or 3.13 for Windows"
    elif "pythonw.exe" not in names:
        reason = "lacks pythonw.exe"
    elif "include/python.h" not in names or "lib/os.py" not in names:
        reason = "is the embeddable Python, without the headers and the library that environments and Triton need"
    else:
        return
    raise UserError("python-unsupported", f"{archive} {reason}.", hint="Name a zip of a whole CPython for Windows.")
