"""Copies between the GPU and the computer's memory that run beside the computation."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from tunesmith_engine.host_memory import PinningError

PAGE_BYTES = 4096


class Copies(Protocol):
    """Copies that run beside the computation; a mark stands for the end of one."""

    def start(self, destination: torch.Tensor, source: torch.Tensor) -> Any:  # Any: a mark of the implementation
        """Copy once all that was queued for computation so far is done."""

    def wait(self, mark: Any) -> None:
        """Let later computation wait for a copy."""

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Return a uint8 tensor that copies go to and come from."""


class ImmediateCopies:
    """Copies on the CPU, done at once."""

    def start(self, destination: torch.Tensor, source: torch.Tensor) -> None:
        """Copy."""
        destination.copy_(source)

    def wait(self, mark: None) -> None:
        """Nothing is under way."""

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Return ordinary memory."""
        return torch.empty(num_bytes, dtype=torch.uint8)


class StreamCopies:
    """Copies by the two copy engines of an NVIDIA GPU, one stream for each direction."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._outward, self._inward = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def start(self, destination: torch.Tensor, source: torch.Tensor) -> torch.cuda.Event:
        """Queue a copy behind what the current stream holds now."""
        stream = self._outward if source.is_cuda else self._inward
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            destination.copy_(source, non_blocking=True)
        return stream.record_event()

    def wait(self, mark: torch.cuda.Event) -> None:
        """Let the current stream wait for a copy."""
        torch.cuda.current_stream(self._device).wait_event(mark)

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Return pinned memory of exactly this size; PyTorch's own pinned allocator rounds up to a power of two.

        Raises:
            PinningError: the driver refuses, or the memory is not there.
        """
        try:
            whole = torch.empty(_whole_pages(num_bytes) + PAGE_BYTES, dtype=torch.uint8)
        except RuntimeError as error:
            raise PinningError(str(error)) from error
        # Whole pages of our own: a page can't be registered twice.
        start = -whole.data_ptr() % PAGE_BYTES
        memory = whole[start : start + _whole_pages(num_bytes)]
        runtime = torch.cuda.cudart()
        with torch.cuda.device(self._device):
            status = int(runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), 0))
        if status:
            # The refusal stays behind as the runtime's last error, for which the next kernel would be blamed.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=self._device)
            raise PinningError(f"The driver pins no {num_bytes / 2**30:.1f} GiB of host memory (error {status}).")
        weakref.finalize(self, _unregister, memory, (self._outward, self._inward)).atexit = False
        # PyTorch looks at the start of a tensor's storage to know whether it is pinned.
        raw = (ctypes.c_ubyte * num_bytes).from_address(memory.data_ptr())
        return torch.frombuffer(raw, dtype=torch.uint8)


def _unregister(memory: torch.Tensor, streams: Sequence[torch.cuda.Stream]) -> None:
    """Let go of pinned memory once no copy uses it; the argument keeps it alive until then."""
    with contextlib.suppress(RuntimeError):  # a GPU that has failed says so to whoever uses it next
        for stream in streams:
            stream.synchronize()
        torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())


def _whole_pages(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES
