"""Large tensors that lie in the computer's memory and are read by the GPU over the bus, number by number as needed."""

from __future__ import annotations

import weakref
from pathlib import Path

import psutil
import torch

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32}

PAGE_BYTES = 4096
LARGEST_BLOCK_BYTES = 2**31
PIECES = 8
"""Of the size of the first one, for which a block has room: few enough that what the last block has left is little."""


class PinningError(Exception):
    """The operating system or the driver gives no pinned memory of the wanted size."""


def has_own_memory(device: torch.device) -> bool:
    """Return whether a device has memory of its own, so that leaving it makes room."""
    return device.type == "cuda"


def host_budget_bytes() -> int:
    """Return how much memory of the host may be pinned: half of what is available.

    Windows lets a process pin up to about half of the RAM, which this never exceeds. In a container its limit counts.
    """
    available = psutil.virtual_memory().available
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text(encoding="utf-8").strip()).isdigit():
        available = min(available, int(text))
    return int(available) // 2


def return_unused(device: torch.device) -> None:
    """Let others have the memory of a device, and the pinned memory beside it, that PyTorch keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        if hasattr(torch._C, "_host_emptyCache"):
            torch._C._host_emptyCache()


def _pinned(num_bytes: int) -> torch.Tensor:
    """Return pinned memory.

    Raises:
        PinningError: this machine gives none.
    """
    try:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
    except RuntimeError as error:
        raise PinningError(str(error)) from error


class _Block:
    """Pinned memory and how much of it is used; whoever has a piece of it keeps it."""

    def __init__(self, num_bytes: int) -> None:
        self.memory, self.used = _pinned(num_bytes), 0

    def piece(self, num_bytes: int) -> torch.Tensor:
        """Return the next bytes, from the beginning of a page."""
        start, self.used = self.used, self.used + _whole_pages(num_bytes)
        return self.memory[start : start + num_bytes]


def _whole_pages(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


class HostBlocks:
    """Blocks in which many tables lie behind each other.

    PyTorch takes the next power of two for each piece of pinned memory, 256 MiB for the 192 of a layer's experts in
    Qwen3-30B-A3B.
    """

    def __init__(self) -> None:
        self._open: weakref.ref[_Block] | None = None

    def block_for(self, num_bytes: int) -> _Block:
        """Return a block with room for so much.

        Raises:
            PinningError: this machine gives no pinned memory for it.
        """
        block = self._open() if self._open else None
        if block is None or block.used + num_bytes > block.memory.numel():
            size = 1 << (PIECES * _whole_pages(num_bytes) - 1).bit_length()
            block = _Block(max(num_bytes, min(size, LARGEST_BLOCK_BYTES)))
            self._open = weakref.ref(block)
        return block


class HostTable:
    """Moves a tensor of a GPU into pinned memory and gives a view of it that counts as a tensor of that GPU.

    The address space of CUDA holds pinned memory too (CUDA C++ Programming Guide, "Unified Virtual Addressing"), so
    kernels read it like their own; nothing else about the table changes.

    Attributes:
        view: the table as a tensor on the GPU.
        num_bytes: memory that the GPU no longer holds.
    """

    def __init__(self, table: torch.Tensor, blocks: HostBlocks | None = None) -> None:
        """Copy a table.

        Args:
            table: of the GPU.
            blocks: where it lies beside others; None for memory of its own.

        Raises:
            PinningError: this machine gives no pinned memory for it.
        """
        self.num_bytes, integers = table.nbytes, INTEGERS[table.element_size()]
        self._block = blocks.block_for(self.num_bytes) if blocks else None
        memory = self._block.piece(self.num_bytes) if self._block else _pinned(self.num_bytes)
        self._pinned = memory.view(table.dtype).view(table.shape)
        self._pinned.copy_(table)
        self._shape = tuple(table.shape)
        self._type = f"<i{table.element_size()}"
        seen = torch.as_tensor(self, device=table.device)
        self.view = seen.view(integers).view(table.dtype)

    def taken_back(self) -> torch.Tensor:
        """Return the table in the GPU's own memory, once it is there and nobody reads this one any more."""
        return self._pinned.to(self.view.device, copy=True)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Describe the memory as other libraries describe theirs (CUDA Array Interface, version 3)."""
        return {
            "shape": self._shape,
            "typestr": self._type,
            "data": (self._pinned.data_ptr(), False),
            "strides": None,
            "version": 3,
        }
