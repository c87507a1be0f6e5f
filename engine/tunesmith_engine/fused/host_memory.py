"""A large table that lies in the computer's memory and is read by the GPU over the bus, row by row as needed."""

from __future__ import annotations

import torch

INTEGERS = {2: torch.int16, 4: torch.int32}


class HostTable:
    """Moves a tensor of a GPU into pinned memory and gives a view of it that counts as a tensor of that GPU.

    The address space of CUDA holds pinned memory too (CUDA C++ Programming Guide, "Unified Virtual Addressing"), so
    kernels read it like their own; nothing else about the table changes.

    Attributes:
        view: the table as a tensor on the GPU.
        num_bytes: memory that the GPU no longer holds.
    """

    def __init__(self, table: torch.Tensor) -> None:
        integers = INTEGERS[table.element_size()]
        self._pinned = torch.empty(table.shape, dtype=table.dtype, pin_memory=True)
        self._pinned.copy_(table)
        self.num_bytes = table.numel() * table.element_size()
        self._shape = tuple(table.shape)
        self._type = f"<i{table.element_size()}"
        seen = torch.as_tensor(self, device=table.device)
        self.view = seen.view(integers).view(table.dtype)

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
