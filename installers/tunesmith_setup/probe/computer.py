"""Where the facts about a computer come from: files, programs, variables, the Windows registry and system calls.

Every subject of the probe reads through one `Computer`, so that tests replay recorded answers of other computers. What
is not there, or may not be read, is None or empty; nothing here raises.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import bounded, nvml
from tunesmith_core.bounded import Output
from tunesmith_core.nvml import Reading
from tunesmith_setup.probe import windows_calls
from tunesmith_setup.probe.windows_calls import Value


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of a volume."""

    total_bytes: int
    free_bytes: int


class Computer:
    """The computer that this process runs on.

    Attributes:
        system: "windows" or "linux".
        variables: of this process.
        python: the interpreter that runs it.
        timeout_s: how long the whole probe may take; single questions take a part of it.
    """

    def __init__(self, timeout_s: float) -> None:
        self.system = "windows" if sys.platform == "win32" else "linux"
        self.variables: Mapping[str, str] = os.environ
        self.python = sys.executable
        self.timeout_s = timeout_s

    def read(self, path: str) -> str | None:
        """Return a text file; what is not UTF-8 becomes a replacement mark."""
        try:
            return Path(path).read_bytes().decode("utf-8", errors="replace")
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        try:
            return sorted(os.listdir(folder))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether a file or folder can be seen."""
        return os.path.exists(path)  # noqa: PTH110 - Path.exists raises where a parent may not be entered

    def resolved(self, path: str) -> str:
        """Return a path without links."""
        return os.path.realpath(path)

    def space(self, path: str) -> Space | None:
        """Return the size of the volume that is mounted at a path."""
        try:
            facts = os.statvfs(path)
        except OSError:
            return None
        return Space(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)

    def run(self, command: list[str], timeout_s: float | None = None) -> Output | None:
        """Run a program; None when it can't be started or takes longer than half of the probe's time."""
        return bounded.run(command, timeout_s or self.timeout_s / 2)

    def nvml(self, timeout_s: float) -> Reading | None:
        """Return what the NVIDIA driver says; None when it is not there or takes longer."""
        return bounded.ask_all({"nvml": nvml.read}, timeout_s).get("nvml")

    def registry(self, key: str) -> Mapping[str, Value]:
        """Return the values of a key such as `HKLM\\SOFTWARE\\Microsoft`, by name."""
        return windows_calls.registry_values(key)

    def registry_keys(self, key: str) -> list[str]:
        """Return the names of the keys below a key, sorted."""
        return windows_calls.registry_keys(key)

    def memory(self) -> tuple[int, int, int, int] | None:
        """Return, on Windows, bytes of main memory, free main memory, the commit limit and what is left of it."""
        return windows_calls.memory()

    def drives(self) -> list[tuple[str, str, str | None, Space | None]]:
        """Return, on Windows, path, kind (as `machine.Disk` has it), file system and size of each drive."""
        return [
            (path, kind, file_system, Space(*sizes) if sizes else None)
            for path, kind, file_system, sizes in windows_calls.drives()
        ]
