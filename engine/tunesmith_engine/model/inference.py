"""A model that answers while it is trained."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def untouched_training(model: Any, device: torch.device) -> Iterator[None]:  # Any: a transformers model or PEFT's
    """Switch the model to inference and put training mode and random states back afterwards."""
    was_training = model.training
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            model.train(was_training)
