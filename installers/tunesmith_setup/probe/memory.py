"""Main memory and what the system promises beyond it: page file or swap."""

from __future__ import annotations

import re
from typing import Any

from tunesmith_setup.probe.computer import Computer


def facts(computer: Computer) -> dict[str, Any]:
    """Return the fields about memory; empty when the system does not tell."""
    return _windows(computer) if computer.system == "windows" else _linux(computer)


def _windows(computer: Computer) -> dict[str, Any]:
    told = computer.memory()
    if told is None:
        return {}
    total, free, limit, left = told
    return {
        "ram_total_bytes": total,
        "ram_free_bytes": free,
        "commit_limit_bytes": limit,
        "commit_used_bytes": limit - left,
        "page_file_bytes": max(0, limit - total),
    }


def _linux(computer: Computer) -> dict[str, Any]:
    lines = re.findall(r"^(\w+):\s+(\d+) kB$", computer.read("/proc/meminfo") or "", re.MULTILINE)
    told = {name: int(number) * 1024 for name, number in lines}
    if not {"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"} <= told.keys():
        return {}
    limit = told["MemTotal"] + told["SwapTotal"]
    return {
        "ram_total_bytes": told["MemTotal"],
        "ram_free_bytes": told["MemAvailable"],
        # Not CommitLimit: Linux grants more than that by default, and ends a process only when all of this is full.
        "commit_limit_bytes": limit,
        "commit_used_bytes": limit - told["MemAvailable"] - told["SwapFree"],
        "page_file_bytes": told["SwapTotal"],
    }
