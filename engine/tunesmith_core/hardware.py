"""What this computer has to train on, told without any library: GPUs by nvidia-smi, memory by the system."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

NVIDIA_SMI_TIMEOUT_S = 5.0
MIB = 1024**2

_QUERY = "index,name,memory.total,memory.free,compute_cap"


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device to train on; on the CPU, main memory plays the part of GPU memory.

    Attributes:
        device: "cuda" or "cpu".
        name: of the GPU or the processor.
        total_bytes, free_bytes: memory of the device.
        host_total_bytes, host_free_bytes: main memory.
        gpu_index: as nvidia-smi counts, None for the CPU.
        compute_capability: such as (8, 6), (0, 0) for the CPU.
    """

    device: str
    name: str
    total_bytes: int
    free_bytes: int
    host_total_bytes: int
    host_free_bytes: int
    gpu_index: int | None = None
    compute_capability: tuple[int, int] = (0, 0)


def detect_hardware() -> list[Hardware]:
    """Return the GPUs in the order of nvidia-smi and the CPU last; takes 5 s at most."""
    total, free = host_memory()
    # Not platform.processor(): on Linux it starts a program.
    processor = os.environ.get("PROCESSOR_IDENTIFIER") or platform.machine()
    return [*_gpus(total, free), Hardware("cpu", processor, total, free, total, free)]


def host_memory() -> tuple[int, int]:
    """Return total and free bytes of main memory; free includes caches that the system gives back."""
    if sys.platform == "win32":  # pragma: no cover
        return _windows_memory()
    fields = {}
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024
    return fields["MemTotal"], fields["MemAvailable"]


def _windows_memory() -> tuple[int, int]:  # pragma: no cover
    """Ask GlobalMemoryStatusEx."""

    class MemoryStatus(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("free", ctypes.c_uint64),
            ("rest", ctypes.c_uint64 * 5),
        )

    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009 - the name exists on Windows only
    if not kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return 0, 0
    return int(status.total), int(status.free)


def _gpus(host_total_bytes: int, host_free_bytes: int) -> list[Hardware]:
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_TIMEOUT_S,
            check=True,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [gpu for line in answer.splitlines() if (gpu := _gpu(line, host_total_bytes, host_free_bytes)) is not None]


def _gpu(line: str, host_total_bytes: int, host_free_bytes: int) -> Hardware | None:
    """Read one line of nvidia-smi; None when it does not tell its memory."""
    try:
        index, name, total, free, capability = (part.strip() for part in line.split(","))
        major, _, minor = capability.partition(".")
        return Hardware(
            device="cuda",
            name=name,
            total_bytes=int(total) * MIB,
            free_bytes=int(free) * MIB,
            host_total_bytes=host_total_bytes,
            host_free_bytes=host_free_bytes,
            gpu_index=int(index),
            compute_capability=(int(major), int(minor)),
        )
    except ValueError:
        return None
