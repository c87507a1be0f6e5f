"""Fifth step: weights in 4 bits (NF4) are quantised on each device, and computed with forwards and backwards."""

from __future__ import annotations

from typing import Any

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.selftest.numerics import devices, formats, judge, relative_error

ROWS, SIZE = 8, 256


def prove(device: str) -> dict[str, Any]:  # Any: JSON values
    """Quantise and compute on each device; return the errors by device.

    Raises:
        EnvironmentProblem: `device-miscomputes`.
        Exception: what bitsandbytes says, such as that its library for this CUDA is missing.
    """
    return {str(place): _prove_on(place, formats(place)[-1]) for place in devices(device)}


def _prove_on(place: torch.device, dtype: torch.dtype) -> dict[str, Any]:  # Any: JSON values
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn import Linear4bit

    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(SIZE, SIZE, generator=generator)
    inputs, slope = (torch.randn(ROWS, SIZE, generator=generator).to(dtype) for _ in range(2))
    layer = Linear4bit(SIZE, SIZE, bias=False, compute_dtype=dtype, quant_type="nf4", compress_statistics=True)
    layer.weight.data.copy_(weight)
    layer = layer.to(place)
    moved = inputs.to(place).requires_grad_()
    output = layer(moved)
    output.backward(slope.to(place))
    # What NF4 made of the weight is the same on both sides: its loss of precision is not what is judged.
    stored = dequantize_4bit(layer.weight.data, layer.weight.quant_state).to(dtype).cpu()
    exact = stored.double()
    assert moved.grad is not None
    return {
        "forward": judge(Message("A 4-bit layer"), output, inputs @ stored.T, inputs.double() @ exact.T, dtype),
        "backward": judge(Message("A 4-bit gradient"), moved.grad, slope @ stored, slope.double() @ exact, dtype),
        "quantisation_error": relative_error(stored, weight),
    }
