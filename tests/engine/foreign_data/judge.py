"""Reads data files as a person's run does, one after another, and writes down how each ended. Run in a fresh process.

    python judge.py PATHS.json OUTCOMES.jsonl FIRST

A line is written before each file and after it, so that whoever started this knows which file ended the process.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.read import Source

HANGS_S = 300
"""Of the clock: a FIFO takes none of the processor's time."""

MOST_CPU_S = 60
MOST_MEMORY_BYTES = 8 * 1024**3
"""Of addresses, of which torch alone takes some; what is really used is measured."""


def _read(path: Path, *, skip: bool) -> dict[str, Any]:
    skipped: list[int] = []
    source = Source(SourceSpec(path=str(path)), skip, lambda number, _error: skipped.append(number))
    good = []
    for number, conversation in source.conversations():
        repr(conversation).encode()
        good.append(number)
    return {"good": good, "skipped": skipped, "counted": source.num_skipped_rows}


def _head(path: Path, *, skip: bool) -> dict[str, Any]:
    with contextlib.suppress(TunesmithError):
        datafmt.sniff(path)
    good, bad = datafmt.check_head(SourceSpec(path=str(path)), skip)
    return {"good": good, "bad": bad}


WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "head": lambda path: _head(path, skip=False),
    "head, skipping": lambda path: _head(path, skip=True),
    "rows": lambda path: _read(path, skip=False),
    "rows, skipping": lambda path: _read(path, skip=True),
}


def outcome(read: Callable[[Path], dict[str, Any]], path: Path) -> dict[str, Any]:
    """Return what a way of reading gave: rows, or an error as a person meets it; and the seconds it took."""
    before = memory_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(start) + MOST_CPU_S, resource.RLIM_INFINITY))
    signal.alarm(HANGS_S)
    try:
        told = read(path)
    except BaseException as raised:
        error = wrap(raised)
        told = {"code": error.code, "message": error.message, "hint": error.hint, "exit": error.exit_code}
        if error.code == "bug":
            told["message"] += "".join(traceback.format_exception(raised)[-2:])
    signal.alarm(0)
    seconds, peak = time.process_time() - start, memory_mib("VmHWM")
    return told | {"seconds": seconds, "peak_mib": peak, "grown_mib": peak - before}


def memory_mib(name: str) -> int:
    """Return what Linux says of this process's memory; writing 5 to clear_refs begins a new peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) // 1024


def main() -> None:
    """Judge the files from FIRST on."""
    paths, outcomes, first = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    with outcomes.open("a", encoding="utf-8") as file:
        for number, path in enumerate(json.loads(paths.read_text(encoding="utf-8"))[first:], first):
            for way, read in WAYS.items():
                file.write(json.dumps([number, way, None]) + "\n")
                file.flush()
                file.write(json.dumps([number, way, outcome(read, Path(path))]) + "\n")


if __name__ == "__main__":
    main()
