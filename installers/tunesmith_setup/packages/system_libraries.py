"""Libraries of the operating system that the window needs: which are missing, and how they get here.

They are looked for by file name in a child process (a broken graphics driver must not take the installer with it) and
installed by the system's package manager where that works without a question: as root, or with a sudo that asks none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.environments import scrubbed_environment
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message
from tunesmith_setup.progress import Progress

PROBE = """
import ctypes, json, sys
missing = []
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
    except OSError:
        missing.append(name)
print(json.dumps(missing))
"""

WINDOW_LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libX11.so.6": "libx11-6",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
}
"""File name of each library Qt loads, and the Debian package that holds it."""

TEST_PROGRAMS = {
    "Xvfb": "xvfb",
    "xauth": "xauth",
    "makensis": "nsis",
    "makeself": "makeself",
    "dpkg-deb": "dpkg",
}
"""Programs that the tests need on top, and their Debian packages."""

WINDOWS_PROGRAMS = {
    "wine": "wine",
    "wineserver": "wine64",
    "ntlm_auth": "winbind",
    "x86_64-w64-mingw32-gcc": "gcc-mingw-w64-x86-64-win32",
    "x86_64-w64-mingw32-objdump": "binutils-mingw-w64-x86-64",
}
"""Programs that the tests of Windows need, and their Debian packages."""

FONT_FOLDERS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
FONT_PACKAGE = "fonts-dejavu-core"


@dataclass(frozen=True, slots=True)
class Missing:
    """What is not there.

    Attributes:
        libraries: file names of libraries.
        programs: names of programs.
        packages: Debian packages that hold all of it.
    """

    libraries: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


def missing(*, for_tests: bool) -> Missing:
    """Return what the window, and with `for_tests` the headless X server, lacks on this computer."""
    if sys.platform == "win32":  # pragma: no cover
        return Missing()
    answer = subprocess.run([sys.executable, "-I", "-c", PROBE, *WINDOW_LIBRARIES], capture_output=True, check=False)
    # A probe that died says nothing; then the package manager decides what is missing.
    libraries = tuple(json.loads(answer.stdout)) if answer.returncode == 0 else tuple(WINDOW_LIBRARIES)
    programs = tuple(name for name in TEST_PROGRAMS if not shutil.which(name)) if for_tests else ()
    packages = [WINDOW_LIBRARIES[name] for name in libraries] + [TEST_PROGRAMS[name] for name in programs]
    if not any(next(folder.rglob("*.[to]tf"), None) for folder in FONT_FOLDERS):
        packages.append(FONT_PACKAGE)
    return Missing(libraries, programs, tuple(packages))


def privilege() -> list[str] | None:
    """Return the words before a command that needs root: none as root, sudo where it asks nothing, else None."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None


def command_for_person(lacking: Missing) -> Message:
    """Return the step that installs what is missing with the package manager of this system."""
    if shutil.which("apt-get"):
        return Message("Run: {command}", command=f"sudo apt-get install {' '.join(lacking.packages)}")
    for manager in ("dnf", "zypper"):
        if shutil.which(manager):
            # These find a package by the library in it, so no list of their package names is needed.
            names = [f"'{name}()(64bit)'" for name in lacking.libraries]
            names += [f"/usr/bin/{name}" for name in lacking.programs]
            return Message("Run: {command}", command=f"sudo {manager} install {' '.join(names)}")
    everything = " ".join(lacking.libraries + lacking.programs)
    return Message("Install these with your package manager: {names}", names=everything)


def apt_install(packages: tuple[str, ...], progress: Progress) -> bool:
    """Install Debian packages without a question; return False where that can't be done or failed."""
    apt_get, root = shutil.which("apt-get"), privilege()
    if not apt_get or root is None:
        return False
    progress.note(Message("Running {command}", command=f"apt-get install {' '.join(packages)}"))
    environment = scrubbed_environment() | {"DEBIAN_FRONTEND": "noninteractive"}
    keep_variable = ["env", "DEBIAN_FRONTEND=noninteractive"]
    # The list may be old or absent, and updating it may fail for a foreign source: only the installation counts.
    subprocess.run([*root, apt_get, "update", "-qq"], env=environment, capture_output=True, check=False)
    install = [*root, *keep_variable, apt_get, "install", "-y", "-qq", "--no-install-recommends", *packages]
    result = subprocess.run(install, env=environment, capture_output=True, check=False)
    if result.returncode != 0:
        progress.line(result.stderr.decode(errors="replace").strip()[-2000:])
    return result.returncode == 0


def _missing_for_windows() -> list[str]:
    return [name for name in WINDOWS_PROGRAMS if not shutil.which(name)]


def ensure_wine(progress: Progress) -> list[str]:
    """Install what the tests of Windows need where that asks nothing; return the programs that are still missing."""
    lacking = _missing_for_windows()
    if lacking and apt_install(tuple(WINDOWS_PROGRAMS[name] for name in lacking), progress):
        lacking = _missing_for_windows()
    return lacking


def ensure(progress: Progress, *, for_tests: bool = False) -> None:
    """Install what is missing.

    Raises:
        EnvironmentProblem: `system-library-missing` with the command that helps, when it can't be done here.
    """
    lacking = missing(for_tests=for_tests)
    if lacking.packages and apt_install(lacking.packages, progress):
        lacking = missing(for_tests=for_tests)
    if not lacking.packages:
        progress.note("Complete")
        return
    names = ", ".join(lacking.libraries + lacking.programs) or Message("a font")
    raise EnvironmentProblem(
        "system-library-missing",
        "Missing: {names}.",
        hint=command_for_person(lacking),
        names=names,
    )
