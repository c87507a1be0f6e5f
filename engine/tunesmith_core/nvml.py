"""Asks the NVIDIA driver's own library about GPUs, through ctypes: no package, no program, milliseconds.

Every physical GPU is told, in nvidia-smi's order; CUDA_VISIBLE_DEVICES plays no part. Functions and structures are
those of NVML's API reference; what a driver lacks is unknown, not an error.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core.machine import Driver, Gpu, GpuProcess

_INSUFFICIENT_SIZE = 7
_TEXT_BYTES = 96
_MAX_PROCESSES = 256
_NOT_AVAILABLE = 2**64 - 1
"""What the driver says where Windows manages the memory and nobody can tell a process's share."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver or its program said.

    Attributes:
        driver: None when it did not tell its version.
        gpus: empty when it sees none, None when it did not tell.
        problem: why it did not work, None when it did.
    """

    driver: Driver | None = None
    gpus: tuple[Gpu, ...] | None = None
    problem: str | None = None


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of the functions that end in _v2 and _v3."""

    _fields_ = (
        ("pid", ctypes.c_uint32),
        ("used", ctypes.c_uint64),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
    )


class _OldProcess(ctypes.Structure):
    """nvmlProcessInfo_v1_t, which drivers before 510 fill."""

    _fields_ = (("pid", ctypes.c_uint32), ("used", ctypes.c_uint64))


def read() -> Reading | None:
    """Return what the driver says; None when its library is not there.

    A driver that can't be reached can block for long: bound the call with `bounded.ask_all`.
    """
    library = _load()
    return None if library is None else ask(library)


def ask(library: Any) -> Reading:  # Any: a library's functions
    """Return what the driver says through its loaded library."""
    code = library.nvmlInit_v2()
    if code != 0:
        return Reading(problem=_error(library, code))
    try:
        return Reading(_driver(library), _gpus(library))
    finally:
        library.nvmlShutdown()


def _places() -> list[str]:
    """Return where the library is looked for, in this order."""
    if sys.platform == "win32":  # pragma: no cover
        windows = Path(os.environ.get("SYSTEMROOT", r"C:\Windows"))
        programs = Path(os.environ.get("PROGRAMFILES", r"C:\Program Files"))
        # By full path, so that no nvml.dll of the current folder or the PATH is loaded.
        return [str(windows / "System32" / "nvml.dll"), str(programs / "NVIDIA Corporation" / "NVSMI" / "nvml.dll")]
    return ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"]


def _load() -> Any:  # Any: a library's functions
    for place in _places():
        try:
            return ctypes.CDLL(place)
        except OSError:
            continue
    return None


def _error(library: Any, code: int) -> str:
    try:
        library.nvmlErrorString.restype = ctypes.c_char_p
        text = library.nvmlErrorString(code)
    except AttributeError:
        text = None
    return bytes(text).decode("ascii", errors="replace") if text else f"NVML error {code}"


def _text(function: Any, *arguments: Any) -> str | None:
    """Return the text that a function writes into a buffer."""
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    ok = function(*arguments, buffer, ctypes.c_uint(_TEXT_BYTES)) == 0
    return buffer.value.decode("utf-8", errors="replace") if ok else None


def _driver(library: Any) -> Driver | None:
    version = _text(library.nvmlSystemGetDriverVersion)
    if version is None:
        return None
    number = ctypes.c_int()
    function = getattr(library, "nvmlSystemGetCudaDriverVersion_v2", None)
    told = function is not None and function(ctypes.byref(number)) == 0
    return Driver(version=version, cuda_version=(number.value // 1000, number.value % 1000 // 10) if told else None)


def _gpus(library: Any) -> tuple[Gpu, ...] | None:
    """Return the GPUs; one that was lost on the bus is left out."""
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return None
    found = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0:
            found.append(_gpu(library, index, handle))
    return tuple(found)


def _gpu(library: Any, index: int, handle: ctypes.c_void_p) -> Gpu:
    major, minor, memory = ctypes.c_int(), ctypes.c_int(), _Memory()
    told = library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) == 0
    # A GPU that shares main memory, such as GB10, tells none of its own.
    has_memory = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    return Gpu(
        index=index,
        name=_text(library.nvmlDeviceGetName, handle) or "NVIDIA GPU",
        compute_capability=(major.value, minor.value) if told else None,
        total_bytes=memory.total if has_memory else None,
        free_bytes=memory.free if has_memory else None,
        processes=_processes(library, handle),
    )


def _processes(library: Any, handle: ctypes.c_void_p) -> tuple[GpuProcess, ...] | None:
    """Return who holds a GPU's memory, the largest first; None when the driver does not tell."""
    found: dict[int, GpuProcess] = {}
    told = False
    for kind in ("Compute", "Graphics"):
        rows = _process_rows(library, f"nvmlDeviceGet{kind}RunningProcesses", handle)
        told = told or rows is not None
        for pid, used in rows or ():
            # A process that computes and draws is in both lists.
            found.setdefault(pid, GpuProcess(pid=pid, name=process_name(pid), used_bytes=used))
    return tuple(sorted(found.values(), key=lambda one: -(one.used_bytes or 0))) if told else None


def _process_rows(library: Any, name: str, handle: ctypes.c_void_p) -> list[tuple[int, int | None]] | None:
    for suffix, kind in (("_v3", _Process), ("_v2", _Process), ("", _OldProcess)):
        function = getattr(library, name + suffix, None)
        if function is None:
            continue
        count, rows = ctypes.c_uint(_MAX_PROCESSES), (kind * _MAX_PROCESSES)()
        if function(handle, ctypes.byref(count), rows) not in (0, _INSUFFICIENT_SIZE):
            return None
        told = [rows[index] for index in range(min(count.value, _MAX_PROCESSES))]
        return [(row.pid, None if row.used == _NOT_AVAILABLE else int(row.used)) for row in told]
    return None


def process_name(pid: int) -> str | None:
    """Return the file name of a process's program, None when it may not be asked or has ended."""
    if sys.platform == "win32":  # pragma: no cover
        return _windows_process_name(pid)
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _windows_process_name(pid: int) -> str | None:  # pragma: no cover
    query_limited_information = 0x1000
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009 - the name exists on Windows only
    kernel32.OpenProcess.restype = ctypes.c_void_p
    handle = kernel32.OpenProcess(query_limited_information, False, pid)
    if not handle:
        return None
    buffer, size = ctypes.create_unicode_buffer(1024), ctypes.c_uint32(1024)
    ok = kernel32.QueryFullProcessImageNameW(ctypes.c_void_p(handle), 0, buffer, ctypes.byref(size))
    kernel32.CloseHandle(ctypes.c_void_p(handle))
    return buffer.value.rpartition("\\")[2] if ok else None
