"""How a device's numbers are judged: against a float64 oracle, by the error of the CPU in the same number format.

A fixed tolerance would be too tight for one format and blind in another. The device may err by `FACTOR` times what the
CPU errs, because it adds in another order. Where the CPU happens to be exact, a quarter of the format's step between
neighbouring numbers counts as its error: about what rounding every result once leaves in the norm.
"""

from __future__ import annotations

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.device import BF16_CAPABILITY

FACTOR = 8.0
ROUNDING = 0.25


def devices(device: str) -> list[torch.device]:
    """Return the devices to prove: every GPU, or the processor."""
    if device == "cpu":
        return [torch.device("cpu")]
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def formats(device: torch.device) -> list[torch.dtype]:
    """Return the number formats that runs use on a device."""
    if device.type == "cpu":
        return [torch.float32]
    brain = torch.cuda.get_device_capability(device) >= BF16_CAPABILITY
    return [torch.float32, torch.bfloat16 if brain else torch.float16]


def relative_error(values: torch.Tensor, oracle: torch.Tensor) -> float:
    """Return the norm of the difference from the oracle by the oracle's norm."""
    exact = oracle.detach().double().cpu()
    return float((values.detach().double().cpu() - exact).norm() / exact.norm())


def judge(
    what: str, values: torch.Tensor, reference: torch.Tensor, oracle: torch.Tensor, dtype: torch.dtype
) -> dict[str, float]:
    """Compare a device's numbers with the CPU's.

    Args:
        what: what was computed, for the message.
        values: what the device computed.
        reference: what the CPU computed in the same number format.
        oracle: the same in float64.
        dtype: that number format.

    Returns:
        error and allowed, both relative.

    Raises:
        EnvironmentProblem: `device-miscomputes`.
    """
    error = relative_error(values, oracle)
    allowed = FACTOR * max(relative_error(reference, oracle), ROUNDING * torch.finfo(dtype).eps)
    # Written so that an error which is no number fails.
    if not error <= allowed:
        raise TunesmithError(
            "device-miscomputes",
            "{what} on {device}: the relative error is {error}. At most {allowed} is allowed.",
            what=what,
            device=values.device,
            error=f"{error:.2e}",
            allowed=f"{allowed:.2e}",
        )
    return {"error": error, "allowed": allowed}
