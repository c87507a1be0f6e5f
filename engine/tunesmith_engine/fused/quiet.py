"""Whether code that runs as it was written lets the host go on, so that a CUDA graph can hold it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch


def is_quiet(run: Callable[[], object], device: torch.device) -> bool:
    """Run code; return whether nothing makes the host wait for a device meanwhile."""
    if device.type != "cuda":
        run()
        return True
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # PyTorch says that it doesn't see every wait.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    except RuntimeError:
        return False
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return True
