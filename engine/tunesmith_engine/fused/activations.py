"""Where the forward pass leaves what the backward pass needs: on the device, in pinned host memory, or nowhere.

All memory is allocated once. A layer whose tensors go to the host works in one of a few ring slots on the device; the
slot is copied out while the next layers compute, and copied back one slot ahead in the backward pass. The layers that
the backward pass wants first stay in their slots. What a layer does not keep lies in a set of buffers that all layers
share; the layer computes it again. No call makes the host wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from tunesmith_core.errors import BugError

LEVELS = ("none", "mlp", "smart", "full")
"""How much of a layer is computed again in the backward pass, from nothing to everything but its last product."""

ALIGNMENT_BYTES = 256
PAGE_BYTES = 4096
NUM_SLOTS = 2
"""One slot is computed on while another is copied."""


@dataclass(frozen=True, slots=True)
class LayerBuffers:
    """What one layer leaves.

    Attributes:
        tensors: name -> (width, dtype) of a tensor of [T, width].
        kept: level -> names that survive the forward pass under it.
        columns: names of tensors that are [width, T] instead.
    """

    tensors: Mapping[str, tuple[int, torch.dtype]]
    kept: Mapping[str, frozenset[str]]
    columns: frozenset[str] = frozenset()

    def num_bytes(self, names: frozenset[str], num_tokens: int) -> int:
        """Memory of some of the tensors, side by side."""
        return sum(self.tensor_bytes(name, num_tokens) for name in names)

    def tensor_bytes(self, name: str, num_tokens: int) -> int:
        """Memory of a tensor, rounded up to the alignment."""
        width, dtype = self.tensors[name]
        return _rounded(num_tokens * width * dtype.itemsize, ALIGNMENT_BYTES)


@dataclass(frozen=True, slots=True)
class LayerPolicy:
    """What becomes of a layer's tensors.

    Attributes:
        level: one of LEVELS.
        place: "device" or "host", for what is kept.
    """

    level: str
    place: str = "device"


class StoreBytes(NamedTuple):
    """Memory of an ActivationStore."""

    device: int
    host: int


class PinningError(Exception):
    """The operating system or the driver gives no pinned memory of the wanted size."""


class Copies(Protocol):
    """Copies that run beside the computation; a mark stands for the end of one."""

    def start(self, destination: torch.Tensor, source: torch.Tensor) -> Any:  # Any: a mark of the implementation
        """Copy once all that was queued for computation so far is done."""

    def wait(self, mark: Any) -> None:
        """Let later computation wait for a copy."""

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Return a uint8 tensor that copies go to and come from."""


def store_bytes(
    layers: Sequence[LayerBuffers], policies: Sequence[LayerPolicy], capacity_tokens: int, num_slots: int = NUM_SLOTS
) -> StoreBytes:
    """Return what an ActivationStore of these arguments allocates, without allocating it."""
    plan = _Plan(layers, policies, capacity_tokens, num_slots)
    return StoreBytes(plan.device_bytes, plan.host_bytes)


class _Plan:
    """Sizes of the parts of a store.

    Attributes:
        resident: layer -> bytes of its own buffer on the device.
        ring: layers with place "host" in order; the i-th works in slot i modulo the number of slots.
        sent: layer -> bytes of its buffer on the host.
        scratch: name -> bytes of the buffer that layers share which don't keep the tensor.
    """

    def __init__(
        self, layers: Sequence[LayerBuffers], policies: Sequence[LayerPolicy], capacity_tokens: int, num_slots: int
    ) -> None:
        kept = [layer.kept[policy.level] for layer, policy in zip(layers, policies, strict=True)]
        num_bytes = [layer.num_bytes(names, capacity_tokens) for layer, names in zip(layers, kept, strict=True)]
        self.ring = [index for index, policy in enumerate(policies) if policy.place == "host"]
        self.resident = {index: num_bytes[index] for index in range(len(layers)) if index not in set(self.ring)}
        self.num_slots = min(num_slots, len(self.ring))
        self.slot_bytes = max((num_bytes[index] for index in self.ring), default=0)
        self.sent = {index: num_bytes[index] for index in self.ring[: len(self.ring) - self.num_slots]}
        self.scratch: dict[str, int] = {}
        for layer, names in zip(layers, kept, strict=True):
            for name in layer.tensors.keys() - names:
                wanted = layer.tensor_bytes(name, capacity_tokens)
                self.scratch[name] = max(self.scratch.get(name, 0), wanted)
        shared_bytes = self.num_slots * self.slot_bytes + sum(self.scratch.values())
        self.device_bytes = sum(self.resident.values()) + shared_bytes
        self.host_bytes = sum(self.sent.values())


