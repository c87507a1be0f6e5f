"""Third step: a matrix product on every device, in every number format of runs, compared with the CPU and float64."""

from __future__ import annotations

from typing import Any

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.selftest.numerics import devices, formats, judge

SIZE = 256


def prove(device: str) -> dict[str, Any]:  # Any: JSON values
    """Multiply on each device; return the errors by device and number format.

    Raises:
        EnvironmentProblem: `device-miscomputes`.
        RuntimeError: PyTorch's own words, such as that the build has no code for this GPU.
    """
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))
    found = {}
    for place in devices(device):
        for dtype in formats(place):
            a, b = left.to(dtype), right.to(dtype)
            product = a.to(place) @ b.to(place)
            name = f"{place} {str(dtype).removeprefix('torch.')}"
            found[name] = judge(Message("A matrix product"), product, a @ b, a.double() @ b.double(), dtype)
    return found
