"""Which kernels run as Triton programs here, and why the others run as their PyTorch twins.

On a GPU every kernel runs until it is switched off, by the proof before step 0 or by the person. On the CPU Triton's
interpreter runs them when TRITON_INTERPRET=1 is set, for tests; else the twins do.
"""

from __future__ import annotations

import functools
import os

import torch

from tunesmith_core.hardware import DOT_CAPABILITY
from tunesmith_core.messages import Message
from tunesmith_engine.kernels.triton_import import triton_problem

OLDEST_CAPABILITY = (7, 5)
"""Triton 3 compiles nothing of use for older GPUs."""

_switched_off: dict[str, str] = {}
ALL = "*"


def switch_off(name: str, reason: str) -> None:
    """Let a kernel, or all by the name "*", run as its PyTorch twin from now on."""
    _switched_off[name] = reason


def switch_on_all() -> None:
    """Forget what was switched off."""
    _switched_off.clear()


def switched_off(name: str) -> str | None:
    """Return why an implementation that is no Triton program of ours was switched off by its name, or None."""
    return _switched_off.get(name)


def reason_off(name: str, device: torch.device, needs_dot: bool = False) -> str | None:
    """Return why a kernel doesn't run as a Triton program on a device, or None when it does."""
    if reason := _switched_off.get(ALL) or _switched_off.get(name):
        return reason
    if triton_problem:
        return triton_problem
    if device.type != "cuda":
        return None if os.environ.get("TRITON_INTERPRET") == "1" else Message("The CPU uses plain PyTorch.")
    found = capability(device)
    oldest = DOT_CAPABILITY if needs_dot else OLDEST_CAPABILITY
    if found < oldest:
        needed, present = (".".join(map(str, each)) for each in (oldest, found))
        return Message(
            "It needs compute capability {needed}, and this GPU has {present}.", needed=needed, present=present
        )
    return None


def runs(name: str, device: torch.device, needs_dot: bool = False) -> bool:
    """Return whether a kernel runs as a Triton program on a device."""
    return reason_off(name, device, needs_dot) is None


def capability(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of a GPU, (0, 0) for the CPU."""
    return _capability(device.index or 0) if device.type == "cuda" else (0, 0)


def is_server(device: torch.device) -> bool:
    """Return whether a GPU has the shared memory of compute capability 9 and 10: 227 KiB where others have 99."""
    return capability(device)[0] in (9, 10)


@functools.cache
def _capability(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)
