"""Fourth step: Triton compiles a kernel on this machine, with its own compiler and cache, and the numbers are right.

A failure does not make the environment useless: runs then use the PyTorch twins of our kernels. On a GPU the kernels of
runs are named too, each with what is wrong with it; every run proves them again for its own model. Without a GPU the
kernel goes through Triton's interpreter, which proves the installation but no compiler.
"""

from __future__ import annotations

import contextlib
import importlib.util
from typing import Any

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.kernels.triton_import import triton_version
from tunesmith_engine.proof import prove as proof
from tunesmith_engine.proof.inputs import Sizes
from tunesmith_engine.selftest import NotApplicableError
from tunesmith_engine.selftest.numerics import devices, formats, judge

ROWS, COLUMNS, BLOCK = 16, 200, 256
SMALL_MODEL: dict[str, Any] = {
    "hidden": 576,
    "mlp": 1536,
    "num_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "rotary": 64,
    "vocabulary": 49152,
    "four_bit": True,
}
"""Sizes of the example's model."""

OLDEST_CAPABILITY = (7, 5)
"""Below it Triton 3 compiles nothing that is of use (Pascal and Volta train on the PyTorch twins)."""


def prove(device: str) -> dict[str, Any]:  # Any: JSON values
    """Run the kernel on every device; return Triton's version, the errors by device and, on GPUs, runs' kernels.

    Raises:
        NotApplicableError: when the GPU is too old for Triton, or there is neither GPU nor Triton.
        Exception: whatever Triton says.
    """
    places = [place for place in devices(device) if _is_served(place)]
    if not places:
        raise NotApplicableError("The GPU has a compute capability below 7.5, so PyTorch's own kernels are used.")
    if device == "cpu" and importlib.util.find_spec("triton") is None:
        raise NotApplicableError("Without a GPU Triton is not needed.")
    from tunesmith_engine.selftest.kernel import gated_row_kernel

    generator = torch.Generator().manual_seed(2)
    gate, up = (torch.randn(ROWS, COLUMNS, generator=generator) for _ in range(2))
    reference, oracle = _twin(gate, up), _twin(gate.double(), up.double())
    found: dict[str, Any] = {"version": triton_version(), "interpreted": device == "cpu"}
    for place in places:
        out = torch.empty(ROWS, COLUMNS, device=place)
        with torch.cuda.device(place) if place.type == "cuda" else contextlib.nullcontext():
            gated_row_kernel[(ROWS,)](gate.to(place), up.to(place), out, COLUMNS, BLOCK=BLOCK)
        found[str(place)] = judge(Message("A Triton kernel"), out, reference, oracle, torch.float32)
        if place.type == "cuda":
            found[f"kernels on {place}"] = kernels_of_runs(place)
    return found


def kernels_of_runs(place: torch.device) -> dict[str, str]:
    """Return for every kernel of runs "ok", or why runs on a device use its PyTorch twin."""
    dtype = str(formats(place)[-1]).removeprefix("torch.")
    return {name: reason or "ok" for name, reason in proof.prove(Sizes(dtype, **SMALL_MODEL), place).items()}


def _is_served(place: torch.device) -> bool:
    return place.type == "cpu" or torch.cuda.get_device_capability(place) >= OLDEST_CAPABILITY


def _twin(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    values = torch.nn.functional.silu(gate) * up
    return values / values.norm(dim=-1, keepdim=True)
