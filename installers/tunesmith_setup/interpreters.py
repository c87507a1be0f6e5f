"""Finds Python interpreters that can carry the environments: full CPython 3.11 to 3.13, never fetched silently.

Passed over: conda (its search for libraries breaks PyTorch's), aliases of the Windows Store, pyenv's shims (they answer
for another version than asked), and 3.13.8, which can't import PyTorch.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.errors import EnvironmentProblem

SUPPORTED = ((3, 11), (3, 12), (3, 13))
BROKEN = {(3, 13, 8)}
SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin")
ANSWER_TIMEOUT_S = 20
QUESTION = (
    "import json, os, sys; base = sys.base_prefix; print(json.dumps({"
    "'executable': getattr(sys, '_base_executable', None) or sys.executable, 'version': sys.version_info[:3],"
    "'implementation': sys.implementation.name, 'conda': os.path.isdir(os.path.join(base, 'conda-meta'))}))"
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that can carry environments.

    Attributes:
        executable: its path, outside any virtual environment.
        version: major and minor version.
    """

    executable: Path
    version: tuple[int, int]

    @property
    def tag(self) -> str:
        """Name of the version in locks and environment names, such as py311."""
        return f"py{self.version[0]}{self.version[1]}"


def examine(executable: str | Path) -> Interpreter | None:
    """Ask an interpreter what it is; None when it does not answer in time or can't serve."""
    if {part.lower() for part in Path(executable).parts} & {"shims", "windowsapps"}:
        return None
    try:
        answer = subprocess.run(
            [str(executable), "-I", "-c", QUESTION], capture_output=True, timeout=ANSWER_TIMEOUT_S, check=True
        )
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    version = tuple(facts["version"])
    if facts["conda"] or facts["implementation"] != "cpython" or version in BROKEN or version[:2] not in SUPPORTED:
        return None
    return Interpreter(Path(facts["executable"]), version[:2])


def _candidates(version: tuple[int, int]) -> Iterator[str | Path]:
    name = f"python{version[0]}.{version[1]}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        if found:
            yield found
    yield from (Path(folder) / name for folder in SYSTEM_FOLDERS)
    yield from sorted(pyenv.glob(f"{version[0]}.{version[1]}.*/bin/{name}"), reverse=True)
    if sys.platform == "win32":  # pragma: no cover
        local = Path(os.environ.get("LOCALAPPDATA", "")) / "Programs" / "Python"
        yield local / f"Python{version[0]}{version[1]}" / "python.exe"


def find(version: tuple[int, int]) -> Interpreter | None:
    """Return an interpreter of a version on this computer, or None."""
    for candidate in _candidates(version):
        interpreter = examine(candidate)
        if interpreter and interpreter.version == version:
            return interpreter
    return None


def choose() -> Interpreter:
    """Return the running interpreter if it serves, else the first supported one that is found.

    Raises:
        EnvironmentProblem: `python-unsupported` when there is none.
    """
    own = examine(sys.executable)
    if own:
        return own
    for version in SUPPORTED:
        interpreter = find(version)
        if interpreter:
            return interpreter
    running = ".".join(str(number) for number in sys.version_info[:3])
    raise EnvironmentProblem(
        "python-unsupported",
        f"Neither the running Python {running} ({sys.executable}) nor another one on this computer can be used.",
        hint="Install Python 3.11, 3.12 or 3.13 (not from conda or the Windows Store), then run this command with it.",
    )
