"""First step: every library of a run can be imported, and PyTorch and NumPy understand each other."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import time
from typing import Any

MODULES = ("numpy", "torch", "transformers", "peft", "trl", "datasets", "bitsandbytes")


def prove(_device: str) -> dict[str, Any]:  # Any: JSON values
    """Import the libraries; return the version and the seconds of each."""
    versions, seconds = {"python": platform.python_version()}, {}
    for name in MODULES:
        started_s = time.monotonic()
        importlib.import_module(name)
        seconds[name] = round(time.monotonic() - started_s, 3)
        versions[name] = importlib.metadata.version(name)
    import numpy
    import torch

    # A library that was built for another NumPy only warns when it is imported; it fails here.
    torch.from_numpy(numpy.ones(2)).numpy()
    return {"versions": versions, "seconds": seconds}
