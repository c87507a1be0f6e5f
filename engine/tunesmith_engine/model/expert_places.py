"""Where the packed codes of experts lie: in the GPU's memory, or in the computer's, which its kernels read as well.

Experts in 4 bits are most of a mixture's weights, and a training step needs those of all layers, one layer after the
other: each code once, in order, to be unpacked. So the codes of a layer may lie in the computer's memory and cross the
bus as they are unpacked. Scales stay, and the codes are one parameter, so whoever unpacks them reads the same place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from tunesmith_core import planner
from tunesmith_core.hardware import Hardware, host_memory
from tunesmith_core.messages import Message
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import Compute
from tunesmith_engine.host_memory import (
    HostBlocks,
    HostTable,
    PinningError,
    has_own_memory,
    host_budget_bytes,
    return_unused,
)
from tunesmith_engine.model.stacked import packed_stack, stacks

_BLOCKS = HostBlocks()


class ExpertPlaces:
    """Moves the codes of whole layers.

    Those of the last layers leave: the last layer of all is still unpacked when the backward pass begins, so it crosses
    the bus once where every other one crosses it twice.

    Attributes:
        layer_bytes: of the codes of each layer that has packed experts, in their order; empty where leaving a device
            makes no room.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        layers = [_packed_stacks(module) for module in model.modules()] if has_own_memory(device) else []
        self._layers = [layer for layer in layers if layer]
        self.layer_bytes = [sum(codes.nbytes for codes in layer) for layer in self._layers]

    @property
    def num_on_host(self) -> int:
        """How many of the last layers have their codes in the computer's memory."""
        stays = (num for num, layer in enumerate(reversed(self._layers)) if not all(map(is_on_host, layer)))
        return next(stays, len(self._layers))

    @property
    def host_bytes(self) -> int:
        """What lies in the computer's memory now."""
        return sum(codes.nbytes for layer in self._layers for codes in layer if is_on_host(codes))

    @property
    def report(self) -> list[str]:
        """A sentence about layers whose codes lie there; nothing where none do."""
        number = sum(any(map(is_on_host, layer)) for layer in self._layers)
        words = Message(
            "The experts of {num_on_host} of {num_layers} layers are kept in system memory.",
            num_on_host=number,
            num_layers=len(self._layers),
        )
        return [words] if number else []

    def bytes_of(self, num_layers: int) -> int:
        """Return the bytes of the codes of so many layers, the last ones."""
        return sum(self.layer_bytes[len(self.layer_bytes) - num_layers :])

    def place(self, num_on_host: int) -> None:
        """Let the codes of so many layers lie in the computer's memory, and all others on the device.

        Raises:
            PinningError: this machine gives no pinned memory for all of them; some of the last have gone.
        """
        first = len(self._layers) - num_on_host
        # Out before in, so the device never holds more than before and after.
        for codes in (codes for layer in reversed(self._layers[first:]) for codes in layer):
            put_out(codes)
        for codes in (codes for layer in self._layers[:first] for codes in layer):
            bring_back(codes)


class HostRoom:
    """Room in the computer's memory for the codes of experts while a model is read.

    Args:
        num_bytes: as much as it is.
    """

    def __init__(self, num_bytes: int) -> None:
        self._left = num_bytes

    def take(self, codes: Any) -> None:  # Any: bitsandbytes' Params4bit has no types
        """Put codes there, or leave them where they are if there is no room."""
        if codes.nbytes > self._left:
            return
        try:
            put_out(codes)
            self._left -= codes.nbytes
        except PinningError:
            # Whether the rest fits on the device shows as it is read.
            self._left = 0


def host_room(folder: Path, spec: RunSpec, compute: Compute) -> HostRoom:
    """Return where experts go as they are read: nowhere if the least that a run takes fits beside them on its device.

    What has room after all comes back once that is known, see `MemoryPlanner`.
    """
    if not has_own_memory(compute.device) or spec.quantization.kind != "nf4":
        return HostRoom(0)
    free, total = torch.cuda.mem_get_info(compute.device)
    capability = torch.cuda.get_device_capability(compute.device)
    # Half of what is free may be pinned.
    of_host = host_memory()[0], 2 * host_budget_bytes()
    device = Hardware("cuda", compute.name, total, free, *of_host, 0, capability)
    return HostRoom(planner.room_for_experts(spec, device, read_model_card(folder)))


def is_on_host(codes: Any) -> bool:  # Any: bitsandbytes' Params4bit has no types
    """Return whether codes lie in the computer's memory."""
    return getattr(codes, "host_table", None) is not None


def put_out(codes: Any) -> None:  # Any: bitsandbytes' Params4bit has no types
    """Move codes to the computer's memory."""
    if not is_on_host(codes):
        codes.host_table = HostTable(codes.data, _BLOCKS)
        codes.data = codes.host_table.view
        return_unused(codes.device)


def bring_back(codes: Any) -> None:  # Any: bitsandbytes' Params4bit has no types
    """Move codes to their device."""
    if is_on_host(codes):
        codes.data = codes.host_table.taken_back()
        codes.host_table = None
        return_unused(codes.device)


def _packed_stacks(module: nn.Module) -> list[Any]:  # Any: bitsandbytes' Params4bit has no types
    packed = (packed_stack(module, role) for role in stacks(module))
    return [codes for codes in packed if codes is not None]
