"""What the training libraries see of this machine."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import psutil
import torch

from tunesmith_engine.device import BF16_CAPABILITY

PACKAGES = (
    "torch",
    "triton",
    "triton-windows",
    "transformers",
    "peft",
    "trl",
    "bitsandbytes",
    "accelerate",
    "datasets",
    "safetensors",
    "tokenizers",
)


def probe() -> dict[str, Any]:  # Any: JSON values
    """Return versions and devices; a package that is not installed has the version None."""
    memory = psutil.virtual_memory()
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "cuda": torch.version.cuda,
        "cpu_threads": torch.get_num_threads(),
        "host_total_bytes": memory.total,
        "host_available_bytes": memory.available,
        "gpus": [_gpu(index) for index in range(torch.cuda.device_count())],
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpu(index: int) -> dict[str, Any]:  # Any: JSON values
    free_bytes, total_bytes = torch.cuda.mem_get_info(index)
    capability = torch.cuda.get_device_capability(index)
    return {
        "index": index,
        "name": torch.cuda.get_device_name(index),
        "capability": f"{capability[0]}.{capability[1]}",
        "bfloat16": capability >= BF16_CAPABILITY,
        "free_bytes": free_bytes,
        "total_bytes": total_bytes,
    }
