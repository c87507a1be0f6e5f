"""A Windows Python under Wine, for tests: CPython's own DLLs out of a wheel, four small shims, packages by lock files.

Wine 8 as Debian has it. Nothing here is shipped. Folders of Windows: C:\\python (the base Python with the test tools),
C:\\envs (virtual environments with the product's own locks), C:\\t (temporary files). What differs from the product's
locks is named in rig.in: numpy 2.0.2, because newer ones call functions that Wine's C library lacks.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tunesmith_core import files, paths
from tunesmith_setup.packages.uvtool import LOCKS, Uv

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
LOCK = HERE / "rig.txt"
COMPILER = "x86_64-w64-mingw32-gcc"
OBJDUMP = "x86_64-w64-mingw32-objdump"
PROGRAMS = ("wine", "wineserver", COMPILER, OBJDUMP)
PYTHON_DLL = "python311.dll"
VERSION = (3, 11)
BASE_DLLS = {PYTHON_DLL, "vcruntime140.dll"}
BESIDE_PYTHON = {"_wmi.pyd"}
"""Asking it for the platform ends Wine's process."""

NO_LIBRARY = (
    *("lib-dynload", "site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "config-*"),
    # Debian's, which would stand before that of an environment.
    "sitecustomize.py",
)
OVERRIDDEN = frozenset({"numpy"})
SETUP_TIMEOUT_S = 600
LEFTOVER_S = 10
LEFT_BEHIND = "Processes were left behind."
PYTHON = r"C:\python\python.exe"


class RigError(RuntimeError):
    """The rig can't be built or a program in it did not end in time."""


@dataclass(frozen=True, slots=True)
class Rig:
    """A built rig.

    Attributes:
        folder: where it lies; drive C: is prefix/drive_c below it.
    """

    folder: Path

    @property
    def drive_c(self) -> Path:
        """The folder that Windows programs see as C:."""
        return self.folder / "prefix" / "drive_c"

    def windows_path(self, path: Path) -> str:
        """Return the name under which Windows programs see a file."""
        if path.is_relative_to(self.drive_c):
            return "C:\\" + str(path.relative_to(self.drive_c)).replace("/", "\\")
        return "Z:" + str(path).replace("/", "\\")

    def variables(self) -> dict[str, str]:
        """Return the variables of every Wine process: nothing of the person's shell, and no menus in the real home."""
        kept = {name: os.environ[name] for name in ("PATH", "DISPLAY", "XAUTHORITY") if name in os.environ}
        return kept | {
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "WINEPREFIX": str(self.folder / "prefix"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=;winemenubuilder.exe=d",
            "WINEPATH": r"C:\python;C:\python\Scripts",
        }

    def start(self, command: Sequence[str], **variables: str) -> subprocess.Popen[bytes]:
        """Start a Windows program whose output is a pipe: with a file as output Python does not start under Wine."""
        return subprocess.Popen(
            ["wine", *command],
            cwd=REPOSITORY,
            env=self.variables() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, command: Sequence[str], timeout_s: float, **variables: str) -> tuple[int, str]:
        """Run a Windows program to its end; return exit code and output.

        What it leaves behind is ended, and said in the last line of the output.

        Raises:
            RigError: when it did not end in time; every process of the rig is gone then.
        """
        process = self.start(command, **variables)
        chunks: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(process.stdout, chunks), daemon=True)
        reader.start()
        ended = False
        try:
            process.wait(timeout_s)
            ended = True
        except subprocess.TimeoutExpired:
            pass
        reader.join(LEFTOVER_S if ended else 0)
        if left := reader.is_alive():
            self.kill_all()
            reader.join(LEFTOVER_S)
        text = b"".join(chunks).decode("utf-8", errors="replace").replace("\r\n", "\n")
        if not ended:
            process.kill()
            process.wait()
            raise RigError(f"{command} did not end within {timeout_s:g} s:\n{text[-20000:]}")
        return process.returncode, f"{text}\n{LEFT_BEHIND}" if left else text

    def python(self, *arguments: str, timeout_s: float, python: str = PYTHON, **variables: str) -> tuple[int, str]:
        """Run a Python of the rig in UTF-8; see `run`."""
        return self.run([python, "-X", "utf8", "-B", "-u", *arguments], timeout_s, **variables)

    def kill_all(self) -> None:
        """End every process of the rig."""
        subprocess.run(["wineserver", "-k"], env=self.variables(), capture_output=True, timeout=60, check=False)

    def environment(self, name: str, lock: str, uv: Uv) -> str:
        """Make a virtual environment with the packages of a lock of the product; return its Python's Windows path.

        The test tools and what `OVERRIDDEN` names come from the base Python.
        """
        folder = self.drive_c / "envs" / name
        if not (folder / "pyvenv.cfg").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            changed = without(LOCKS / lock, OVERRIDDEN, self.folder / f"{name}.txt")
            install(uv, changed, folder / "Lib" / "site-packages")
            (folder / "Scripts").mkdir()
            launcher = self.drive_c / "python" / "Lib" / "venv" / "scripts" / "nt" / "python.exe"
            shutil.copy(launcher, folder / "Scripts")
            text = "home = C:\\python\ninclude-system-site-packages = true\n"
            files.atomic_write_text(folder / "pyvenv.cfg", text)
        return rf"C:\envs\{name}\Scripts\python.exe"


def _read_all(stream: IO[bytes] | None, chunks: list[bytes]) -> None:
    assert stream is not None
    with stream:
        while chunk := stream.read1(65536):  # type: ignore[attr-defined]
            chunks.append(chunk)


def missing_programs() -> list[str]:
    """Return the programs that the rig needs and this computer lacks."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def obtain(uv: Uv, standard_library: Path) -> Rig:
    """Return the rig in the cache of the data root; built when it is not there.

    Args:
        uv: fetches the packages.
        standard_library: the Lib of a CPython 3.11 of this computer.
    """
    root = paths.cache_dir() / "windows-rig"
    root.mkdir(parents=True, exist_ok=True)
    rig = Rig(root / _digest(standard_library))
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (rig.folder / "complete").is_file():
            for old in root.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            _build(rig, uv, standard_library)
            (rig.folder / "complete").touch()
    return rig


def _digest(standard_library: Path) -> str:
    """Name a recipe: everything the base Python is made of."""
    digest = hashlib.sha256(str(standard_library).encode())
    for path in (Path(__file__), LOCK, *sorted((HERE / "shims").iterdir()), *sorted(LOCKS.glob("*-win-py311.txt"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def install(uv: Uv, lock: Path, target: Path) -> None:
    """Unpack the Windows wheels of a lock into a folder."""
    platform = ["--python-platform", "x86_64-pc-windows-msvc", "--python-version", "3.11"]
    options = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--link-mode", "hardlink", "--quiet"]
    uv.run_offline_first("pip", "install", *options, *platform, "--target", str(target), "-r", str(lock))


def without(lock: Path, names: frozenset[str], target: Path) -> Path:
    """Write a lock without some packages and return it."""
    blocks = re.split(r"(?m)^(?=[a-z0-9])", lock.read_text(encoding="utf-8"))
    target.write_text("".join(block for block in blocks if block.partition("==")[0] not in names), encoding="utf-8")
    return target


def _build(rig: Rig, uv: Uv, standard_library: Path) -> None:
    (rig.folder / "home").mkdir(parents=True)
    for command in (["wineboot", "-i"], ["winecfg", "-v", "win10"]):
        code, output = rig.run(command, SETUP_TIMEOUT_S)
        if code != 0:
            raise RigError(f"{command} ended with exit code {code}:\n{output}")
    python = rig.drive_c / "python"
    _copy_library(standard_library, python)
    packages = python / "Lib" / "site-packages"
    install(uv, LOCK, packages)
    _move_dlls(packages / "deploy_libs", python)
    for name in ("panda3d", "panda3d_tools", "deploy_libs", "direct", "pandac"):
        shutil.rmtree(packages / name, ignore_errors=True)
    shutil.move(packages / "bin", python / "Scripts")
    _compile_shims(python, rig.drive_c / "windows" / "system32")
    (rig.drive_c / "t").mkdir()
    code, output = rig.python(
        "-c", "import ssl, sqlite3, ctypes, lzma, asyncio, winreg, pytest", timeout_s=SETUP_TIMEOUT_S
    )
    if code != 0:
        raise RigError(f"The rig's Python does not work:\n{output}")


def _copy_library(standard_library: Path, python: Path) -> None:
    ignored = shutil.ignore_patterns(*NO_LIBRARY, "__pycache__")
    shutil.copytree(standard_library, python / "Lib", ignore=ignored)
    # Only its presence counts: it tells a full Python from the embeddable package.
    (python / "Include").mkdir()
    (python / "Include" / "Python.h").touch()


def _move_dlls(source: Path, python: Path) -> None:
    (python / "DLLs").mkdir()
    for path in source.iterdir():
        if path.name.startswith("api-ms-win-crt") or path.name in BESIDE_PYTHON:
            continue  # Wine has its own
        shutil.move(path, python / path.name if path.name.lower() in BASE_DLLS else python / "DLLs" / path.name)


def _compile_shims(python: Path, system: Path) -> None:
    shims, scripts = HERE / "shims", python / "Lib" / "venv" / "scripts" / "nt"
    scripts.mkdir(parents=True, exist_ok=True)
    for source, folder in (("python_exe.c", python), ("venv_launcher.c", scripts)):
        for name, options in (("python.exe", []), ("pythonw.exe", ["-mwindows"])):
            defined = f'-DPYTHON_DLL=L"{PYTHON_DLL}"'
            _compile("-municode", defined, *options, str(shims / source), target=folder / name)
    forwarder = [str(shims / "python3_forwarder.c"), str(_forwarding_exports(python / PYTHON_DLL))]
    _compile("-shared", "-nostdlib", "-e", "DllMain", *forwarder, target=python / "python3.dll")
    _compile("-shared", str(shims / "bcryptprimitives.c"), "-ladvapi32", target=system / "bcryptprimitives.dll")
    _compile("-shared", str(shims / "icuuc.c"), target=system / "icuuc.dll")


def _forwarding_exports(library: Path) -> Path:
    """Write the .def file that forwards every export of a library to it."""
    listing = subprocess.run([OBJDUMP, "-p", library], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"(?m)^\s+\[ *\d+\] ([A-Za-z_]\w*)$", listing)
    definition = library.with_name("python3.def")
    definition.write_text("\n".join(["LIBRARY python3", "EXPORTS", *(f"{n}={library.stem}.{n}" for n in names), ""]))
    return definition


def _compile(*arguments: str, target: Path) -> None:
    result = subprocess.run([COMPILER, "-O2", "-s", *arguments, "-o", target], capture_output=True, check=False)
    if result.returncode != 0:
        raise RigError(f"{target.name}: {result.stderr.decode(errors='replace')}")


def standard_library() -> Path:
    """Return the folder of the standard library of a CPython 3.11 on this computer.

    Raises:
        RigError: when there is none.
    """
    question = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    if sys.version_info[:2] == VERSION:
        return Path(os.__file__).parent
    from tunesmith_setup.probe import interpreters

    found = interpreters.find(VERSION)
    if found is None:
        raise RigError("no Python 3.11 on this computer")
    answer = subprocess.run([found.executable, "-I", "-c", question], capture_output=True, text=True, check=True)
    return Path(answer.stdout.strip())
