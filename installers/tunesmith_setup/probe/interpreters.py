"""Finds Python interpreters that can carry the environments: full CPython 3.11 to 3.13, never fetched silently.

Passed over, with the reason: conda (its search for libraries breaks PyTorch's), aliases of the Windows Store, pyenv's
shims (they answer for another version than asked), 32-bit and free-threaded builds (no wheels), Windows' embeddable
package (Triton needs Python.h), and 3.13.8, which can't import PyTorch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.machine import PythonCandidate
from tunesmith_core.messages import Message
from tunesmith_setup.probe.computer import Computer

SUPPORTED = ((3, 11), (3, 12), (3, 13))
BROKEN = {(3, 13, 8)}
SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin")
ANSWER_TIMEOUT_S = 20.0
REGISTERED = ("HKCU\\SOFTWARE\\Python\\PythonCore", "HKLM\\SOFTWARE\\Python\\PythonCore")
QUESTION = (
    "import json, os, sys; base = sys.base_prefix; print(json.dumps({"
    "'executable': getattr(sys, '_base_executable', None) or sys.executable, 'version': sys.version_info[:3],"
    "'implementation': sys.implementation.name, 'conda': os.path.isdir(os.path.join(base, 'conda-meta')),"
    "'bits': sys.maxsize.bit_length() + 1, 'threaded': 't' in getattr(sys, 'abiflags', ''),"
    "'embeddable': os.name == 'nt' and any(name.endswith('._pth') for name in os.listdir(base))}))"
)

_NAME = re.compile(r"python(?:3(?:\.(\d+)t?)?)?(?:\.exe)?", re.IGNORECASE)


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


def inspect(executable: str, computer: Computer, timeout_s: float | None = None) -> PythonCandidate | None:
    """Ask an interpreter what it is.

    Args:
        executable: its path; what can't serve by its place is not started.
        computer: start it.
        timeout_s: how long it may take; a part of the probe's time when None.

    Returns:
        None when it does not answer in time or is no Python.
    """
    parts = {part.lower() for part in re.split(r"[\\/]", executable)}
    if "windowsapps" in parts:
        return PythonCandidate(executable=executable, problem=Message("alias of the Windows Store"))
    if "shims" in parts:
        return PythonCandidate(executable=executable, problem=Message("shim of pyenv"))
    answer = computer.run([executable, "-I", "-c", QUESTION], timeout_s)
    try:
        facts = json.loads(answer.text) if answer and answer.code == 0 else None
        if facts is None:
            return None
        major, minor, micro = facts["version"]
        version = (int(major), int(minor), int(micro))
        return PythonCandidate(executable=facts["executable"], version=version, problem=_problem(version, facts))
    except (ValueError, KeyError, TypeError):
        return None


def _problem(version: tuple[int, int, int], facts: dict[str, Any]) -> str | None:  # Any: JSON values
    """Return why an interpreter can't carry our environments."""
    if facts["implementation"] != "cpython":
        return Message("{name} instead of CPython", name=facts["implementation"])
    if facts["conda"]:
        return Message("part of conda")
    if version[:2] not in SUPPORTED:
        return Message("only 3.11, 3.12 and 3.13 are supported")
    if version in BROKEN:
        return Message("PyTorch can't be imported in this version")
    if facts.get("bits", 64) != 64:
        return Message("32-bit build")
    if facts.get("threaded"):
        return Message("free-threaded build")
    if facts.get("embeddable"):
        return Message("embeddable package, which has no Python.h")
    return None


def examine(executable: str | Path) -> Interpreter | None:
    """Ask an interpreter what it is; None when it does not answer in time or can't serve."""
    candidate = inspect(str(executable), Computer(ANSWER_TIMEOUT_S), ANSWER_TIMEOUT_S)
    if candidate is None or candidate.problem or candidate.version is None:
        return None
    return Interpreter(Path(candidate.executable), candidate.version[:2])


def places(computer: Computer) -> list[str]:
    """Return where interpreters are, the running one first, each once; whether they can serve is another question."""
    windows = computer.system == "windows"
    found: dict[str, str] = {}
    for place in (computer.python, *(_windows_places(computer) if windows else _linux_places(computer))):
        # A link in /usr/bin and the file behind it are one Python; a shim or alias is told by its own place.
        real = place if windows else computer.resolved(place)
        found.setdefault(real.lower() if windows else real, place)
    return list(found.values())


def _on_path(computer: Computer, separator: str, slash: str) -> Iterator[str]:
    for folder in computer.variables.get("PATH", "").split(separator):
        if folder:
            names = (name for name in computer.names(folder) if _NAME.fullmatch(name))
            yield from (f"{folder.rstrip(slash)}{slash}{name}" for name in sorted(names, reverse=True))


def _linux_places(computer: Computer) -> Iterator[str]:
    yield from _on_path(computer, ":", "/")
    home = computer.variables.get("HOME", "")
    folders = [*SYSTEM_FOLDERS]
    for parent in (
        f"{computer.variables.get('PYENV_ROOT') or f'{home}/.pyenv'}/versions",
        f"{home}/.local/share/uv/python",
    ):
        folders += [f"{parent}/{name}/bin" for name in sorted(computer.names(parent), reverse=True)]
    for folder in folders:
        yield from (f"{folder}/{name}" for name in computer.names(folder) if re.fullmatch(r"python3\.\d+", name))


def _windows_places(computer: Computer) -> Iterator[str]:
    yield from (place for place in _on_path(computer, ";", "\\") if place.lower().endswith(".exe"))
    for root in REGISTERED:
        for version in sorted(computer.registry_keys(root), reverse=True):
            values = computer.registry(f"{root}\\{version}\\InstallPath")
            folder = str(values.get("", "")).rstrip("\\")
            if values.get("ExecutablePath") or folder:
                yield str(values.get("ExecutablePath") or f"{folder}\\python.exe")
    for parent in (
        computer.variables.get("LOCALAPPDATA", "") + "\\Programs\\Python",
        computer.variables.get("APPDATA", "") + "\\uv\\python",
    ):
        for name in sorted(computer.names(parent), reverse=True):
            place = f"{parent}\\{name}\\python.exe"
            if computer.exists(place):
                yield place


def find(version: tuple[int, int]) -> Interpreter | None:
    """Return an interpreter of a version on this computer, or None."""
    for place in places(Computer(ANSWER_TIMEOUT_S)):
        name = _NAME.fullmatch(re.split(r"[\\/]", place)[-1])
        if name and name[1] not in (None, str(version[1])):
            continue
        interpreter = examine(place)
        if interpreter and interpreter.version == version:
            return interpreter
    return None


def choose() -> Interpreter:
    """Return the running interpreter if it serves, else the first supported one that is found.

    Raises:
        EnvironmentProblem: `python-unsupported` when there is none.
    """
    computer = Computer(ANSWER_TIMEOUT_S)
    own = examine(computer.python)
    if own:
        return own
    for version in SUPPORTED:
        interpreter = find(version)
        if interpreter:
            return interpreter
    running = inspect(computer.python, computer, ANSWER_TIMEOUT_S)
    number = ".".join(str(part) for part in running.version) if running and running.version else "?"
    raise EnvironmentProblem(
        "python-unsupported",
        "Python {number} ({python}) is not supported, and no other Python on this computer is.",
        hint="Install Python 3.11, 3.12 or 3.13 (not from conda or the Windows Store), then run this command with it.",
        number=number,
        python=computer.python,
    )
