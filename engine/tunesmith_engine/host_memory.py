"""Large tensors that lie in the computer's memory and are read by the GPU over the bus, number by number as needed."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32}


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


class HostTable:
    """Moves a tensor of a GPU into pinned memory and gives a view of it that counts as a tensor of that GPU.

    The address space of CUDA holds pinned memory too (CUDA C++ Programming Guide, "Unified Virtual Addressing"), so
    kernels read it like their own; nothing else about the table changes.

    Attributes:
        view: the table as a tensor on the GPU.
        num_bytes: memory that the GPU no longer holds.

    Raises:
        PinningError: this machine gives no pinned memory for it.
    """

    def __init__(self, table: torch.Tensor) -> None:
        integers = INTEGERS[table.element_size()]
        try:
            self._pinned = torch.empty(table.shape, dtype=table.dtype, pin_memory=True)
        except RuntimeError as error:
            raise PinningError(str(error)) from error
        self._pinned.copy_(table)
        self.num_bytes = table.numel() * table.element_size()
        self._shape = tuple(table.shape)
        self._type = f"<i{table.element_size()}"
        seen = torch.as_tensor(self, device=table.device)
        self.view = seen.view(integers).view(table.dtype)

    def taken_back(self) -> torch.Tensor:
        """Return the table in the GPU's own memory, after which this one may go."""
        own = self.view.clone()
        if own.is_cuda:
            # Pinned memory that is given back may be written at once, and the copy reads it later.
            torch.cuda.current_stream(own.device).synchronize()
        return own

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
