"""What the machine does right now: GPU by NVML and PyTorch's allocator, process and host by psutil.

PyTorch is only looked at when the process has already loaded it: reading sensors must not delay the start.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

import psutil

SHORTEST_S = 0.5
"""Over less, the share of the processor means nothing: its clock ticks too rarely, and too much comes out."""


class Sensors:
    """Reads the fields of a `gpu` event; fields that this machine does not know are absent."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._num_cores = psutil.cpu_count() or 1
        self._nvml: Any = None  # Any: the module pynvml, which has no types
        self._handle: Any = None
        self._process.cpu_percent()
        self._looked_at_s = time.monotonic()

    def read(self) -> dict[str, Any]:  # Any: JSON values
        """Return the present values; sizes in bytes, temperature in degrees Celsius, power in watts."""
        memory = psutil.virtual_memory()
        values: dict[str, Any] = {
            "device": "cpu",
            "process_bytes": self._process.memory_info().rss,
            "host_used_bytes": memory.total - memory.available,
            "host_total_bytes": memory.total,
        }
        if time.monotonic() - self._looked_at_s >= SHORTEST_S:
            self._looked_at_s = time.monotonic()
            # psutil sums over the cores.
            values["cpu_machine_percent"] = min(100.0, round(self._process.cpu_percent() / self._num_cores, 1))
        torch = sys.modules.get("torch")
        # A half-imported torch has no cuda yet, and asking is_initialized never creates a context.
        if torch is not None and hasattr(torch, "cuda") and hasattr(torch.cuda, "is_initialized"):
            with contextlib.suppress(Exception):
                if torch.cuda.is_initialized():
                    values |= self._read_gpu(torch)
        return values

    def _read_gpu(self, torch: Any) -> dict[str, Any]:  # Any: the module torch; JSON values
        values: dict[str, Any] = {
            "device": "cuda:0",
            "allocated_bytes": torch.cuda.memory_allocated(0),
            "reserved_bytes": torch.cuda.memory_reserved(0),
        }
        with contextlib.suppress(Exception):
            handle = self._nvml_handle(torch)
            nvml = self._nvml
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            values["total_bytes"] = memory.total
            values["used_by_others_bytes"] = memory.used - self._own_bytes(nvml, handle, values["reserved_bytes"])
            values["utilization_percent"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
            values["temperature_c"] = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            values["power_w"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        return values

    def _nvml_handle(self, torch: Any) -> Any:  # Any: the module torch; an NVML handle
        """Return NVML's handle of PyTorch's device 0, found by UUID since the two may count differently."""
        if self._handle is None:
            import pynvml

            pynvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
            self._handle, self._nvml = pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml
        return self._handle

    @staticmethod
    def _own_bytes(nvml: Any, handle: Any, reserved_bytes: int) -> int:  # Any: NVML has no types
        """Return what this process holds; Windows does not tell by process, then it is the allocator's share."""
        with contextlib.suppress(Exception):
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.pid == os.getpid() and process.usedGpuMemory:
                    return int(process.usedGpuMemory)
        return reserved_bytes
