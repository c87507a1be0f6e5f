"""What this computer has to train on, told without any package: GPUs by the NVIDIA driver, memory by the system."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import nvidia_smi, nvml
from tunesmith_core.bounded import ask_all, run
from tunesmith_core.nvml import Reading

DRIVER_TIMEOUT_S = 5.0
"""Of the driver's library, and of nvidia-smi after it; a healthy driver answers in milliseconds."""

DOT_CAPABILITY = (8, 0)
"""Triton's matrix products need Ampere: on Turing they fall back to plain multiply-adds or abort the compiler."""


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
    """Return the GPUs in the order of nvidia-smi and the CPU last; a driver that hangs costs seconds, not forever."""
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


def nvidia_reading(timeout_s: float = DRIVER_TIMEOUT_S) -> Reading | None:
    """Return what the NVIDIA driver says, or else what nvidia-smi says.

    Args:
        timeout_s: of each of the two.

    Returns:
        None when neither is there or answered in time.
    """
    told = ask_all({"nvml": nvml.read}, timeout_s).get("nvml")
    if told is not None and told.gpus is not None:
        return told
    return nvidia_smi.read(lambda command: run(command, timeout_s)) or told


def _gpus(host_total_bytes: int, host_free_bytes: int) -> list[Hardware]:
    reading = nvidia_reading()
    return [
        Hardware(
            device="cuda",
            name=gpu.name,
            total_bytes=gpu.total_bytes,
            free_bytes=gpu.free_bytes or 0,
            host_total_bytes=host_total_bytes,
            host_free_bytes=host_free_bytes,
            gpu_index=gpu.index,
            compute_capability=gpu.compute_capability,
        )
        for gpu in (reading.gpus if reading else None) or ()
        # Nothing can be planned for a GPU that does not tell what it is.
        if gpu.total_bytes and gpu.compute_capability
    ]
