"""Which process is that: a pid alone is reused, so a process is named by pid, start time and boot.

Standard library only: /proc on Linux, ctypes on Windows.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process of this or an earlier boot.

    Attributes:
        pid: process id.
        start: start time in the system's own unit; only compared for equality.
        boot: identity of the boot, "" where the start time alone is unique.
    """

    pid: int
    start: int
    boot: str

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        return identify(self.pid) == self

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the identity as JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> ProcessIdentity:
        """Rebuild an identity from `to_dict`. Raises KeyError, TypeError or ValueError for anything else."""
        identity = ProcessIdentity(values["pid"], values["start"], values["boot"])
        whole = all(type(number) is int and 0 <= number < 1 << 64 for number in (identity.pid, identity.start))
        if not (whole and identity.pid < 1 << 32 and isinstance(identity.boot, str)):
            raise ValueError("no process has such an identity")
        return identity


def current() -> ProcessIdentity:
    """Return the identity of this process."""
    identity = identify(os.getpid())
    assert identity is not None, "a running process has an identity"
    return identity


if sys.platform == "win32":  # pragma: no cover

    def identify(pid: int) -> ProcessIdentity | None:
        """Return the identity of a process, or None when it does not run."""
        import ctypes
        from ctypes import wintypes

        kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
        query_limited_information, still_active = 0x1000, 259
        kernel32.OpenProcess.restype = wintypes.HANDLE
        handle = kernel32.OpenProcess(query_limited_information, False, pid)
        if not handle:
            return None
        try:
            code = wintypes.DWORD()
            times = [wintypes.FILETIME() for _ in range(4)]
            kernel32.GetExitCodeProcess(wintypes.HANDLE(handle), ctypes.byref(code))
            kernel32.GetProcessTimes(wintypes.HANDLE(handle), *(ctypes.byref(time) for time in times))
        finally:
            kernel32.CloseHandle(wintypes.HANDLE(handle))
        if code.value != still_active:
            return None
        created = times[0]
        return ProcessIdentity(pid, (created.dwHighDateTime << 32) | created.dwLowDateTime, "")

    def cpu_seconds(pid: int) -> float | None:
        """Return the processor time that a process has used, or None when it does not run."""
        import ctypes
        from ctypes import wintypes

        kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
        query_limited_information = 0x1000
        kernel32.OpenProcess.restype = wintypes.HANDLE
        handle = kernel32.OpenProcess(query_limited_information, False, pid)
        if not handle:
            return None
        try:
            times = [wintypes.FILETIME() for _ in range(4)]
            if not kernel32.GetProcessTimes(wintypes.HANDLE(handle), *(ctypes.byref(time) for time in times)):
                return None
        finally:
            kernel32.CloseHandle(wintypes.HANDLE(handle))
        return sum((time.dwHighDateTime << 32) | time.dwLowDateTime for time in times[2:]) / 1e7

else:

    def identify(pid: int) -> ProcessIdentity | None:
        """Return the identity of a process, or None when it does not run (a zombie does not run)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        # The name in parentheses may hold spaces, so count the fields behind it: state is field 3, start time field 22.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else ProcessIdentity(pid, int(fields[19]), boot)

    def cpu_seconds(pid: int) -> float | None:
        """Return the processor time that a process has used, or None when it does not run."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        # User and system time are fields 14 and 15.
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
