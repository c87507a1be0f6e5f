"""Where the forward pass leaves what the backward pass needs: on the device, in pinned host memory, or nowhere.

All memory is allocated once. A layer whose tensors go to the host works in one of a few ring slots on the device. What
a layer does not keep lies in a set of buffers that all layers share; the layer computes it again. Gate and up, by far
the largest, may also go to the host piece by piece: as many of the tiles in which the MLP is computed as the copies
have time for, through a ring of slots no larger than a tile. No call makes the host wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.fused_memory import NUM_SLOTS
from tunesmith_engine.fused.copies import Copies, ImmediateCopies, StreamCopies
from tunesmith_engine.fused.ring import Ring
from tunesmith_engine.fused.sent_tiles import SentTiles

LEVELS = ("none", "mlp", "smart", "full")
"""How much of a layer is computed again in the backward pass, from nothing to everything but its last product."""

ALIGNMENT_BYTES = 256


@dataclass(frozen=True, slots=True)
class LayerBuffers:
    """What one layer leaves.

    Attributes:
        tensors: name -> (width, dtype) of a tensor of [T, width].
        kept: level -> names that survive the forward pass under it.
        columns: names of tensors that are [width, T] instead.
        tile: width and dtype of gate and up where they are not among the tensors; None where there are none.
    """

    tensors: Mapping[str, tuple[int, torch.dtype]]
    kept: Mapping[str, frozenset[str]]
    columns: frozenset[str] = frozenset()
    tile: tuple[int, torch.dtype] | None = None

    def num_bytes(self, names: frozenset[str], num_tokens: int) -> int:
        """Memory of some of the tensors, side by side."""
        return sum(self.tensor_bytes(name, num_tokens) for name in names)

    def tensor_bytes(self, name: str, num_tokens: int) -> int:
        """Memory of a tensor, rounded up to the alignment."""
        width, dtype = self.tensors[name]
        return _rounded(num_tokens * width * dtype.itemsize, ALIGNMENT_BYTES)

    def tile_bytes(self, num_tokens: int) -> int:
        """Memory of so many rows of gate and up, rounded up to the alignment."""
        width, dtype = self.tile or (0, torch.uint8)
        return _rounded(num_tokens * width * dtype.itemsize, ALIGNMENT_BYTES)


@dataclass(frozen=True, slots=True)
class LayerPolicy:
    """What becomes of a layer's tensors.

    Attributes:
        level: one of LEVELS.
        place: "device" or "host", for what is kept.
        sent_tiles: tiles of gate and up that go to the host, of those that the level would compute again.
    """

    level: str
    place: str = "device"
    sent_tiles: int = 0

    def sent_numbers(self, num_tiles: int) -> list[int]:
        """Return which of a layer's tiles are sent, far from each other so that copies have time."""
        number = min(self.sent_tiles, num_tiles)
        return [place * num_tiles // number for place in range(number)]


class StoreBytes(NamedTuple):
    """Memory of an ActivationStore."""

    device: int
    host: int


def store_bytes(
    layers: Sequence[LayerBuffers],
    policies: Sequence[LayerPolicy],
    capacity_tokens: int,
    num_slots: int = NUM_SLOTS,
    tile_tokens: int = 0,
) -> StoreBytes:
    """Return what an ActivationStore of these arguments allocates, without allocating it."""
    plan = _Plan(layers, policies, capacity_tokens, num_slots, tile_tokens)
    return StoreBytes(plan.device_bytes, plan.host_bytes)


class _Plan:
    """Sizes of the parts of a store.

    Attributes:
        resident: layer -> bytes of its own buffer on the device.
        ring: layers with place "host" in order; the i-th works in slot i modulo the number of slots.
        sent: layer -> bytes of its buffer on the host.
        tiles: (layer, number) of the tiles that take turns in their own slots, in order -> bytes.
        tiles_on_host: those of them that go to the host.
        scratch: name -> bytes of the buffer that layers share which don't keep the tensor.
    """

    def __init__(
        self,
        layers: Sequence[LayerBuffers],
        policies: Sequence[LayerPolicy],
        capacity_tokens: int,
        num_slots: int,
        tile_tokens: int,
    ) -> None:
        kept = [layer.kept[policy.level] for layer, policy in zip(layers, policies, strict=True)]
        num_bytes = [layer.num_bytes(names, capacity_tokens) for layer, names in zip(layers, kept, strict=True)]
        self.ring = [index for index, policy in enumerate(policies) if policy.place == "host"]
        self.resident = {index: num_bytes[index] for index in range(len(layers)) if index not in set(self.ring)}
        self.num_slots = min(num_slots, len(self.ring))
        self.slot_bytes = max((num_bytes[index] for index in self.ring), default=0)
        self.sent = {index: num_bytes[index] for index in self.ring[: len(self.ring) - self.num_slots]}
        self.tiles = tiles_of(layers, policies, capacity_tokens, capacity_tokens, tile_tokens)
        self.num_tile_slots = min(num_slots, len(self.tiles))
        self.tile_slot_bytes = max(self.tiles.values(), default=0)
        self.tiles_on_host = dict(list(self.tiles.items())[: len(self.tiles) - self.num_tile_slots])
        self.scratch: dict[str, int] = {}
        for layer, names in zip(layers, kept, strict=True):
            for name in layer.tensors.keys() - names:
                wanted = layer.tensor_bytes(name, capacity_tokens)
                self.scratch[name] = max(self.scratch.get(name, 0), wanted)
        shared_bytes = self.num_slots * self.slot_bytes + sum(self.scratch.values())
        shared_bytes += self.num_tile_slots * self.tile_slot_bytes
        self.device_bytes = sum(self.resident.values()) + shared_bytes
        self.host_bytes = sum(self.sent.values()) + sum(self.tiles_on_host.values())


def tiles_of(
    layers: Sequence[LayerBuffers],
    policies: Sequence[LayerPolicy],
    num_tokens: int,
    capacity_tokens: int,
    tile_tokens: int,
) -> dict[tuple[int, int], int]:
    """Return (layer, number) of the tiles that are sent of a micro-batch, in the order of the forward pass -> bytes."""
    found: dict[tuple[int, int], int] = {}
    for index, (layer, policy) in enumerate(zip(layers, policies, strict=True)):
        if policy.sent_tiles and layer.tile:
            for number in policy.sent_numbers(-(-capacity_tokens // tile_tokens)):
                rows = min(tile_tokens, num_tokens - number * tile_tokens)
                if rows > 0:
                    found[index, number] = layer.tile_bytes(rows)
    return found


class ActivationStore:
    """Hands out the buffers of each layer, forward and backward.

    A pass calls `forward` and `forward_done` for the layers in ascending order, then `backward` and `backward_done` in
    descending order. A layer's `tiles` are gone through in ascending order before its `forward_done`, and in descending
    order between its `backward` and `backward_done`. A pass without a backward part leaves out `forward_done` and
    `tiles`. Several layers may be asked for before the first is done, as long as they are fewer than the slots. Buffers
    come with whatever was in them before.

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
        tile_tokens: int = 0,
    ) -> None:
        """Allocate everything.

        Raises:
            PinningError: there is not enough memory on the host that copies can use.
            torch.OutOfMemoryError: there is not enough on the device.
        """
        if num_slots < NUM_SLOTS:
            raise TunesmithError(
                "bug", "A ring of {num_slots} slots can't be copied and computed on at once.", num_slots=num_slots
            )
        plan = _Plan(layers, policies, capacity_tokens, num_slots, tile_tokens)
        self.device_bytes, self.host_bytes = plan.device_bytes, plan.host_bytes
        self._layers, self._policies = layers, policies
        self._capacity_tokens, self._tile_tokens = capacity_tokens, tile_tokens
        self._kept = [layer.kept[policy.level] for layer, policy in zip(layers, policies, strict=True)]
        self._missing = [frozenset(layer.tensors) - names for layer, names in zip(layers, self._kept, strict=True)]
        copies = copies or (StreamCopies(device) if device.type == "cuda" else ImmediateCopies())
        host = _Arena(copies.host_memory(plan.host_bytes) if plan.host_bytes else torch.empty(0, dtype=torch.uint8))
        arena = _Arena(torch.empty(plan.device_bytes, dtype=torch.uint8, device=device))
        self._resident = {index: arena.take(size) for index, size in plan.resident.items()}
        slots = [arena.take(plan.slot_bytes) for _ in range(plan.num_slots)]
        self._in_turn = plan.ring
        self._ring = Ring[int](slots, {index: host.take(size) for index, size in plan.sent.items()}, copies)
        slots = [arena.take(plan.tile_slot_bytes) for _ in range(plan.num_tile_slots)]
        on_host = {entry: host.take(size) for entry, size in plan.tiles_on_host.items()}
        self._tile_ring = Ring[tuple[int, int]](slots, on_host, copies)
        self._scratch = {name: arena.take(size) for name, size in plan.scratch.items()}
        self._num_tokens = 0
        self._tensors: dict[int, dict[str, torch.Tensor]] = {}
        self._arrange()

    def forward(self, layer: int, num_tokens: int) -> dict[str, torch.Tensor]:
        """Return all tensors of a layer, to be written: name -> [num_tokens, width]."""
        if num_tokens != self._num_tokens:
            self._use_length(num_tokens)
        if layer in self._ring:
            self._ring.take(layer)
        return self._views(layer)

    def forward_done(self, layer: int) -> None:
        """Start to send out what a layer has left; the forward pass may read it until its slot's next turn."""
        if layer in self._ring:
            self._ring.leave(layer)

    def backward(self, layer: int, num_tokens: int) -> tuple[dict[str, torch.Tensor], frozenset[str]]:
        """Return all tensors of a layer, and the names of those that are not there and must be computed again."""
        in_ring = layer in self._ring
        if num_tokens != self._num_tokens or (in_ring and not self._ring.holds(layer)):
            raise TunesmithError(
                "bug", "The backward pass of layer {layer} does not follow its forward pass.", layer=layer
            )
        if in_ring:
            self._ring.fetch(layer)
        return self._views(layer), self._missing[layer]

    def backward_done(self, layer: int) -> None:
        """Give a layer's buffers free and fetch those of the next lower layer that shares its slot."""
        if layer in self._ring:
            self._ring.free(layer)

    def tiles(self, layer: int) -> SentTiles | None:
        """Return the tiles of a layer's gate and up that are sent, or None."""
        tile = self._layers[layer].tile
        return SentTiles(self._tile_ring, layer, *tile) if tile and self._policies[layer].sent_tiles else None

    def settle(self) -> None:
        """Let later computation wait for all copies. A whole pass ends settled; call it before dropping half of one."""
        self._ring.settle()
        self._tile_ring.settle()

    def _use_length(self, num_tokens: int) -> None:
        if num_tokens > self._capacity_tokens:
            raise TunesmithError(
                "bug",
                "{num_tokens} tokens don't fit into buffers for {capacity_tokens}.",
                num_tokens=num_tokens,
                capacity_tokens=self._capacity_tokens,
            )
        self._num_tokens = num_tokens
        self._tensors.clear()
        self._arrange()

    def _arrange(self) -> None:
        sizes = {index: self._layers[index].num_bytes(self._kept[index], self._num_tokens) for index in self._in_turn}
        self._ring.arrange(sizes)
        capacity, tile_tokens = self._capacity_tokens, self._tile_tokens
        self._tile_ring.arrange(tiles_of(self._layers, self._policies, self._num_tokens, capacity, tile_tokens))

    def _views(self, layer: int) -> dict[str, torch.Tensor]:
        """Return the tensors at the present length; those kept lie without gaps, so that one copy takes them all."""
        if layer in self._tensors:
            return self._tensors[layer]
        buffers, kept = self._layers[layer], self._kept[layer]
        own = _Arena(self._ring.memory(layer) if layer in self._ring else self._resident[layer])
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


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