class _Slot:
    """A part of the device's memory that layers with place "host" take in turn."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.holds: int | None = None
        self.copying: Any = None  # Any: a mark of Copies


class ActivationStore:
    """Hands out the buffers of each layer, forward and backward.

    A pass calls `forward` and `forward_done` for the layers in ascending order, then `backward` and `backward_done` in
    descending order. A pass without a backward part leaves out `forward_done`. Several layers may be asked for before
    the first is done, as long as they are fewer than the slots. Buffers come with whatever was in them before.

    Attributes:
        device_bytes, host_bytes: what is allocated, as `store_bytes` foretells.
    """

    def __init__(
        self,
        layers: Sequence[LayerBuffers],
        policies: Sequence[LayerPolicy],
        capacity_tokens: int,
        device: torch.device,
        num_slots: int = NUM_SLOTS,
        copies: Copies | None = None,
    ) -> None:
        """Allocate everything.

        Raises:
            PinningError: there is not enough memory on the host that copies can use.
            torch.OutOfMemoryError: there is not enough on the device.
        """
        if num_slots < NUM_SLOTS:
            raise BugError("bug", f"A ring of {num_slots} slots can't be copied and computed on at once.")
        plan = _Plan(layers, policies, capacity_tokens, num_slots)
        self.device_bytes, self.host_bytes = plan.device_bytes, plan.host_bytes
        self._layers, self._capacity_tokens = layers, capacity_tokens
        self._kept = [layer.kept[policy.level] for layer, policy in zip(layers, policies, strict=True)]
        self._missing = [frozenset(layer.tensors) - names for layer, names in zip(layers, self._kept, strict=True)]
        self._copies: Copies = copies or (StreamCopies(device) if device.type == "cuda" else ImmediateCopies())
        host = _Arena(self._copies.host_memory(plan.host_bytes)) if plan.host_bytes else None
        self._sent = {index: host.take(size) for index, size in plan.sent.items()} if host else {}
        arena = _Arena(torch.empty(plan.device_bytes, dtype=torch.uint8, device=device))
        self._resident = {index: arena.take(size) for index, size in plan.resident.items()}
        slots = [_Slot(arena.take(plan.slot_bytes)) for _ in range(plan.num_slots)]
        self._slots = {index: slots[order % plan.num_slots] for order, index in enumerate(plan.ring)}
        self._earlier = dict(zip(plan.ring[plan.num_slots :], plan.ring, strict=False))
        self._scratch = {name: arena.take(size) for name, size in plan.scratch.items()}
        self._num_tokens = 0
        self._tensors: dict[int, dict[str, torch.Tensor]] = {}

    def forward(self, layer: int, num_tokens: int) -> dict[str, torch.Tensor]:
        """Return all tensors of a layer, to be written: name -> [num_tokens, width]."""
        if num_tokens != self._num_tokens:
            self._use_length(num_tokens)
        if slot := self._slots.get(layer):
            self._wait(slot)
            slot.holds = layer
        return self._views(layer)

    def forward_done(self, layer: int) -> None:
        """Start to send out what a layer has left; the forward pass may read it until its slot's next turn."""
        if layer in self._sent:
            self._copy(self._slots[layer], to_host=True, layer=layer)

    def backward(self, layer: int, num_tokens: int) -> tuple[dict[str, torch.Tensor], frozenset[str]]:
        """Return all tensors of a layer, and the names of those that are not there and must be computed again."""
        slot = self._slots.get(layer)
        if num_tokens != self._num_tokens or (slot and slot.holds != layer):
            raise BugError("bug", f"The backward pass of layer {layer} does not follow its forward pass.")
        if slot:
            self._wait(slot)
        return self._views(layer), self._missing[layer]

    def backward_done(self, layer: int) -> None:
        """Give a layer's buffers free and fetch those of the next lower layer that shares its slot."""
        if (earlier := self._earlier.get(layer)) is not None:
            slot = self._slots[layer]
            slot.holds = earlier
            self._copy(slot, to_host=False, layer=earlier)

    def settle(self) -> None:
        """Let later computation wait for all copies. A whole pass ends settled; call it before dropping half of one."""
        for slot in self._slots.values():
            self._wait(slot)

    def _use_length(self, num_tokens: int) -> None:
        if num_tokens > self._capacity_tokens:
            raise BugError("bug", f"{num_tokens} tokens don't fit into buffers for {self._capacity_tokens}.")
        self._num_tokens = num_tokens
        self._tensors.clear()

    def _copy(self, slot: _Slot, to_host: bool, layer: int) -> None:
        num_bytes = self._layers[layer].num_bytes(self._kept[layer], self._num_tokens)
        on_device, on_host = slot.memory[:num_bytes], self._sent[layer][:num_bytes]
        self._wait(slot)
        slot.copying = self._copies.start(*((on_host, on_device) if to_host else (on_device, on_host)))

    def _wait(self, slot: _Slot) -> None:
        if slot.copying is not None:
            self._copies.wait(slot.copying)
            slot.copying = None

    def _views(self, layer: int) -> dict[str, torch.Tensor]:
        """Return the tensors at the present length; those kept lie without gaps, so that one copy takes them all."""
        if layer in self._tensors:
            return self._tensors[layer]
        buffers, kept = self._layers[layer], self._kept[layer]
        own = _Arena(self._slots[layer].memory if layer in self._slots else self._resident[layer])
        tensors = self._tensors[layer] = {}
        for name, (width, dtype) in buffers.tensors.items():
            part = own.take(buffers.tensor_bytes(name, self._num_tokens)) if name in kept else self._scratch[name]
            flat = part[: self._num_tokens * width * dtype.itemsize].view(dtype)
            tensors[name] = flat.view(
                (width, self._num_tokens) if name in buffers.columns else (self._num_tokens, width)
            )
        return tensors


class _Arena:
    """Cuts a flat tensor into parts."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory, self._start = memory, 0

    def take(self, num_bytes: int) -> torch.Tensor:
        """Return the next part."""
        self._start += num_bytes
        return self._memory[self._start - num_bytes : self._start]


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
            whole = torch.empty(_rounded(num_bytes, PAGE_BYTES) + PAGE_BYTES, dtype=torch.uint8)
        except RuntimeError as error:
            raise PinningError(str(error)) from error
        # Whole pages of our own: a page can't be registered twice.
        start = -whole.data_ptr() % PAGE_BYTES
        memory = whole[start : start + _rounded(num_bytes, PAGE_BYTES)]
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


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
