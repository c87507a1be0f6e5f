"""The NVIDIA GPUs and their driver."""

from __future__ import annotations

from typing import Any

from tunesmith_core.hardware import detect_hardware
from tunesmith_core.machine import Gpu
from tunesmith_setup.probe.sources import Sources


def facts(_sources: Sources) -> dict[str, Any]:
    """Return `gpus`."""
    gpus = [
        Gpu(
            index=device.gpu_index,
            name=device.name,
            compute_capability=device.compute_capability,
            total_bytes=device.total_bytes,
            free_bytes=device.free_bytes,
        )
        for device in detect_hardware()
        if device.gpu_index is not None
    ]
    return {"gpus": tuple(gpus)}
