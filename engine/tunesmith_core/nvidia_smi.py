"""Asks nvidia-smi about GPUs, for when the driver's library does not answer; reads its old and its new wording.

The heading says "Driver Version" and "CUDA Version", since driver 610 "KMD Version" and "CUDA UMD Version". Tables are
asked as CSV and read by their column names; a field that a GPU lacks says "[N/A]", "[Not Supported]" or an error.
"""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from collections.abc import Callable

from tunesmith_core.bounded import Output
from tunesmith_core.machine import Driver, Gpu, GpuProcess
from tunesmith_core.nvml import Reading

MIB = 1024**2
NO_DEVICES = 6
"""Exit code for a driver that sees no GPU (RETURN VALUE in nvidia-smi's manual)."""
FIELDS = ("index", "name", "compute_cap", "memory.total", "memory.free", "driver_version", "pci.bus_id")
PROCESS_FIELDS = ("gpu_bus_id", "pid", "process_name", "used_gpu_memory")

_DRIVER = re.compile(r"(?:Driver|KMD) Version:\s*(\d+\.[\d.]+)")
_CUDA = re.compile(r"CUDA(?: UMD)? Version:\s*(\d+)\.(\d+)")

Runner = Callable[[list[str]], Output | None]


def places(*, windows: bool) -> list[str]:
    """Return where nvidia-smi is looked for, in this order."""
    if not windows:
        return ["nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"]
    system = os.environ.get("SYSTEMROOT", r"C:\Windows")
    programs = os.environ.get("PROGRAMFILES", r"C:\Program Files")
    return [
        rf"{system}\System32\nvidia-smi.exe",
        rf"{programs}\NVIDIA Corporation\NVSMI\nvidia-smi.exe",
        "nvidia-smi",
    ]


def read(run: Runner, *, windows: bool = sys.platform == "win32") -> Reading | None:
    """Return what nvidia-smi says.

    Args:
        run: runs a command and returns its output, None when it can't be started or takes too long.
        windows: whether the computer runs Windows.

    Returns:
        None when there is no nvidia-smi that answers in time.
    """
    for program in places(windows=windows):
        heading = run([program])
        if heading is not None:
            return _read(program, heading, run)
    return None


def _read(program: str, heading: Output, run: Runner) -> Reading:
    driver = _DRIVER.search(heading.text)
    if heading.code == NO_DEVICES:
        return Reading(gpus=())
    if driver is None:
        problem = " ".join(heading.text.split()) or f"nvidia-smi ended with code {heading.code}"
        return Reading(problem=problem)
    cuda = _CUDA.search(heading.text)
    table = _table(run, program, "--query-gpu", FIELDS)
    if table is None:
        # Drivers before 510 do not know compute_cap and refuse the whole question.
        table = _table(run, program, "--query-gpu", tuple(field for field in FIELDS if field != "compute_cap"))
    holders = _table(run, program, "--query-compute-apps", PROCESS_FIELDS)
    return Reading(
        Driver(
            version=driver[1],
            cuda_version=(int(cuda[1]), int(cuda[2])) if cuda else None,
            source="nvidia-smi",
        ),
        None if table is None else tuple(gpu for row in table if (gpu := _gpu(row, holders)) is not None),
    )


def _table(run: Runner, program: str, question: str, fields: tuple[str, ...]) -> list[dict[str, str]] | None:
    """Return the rows of an answer by column name without units; None when the question was refused."""
    output = run([program, f"{question}={','.join(fields)}", "--format=csv,nounits"])
    if output is None or output.code != 0:
        return None
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(output.text)) if row]
    columns = [name.partition(" [")[0] for name in rows[0]] if rows else []
    return [dict(zip(columns, row, strict=False)) for row in rows[1:] if len(row) == len(columns)]


def _gpu(row: dict[str, str], holders: list[dict[str, str]] | None) -> Gpu | None:
    """Return the GPU of a row; None when it is none, such as a lost GPU's error text."""
    index, capability = _number(row.get("index")), re.fullmatch(r"(\d+)\.(\d+)", row.get("compute_cap", ""))
    if index is None:
        return None
    return Gpu(
        index=index,
        name=row.get("name") or "NVIDIA GPU",
        compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
        total_bytes=_mebibytes(row.get("memory.total")),
        free_bytes=_mebibytes(row.get("memory.free")),
        processes=None if holders is None else tuple(_processes(row.get("pci.bus_id"), holders)),
    )


def _processes(bus_id: str | None, holders: list[dict[str, str]]) -> list[GpuProcess]:
    found = [
        GpuProcess(
            pid=pid,
            name=re.split(r"[\\/]", row.get("process_name", ""))[-1] or None,
            used_bytes=_mebibytes(row.get("used_gpu_memory")),
        )
        for row in holders
        if row.get("gpu_bus_id") == bus_id and (pid := _number(row.get("pid"))) is not None
    ]
    return sorted(found, key=lambda one: -(one.used_bytes or 0))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _mebibytes(text: str | None) -> int | None:
    """Return bytes for a number of mebibytes; None for "[N/A]" and its kind."""
    number = _number(text)
    return None if number is None else number * MIB
