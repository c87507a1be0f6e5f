"""A stand-in for the NVIDIA driver's library: answers NVML calls from recorded facts."""

from __future__ import annotations

import ctypes
from typing import Any

NOT_SUPPORTED, DRIVER_NOT_LOADED, GPU_IS_LOST = 3, 9, 15


class FakeNvml:
    """A loaded libnvidia-ml.

    Args:
        answers: `driver`, `cuda` and `gpus`; or `problem`, the error text of a driver that does not start. A GPU has
            `name`, `capability`, `total`, `free` and `processes` (pid, name, bytes); None is "not supported".
        processes: which generation of the functions about processes it has: "_v3", "_v2" or "".
        missing: names of functions that this driver does not have.
    """

    def __init__(self, answers: dict[str, Any], *, processes: str = "_v3", missing: tuple[str, ...] = ()) -> None:
        self.answers = answers
        self.missing = missing
        self.ended = False
        for kind in ("Compute", "Graphics"):
            setattr(self, f"nvmlDeviceGet{kind}RunningProcesses{processes}", self._processes)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.missing:
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def _gpu(self, handle: ctypes.c_void_p) -> dict[str, Any]:
        gpu: dict[str, Any] = self.answers["gpus"][(handle.value or 0) - 1]
        return gpu

    def nvmlInit_v2(self) -> int:
        return DRIVER_NOT_LOADED if "problem" in self.answers else 0

    def nvmlShutdown(self) -> int:
        self.ended = True
        return 0

    @property
    def nvmlErrorString(self) -> Any:
        def text(_code: int) -> bytes:
            return str(self.answers["problem"]).encode()

        return text

    def nvmlSystemGetDriverVersion(self, buffer: Any, _size: ctypes.c_uint) -> int:
        if self.answers["driver"] is None:
            return NOT_SUPPORTED
        buffer.value = self.answers["driver"].encode()
        return 0

    def nvmlSystemGetCudaDriverVersion_v2(self, number: Any) -> int:
        number._obj.value = self.answers["cuda"]
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        if self.answers["gpus"] is None:
            return NOT_SUPPORTED
        count._obj.value = len(self.answers["gpus"])
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return GPU_IS_LOST if self.answers["gpus"][index.value].get("lost") else 0

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p, buffer: Any, _size: ctypes.c_uint) -> int:
        buffer.value = self._gpu(handle)["name"].encode()
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        capability = self._gpu(handle)["capability"]
        if capability is None:
            return NOT_SUPPORTED
        major._obj.value, minor._obj.value = capability
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        gpu = self._gpu(handle)
        if gpu["total"] is None:
            return NOT_SUPPORTED
        memory._obj.total, memory._obj.free = gpu["total"], gpu["free"]
        return 0

    def _processes(self, handle: ctypes.c_void_p, count: Any, rows: Any) -> int:
        processes = self._gpu(handle)["processes"]
        if processes is None:
            return NOT_SUPPORTED
        count._obj.value = len(processes)
        for row, (pid, _, used) in zip(rows, processes, strict=False):
            row.pid, row.used = pid, 2**64 - 1 if used is None else used
        return 0
