"""Profiles are data: which build of PyTorch a computer gets, and how much room it takes."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass

from tunesmith_core.devices import nvidia_present

BLACKWELL = (10, 0)
"""First compute capability that CUDA 12.4 can't serve."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A training environment.

    Attributes:
        name: also the first part of its lock's name.
        installed_bytes: expected size of the environment.
        reason: why somebody gets it, for the person.
    """

    name: str
    installed_bytes: int
    reason: str


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("cpu", 5_700_000_000, "no NVIDIA GPU was found"),
        Profile("cu124", 5_700_000_000, "an NVIDIA GPU up to the Hopper generation was found"),
        Profile("cu128", 7_600_000_000, "an NVIDIA GPU of the Blackwell generation or newer was found"),
    )
}


def compute_capabilities() -> list[tuple[int, int]]:
    """Return the compute capability of every NVIDIA GPU, as the driver's library tells; empty when it does not."""
    try:
        nvml = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    count = ctypes.c_uint(0)
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    capabilities = []
    for index in range(count.value):
        handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
        found = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0
        if found and nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)) == 0:
            capabilities.append((major.value, minor.value))
    nvml.nvmlShutdown()
    return capabilities


def choose() -> Profile:
    """Return the profile for this computer, decided by all its GPUs."""
    capabilities = compute_capabilities()
    if not capabilities and not nvidia_present():
        return PROFILES["cpu"]
    return PROFILES["cu128" if any(capability >= BLACKWELL for capability in capabilities) else "cu124"]
