"""Where a run computes: which GPU or the CPU, told without any library, for the queue and the first checks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes

_NVIDIA_SIGNS: tuple[str, ...] = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
if sys.platform == "win32":  # pragma: no cover
    _NVIDIA_SIGNS = (os.environ.get("SYSTEMROOT", r"C:\Windows") + r"\System32\nvcuda.dll",)


def nvidia_present() -> bool:
    """Return whether an NVIDIA driver is loaded here; whether it works is for the engine to prove."""
    return any(Path(sign).exists() for sign in _NVIDIA_SIGNS)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU by its number as nvidia-smi counts, or the CPU when there is no number."""

    gpu_index: int | None

    @property
    def name(self) -> str:
        """Name of its lock: gpu-0, gpu-1 ... or cpu."""
        return "cpu" if self.gpu_index is None else f"gpu-{self.gpu_index}"

    def environment(self) -> dict[str, str]:
        """Return the variables that show an engine this device alone."""
        # Not the empty text: Windows can't hold an empty variable.
        visible = "-1" if self.gpu_index is None else str(self.gpu_index)
        return {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def device_of(spec: RunSpec) -> Device:
    """Return the device that a run will use."""
    choice = spec.hardware.device
    cuda = choice == "cuda" or (choice == "auto" and nvidia_present())
    return Device(spec.hardware.gpu_index if cuda else None)


def answering_on(spec: RunSpec, device: str) -> RunSpec:
    """Return the spec of a run with the device on which its model answers.

    Args:
        spec: the run.
        device: "cuda" or "cpu"; "auto" for a GPU where there is one, the one that the run names.
    """
    named = spec.hardware.devices if spec.hardware.device == "cuda" and device != "cpu" else [device]
    return with_changes(spec, {"hardware.devices": named})
