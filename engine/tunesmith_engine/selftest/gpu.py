"""Second step: PyTorch reaches every GPU; where it does not, this step knows why."""

from __future__ import annotations

from typing import Any

import torch

from tunesmith_core.devices import nvidia_present
from tunesmith_core.errors import TunesmithError
from tunesmith_engine.selftest import NotApplicableError

MIN_CAPABILITY = (6, 0)
"""Oldest generation that bitsandbytes serves (its installation page); PyTorch's own list may begin later."""


def prove(device: str) -> dict[str, Any]:  # Any: JSON values
    """Touch every GPU; return the CUDA version of the build, its architectures and the GPUs.

    Raises:
        EnvironmentProblem: `torch-cpu-build`, `driver-missing`, or `no-kernel-image-for-arch`.
        RuntimeError: PyTorch's own words, such as about a driver that is too old.
    """
    if device == "cpu":
        raise NotApplicableError("Runs train on the processor here.")
    if torch.version.cuda is None:
        raise TunesmithError("torch-cpu-build", "PyTorch {version} was built without CUDA.", version=torch.__version__)
    if not nvidia_present():
        raise TunesmithError("driver-missing", "No NVIDIA driver is loaded on this computer.")
    # Unlike is_available, it says why it fails.
    torch.cuda.init()
    gpus = [_gpu(index) for index in range(torch.cuda.device_count())]
    return {"cuda": torch.version.cuda, "architectures": torch.cuda.get_arch_list(), "gpus": gpus}


def _gpu(index: int) -> dict[str, Any]:  # Any: JSON values
    properties = torch.cuda.get_device_properties(index)
    capability = (properties.major, properties.minor)
    if capability < MIN_CAPABILITY:
        raise TunesmithError(
            "no-kernel-image-for-arch",
            "GPU {index}, {name}, has compute capability {capability}. Training needs {minimum} or higher.",
            index=index,
            name=properties.name,
            capability=".".join(map(str, capability)),
            minimum=".".join(map(str, MIN_CAPABILITY)),
        )
    total_bytes = properties.total_memory
    capability_text = f"{capability[0]}.{capability[1]}"
    return {"index": index, "name": properties.name, "capability": capability_text, "total_bytes": total_bytes}
