"""How long a step will take, from the layer's floating-point operations and from the copies that run beside them.

Copies go outward in the forward pass and inward in the backward pass. Both directions have a rate of their own and
share nothing (PCI Express is full duplex; GPUs of compute capability 5 and later have two copy engines).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

from tunesmith_core.fused_memory import NUM_SLOTS, WHOLE
from tunesmith_engine.fused.activations import LayerBuffers, LayerPolicy
from tunesmith_engine.fused.attention_block import num_parts
from tunesmith_engine.fused.rates import CopyRates
from tunesmith_engine.fused.ring import Entry
from tunesmith_engine.kernels.chunk_places import CHUNK
from tunesmith_engine.kernels.gated_convolution import NUM_PARTS
from tunesmith_engine.mixer_shapes import (
    Branch,
    ChannelDeltaShape,
    ConvolutionShape,
    DeltaShape,
    LatentShape,
    StateSpaceShape,
    branches_of,
)
from tunesmith_engine.shapes import LayerShape, MlpShape, SparseShape, Unfused, UnfusedLayer

COPY_DRAG = 0.02
"""Share of a hidden copy's time by which it slows the computation down: they use the same memory. A guess on the safe
side; it also lets the device win where both are equal."""

DELTA_FLOPS = 125
"""Of products in 16 bits that take as long as the delta rule, for each number of a head's state and token: 0.83 ms for
8192 tokens of 32 heads of 128 x 128 on an H200, torch 2.11, Triton 3.6, 2026-11-28; backward 2.7 ms."""

CHANNEL_DELTA_FLOPS = 340
"""The same where each channel decays by its own: 2.3 ms, and backward 6.8."""

SHARE_IN_TURN = 0.28
"""Of a delta rule's time: a document's chunks go one after another there. The same machine and date."""

CHUNK_S = 3.4e-6, 9.5e-6
"""What a chunk takes there at least, forward and backward: one document of 2048 tokens, 8 to 32 heads."""

CHANNEL_CHUNK_S = 9.8e-6, 24.5e-6
"""The same where each channel decays by its own."""

SCAN_FLOPS = 120
"""The same of the state-space scan: a guess from its operations until it is measured."""


class Tiles(NamedTuple):
    """Into how many tiles a micro-batch's rows are cut for the MLP, and the bytes of gate and up of one."""

    number: int
    num_bytes: int

    @staticmethod
    def of(buffers: Mapping[str, Sequence[LayerBuffers]], capacity_tokens: int, tile_tokens: int) -> Tiles:
        """Return those of the largest layer; NO_TILES without `tile_tokens`, or where a layer has none to send.

        Args:
            buffers: level -> the buffers of all layers under it.
            capacity_tokens: of a micro-batch.
            tile_tokens: rows of a tile, or 0.
        """
        if not tile_tokens or any(layer.tile is None for layer in buffers["mlp"]):
            return NO_TILES
        rows = min(tile_tokens, capacity_tokens)
        return Tiles(-(-capacity_tokens // rows), max(layer.tile_bytes(rows) for layer in buffers["mlp"]))


NO_TILES = Tiles(1, 0)


def _mlp_widths(mlp: MlpShape | SparseShape | Unfused | None) -> tuple[int, int]:
    """Return the numbers of a token between an MLP's products, and those that its inputs give."""
    if isinstance(mlp, SparseShape):
        width, inner = _mlp_widths(mlp.shared) if mlp.shared else (0, 0)
        return width + mlp.per_token * mlp.width, inner + 2 * mlp.per_token * mlp.width
    return (mlp.width, mlp.inner_width) if isinstance(mlp, MlpShape) else (0, 0)


class _Mixer(NamedTuple):
    """The work of a mixer for a token.

    Attributes:
        inputs: outputs of its input projections.
        heads: inputs of its output projection.
        expanding: operations of its expansions.
        own: its own operations.
        times: how many times as many of its own the backward pass takes.
        chunk_s: what a chunk of a document takes at least, forward and backward, where one waits for the other.
    """

    inputs: int
    heads: int
    expanding: int
    own: float
    times: float
    chunk_s: tuple[float, float] = (0.0, 0.0)


def _work_of(mixer: Branch, document_length: float) -> _Mixer:
    """Return the work for a token whose document has so many on average."""
    query = mixer.numbers_per_token
    if isinstance(mixer, DeltaShape):
        inputs = mixer.num_channels + query + 2 * mixer.num_heads
        return _Mixer(inputs, query, 0, float(DELTA_FLOPS * mixer.key_dim * query), 3.0, CHUNK_S)
    if isinstance(mixer, ChannelDeltaShape):
        own = float(CHANNEL_DELTA_FLOPS * mixer.key_dim * query)
        return _Mixer(mixer.num_columns, query, 2 * mixer.num_expanding, own, 3.0, CHANNEL_CHUNK_S)
    if isinstance(mixer, StateSpaceShape):
        inputs = query + mixer.num_channels + mixer.num_heads
        return _Mixer(inputs, query, 0, float(SCAN_FLOPS * mixer.state_dim * query), 2.5)
    if isinstance(mixer, ConvolutionShape):
        return _Mixer(NUM_PARTS * query, query, 0, 0.0, 1.0)
    if isinstance(mixer, LatentShape):
        heads, expanding, reach = mixer.num_heads * mixer.value_dim, 2 * mixer.num_expanding, None
    else:
        heads, expanding, reach = mixer.output_width, 0, mixer.window or mixer.chunk
    seen = min(document_length, 2 * reach) if reach else document_length
    return _Mixer(mixer.num_columns, heads, expanding, (query + heads) * seen, 2.5)


def _waiting_s(own_s: float, least_s: float) -> float:
    """Return by how much chunks one after another take longer than their share of a mixer's time."""
    return max(0.0, least_s - SHARE_IN_TURN * own_s)


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Seconds that one layer computes for a full micro-batch.

    Attributes:
        replay_s: level -> what comes on top in the backward pass.
    """

    forward_s: float
    backward_s: float
    replay_s: Mapping[str, float]

    @property
    def mlp_s(self) -> float:
        """Seconds of the MLP, in either direction: gate, up and down, of which replaying leaves out the last."""
        return 1.5 * self.replay_s["mlp"]

    @staticmethod
    def of(
        shape: LayerShape | UnfusedLayer,
        hidden_size: int,
        num_tokens: int,
        document_length: float,
        flops_per_s: float,
        numbers_at_once: int = WHOLE.attention_numbers,
    ) -> LayerCosts:
        """Count operations, 2 for a multiply-add, of a frozen layer; its adapter adds a hundredth and is left out.

        With hidden size d, query width q, key width k, MLP width f and S the mean number of tokens that a token's
        document has: forward 2(d(2q + 2k) + 3df) + 2qS, backward the same but 5qS: causal attention has two products
        forward and five backward, each half empty. Replaying gate and up costs 4df, attention and its input
        projections 2d(q + 2k) + 2qS, its output projection 2dq; the MLP's last product is never needed again. The
        delta rules take `DELTA_FLOPS` in place of 2qS, thrice as many backward, and a scan `SCAN_FLOPS`. Convolutions
        are left out, as norms are. Where heads go by parts, each part of a delta rule waits for its own chunks.
        """
        if isinstance(shape.attention, Unfused):
            return LayerCosts._as_written(shape, hidden_size, num_tokens, flops_per_s)
        width, inner = _mlp_widths(shape.mlp)
        mlp = 2 * hidden_size * inner
        forward = backward = float(mlp + 2 * hidden_size * width)
        smart = full = float(mlp)
        seconds, waiting_s, waiting_backward_s = num_tokens / flops_per_s, 0.0, 0.0
        if isinstance(shape.mlp, SparseShape) and shape.mlp.branch_norms:
            # For the norms behind the branches their last products run again.
            backward += 2 * hidden_size * width
        for mixer in branches_of(shape.attention):
            inputs, heads, expanding, scores, times, chunk_s = _work_of(mixer, document_length)
            before = 2 * hidden_size * inputs + expanding
            forward += before + 2 * hidden_size * heads + scores
            backward += before + 2 * hidden_size * heads + times * scores
            smart += before + scores
            full += before + scores + 2 * hidden_size * heads
            num_chunks = num_parts(mixer, num_tokens, numbers_at_once) * min(document_length, num_tokens) / CHUNK
            waiting_s += _waiting_s(scores * seconds, num_chunks * chunk_s[0])
            waiting_backward_s += _waiting_s(times * scores * seconds, num_chunks * chunk_s[1])
        replay = {"none": 0.0, "mlp": mlp, "smart": smart, "full": full}
        if shape.attention is None or shape.mlp is None:
            # The last product of a layer's only block is never needed again.
            replay["full"] = smart
        again_s = {"none": 0.0, "mlp": 0.0, "smart": waiting_s, "full": waiting_s}
        return LayerCosts(
            forward * seconds + waiting_s,
            backward * seconds + waiting_backward_s,
            {level: flops * seconds + again_s[level] for level, flops in replay.items()},
        )

    @staticmethod
    def _as_written(
        shape: LayerShape | UnfusedLayer, hidden_size: int, num_tokens: int, flops_per_s: float
    ) -> LayerCosts:
        """Count a layer whose mixer runs as written, by the weights of that; it is always computed again."""
        width, inner = (shape.mlp.width, shape.mlp.inner_width) if isinstance(shape.mlp, MlpShape) else (0, 0)
        own = shape.attention.module if isinstance(shape.attention, Unfused) else None
        mixer = 2 * sum(weight.numel() for weight in own.parameters()) if own else 0
        mlp, seconds = 2 * hidden_size * inner, num_tokens / flops_per_s
        products = mlp + 2 * hidden_size * width
        replay = {"none": 0, "mlp": mlp, "smart": mlp, "full": mlp + mixer}
        return LayerCosts(
            (products + mixer) * seconds,
            (products + 2 * mixer) * seconds,
            {level: flops * seconds for level, flops in replay.items()},
        )

    @staticmethod
    def mean(costs: Sequence[LayerCosts]) -> LayerCosts:
        """Return what a layer costs on average."""
        number = len(costs)
        return LayerCosts(
            sum(each.forward_s for each in costs) / number,
            sum(each.backward_s for each in costs) / number,
            {level: sum(each.replay_s[level] for each in costs) / number for level in costs[0].replay_s},
        )


class _Clock:
    """The time of the computation, and until when each of the two copy engines is busy."""

    def __init__(self, rates: CopyRates | None) -> None:
        self.now_s, self.copying_s = 0.0, 0.0
        self._rates, self._outward_s, self._inward_s = rates, 0.0, 0.0

    def send(self, num_bytes: int) -> float:
        """Return when a copy to the host ends that is queued now."""
        copy_s = num_bytes / self._rates.to_host if self._rates else 0.0
        self.copying_s += copy_s
        self._outward_s = max(self.now_s, self._outward_s) + copy_s
        return self._outward_s

    def bring(self, num_bytes: int) -> float:
        """Return when a copy from the host ends that is queued now."""
        copy_s = num_bytes / self._rates.to_device if self._rates else 0.0
        self.copying_s += copy_s
        self._inward_s = max(self.now_s, self._inward_s) + copy_s
        return self._inward_s


class _Turns(Generic[Entry]):
    """A `ring.Ring` of which only the times are kept; its calls are the same."""

    def __init__(self, sizes: Mapping[Entry, int], num_slots: int, clock: _Clock) -> None:
        self._order = {entry: place for place, entry in enumerate(sizes)}
        self._sizes, self._num_slots, self._clock = list(sizes.values()), num_slots, clock
        self._out: dict[int, float] = {}
        self._back: dict[int, float] = {}

    def take(self, entry: Entry) -> None:
        self._clock.now_s = max(self._clock.now_s, self._out.get(self._order[entry] - self._num_slots, 0.0))

    def leave(self, entry: Entry) -> None:
        place = self._order[entry]
        if place < len(self._sizes) - self._num_slots:
            self._out[place] = self._clock.send(self._sizes[place])

    def fetch(self, entry: Entry) -> None:
        self._clock.now_s = max(self._clock.now_s, self._back.get(self._order[entry], 0.0))

    def free(self, entry: Entry) -> None:
        earlier = self._order[entry] - self._num_slots
        if earlier >= 0:
            self._back[earlier] = self._clock.bring(self._sizes[earlier])


def predicted_s(
    policies: Sequence[LayerPolicy],
    costs: Sequence[LayerCosts],
    kept_bytes: Sequence[Mapping[str, int]],
    rates: CopyRates | None,
    num_slots: int = NUM_SLOTS,
    tiles: Tiles = NO_TILES,
) -> float:
    """Return the seconds of all layers' forward and backward passes: computing, replaying, and waiting for copies.

    Follows the store: a slot can be written again when its last copy is out; an earlier entry is fetched when a later
    one gives its slot free.

    Args:
        policies, costs: of each layer.
        kept_bytes: of each layer, level -> bytes that it keeps.
        rates: of copies; None where none are made.
        num_slots: of each ring.
        tiles: of gate and up.
    """
    clock = _Clock(rates)
    sent = {index: policy.sent_numbers(tiles.number) for index, policy in enumerate(policies) if policy.sent_tiles}
    kept = {index: kept_bytes[index][policy.level] for index, policy in enumerate(policies) if policy.place == "host"}
    layers = _Turns(kept, num_slots, clock)
    pieces = _Turns({(index, at): tiles.num_bytes for index, ats in sent.items() for at in ats}, num_slots, clock)
    for index, cost in enumerate(costs):
        piece_s = cost.mlp_s / tiles.number
        if index in kept:
            layers.take(index)
        clock.now_s += cost.forward_s - cost.mlp_s
        behind = 0
        for at in sent.get(index, ()):
            clock.now_s += (at - behind) * piece_s
            pieces.take((index, at))
            clock.now_s += piece_s
            pieces.leave((index, at))
            behind = at + 1
        clock.now_s += (tiles.number - behind) * piece_s
        if index in kept:
            layers.leave(index)
    for index in reversed(range(len(policies))):
        cost, level = costs[index], policies[index].level
        piece_s = cost.mlp_s / tiles.number
        if index in kept:
            layers.fetch(index)
        again_s = cost.replay_s["mlp"] / tiles.number if level != "none" else 0.0
        clock.now_s += cost.replay_s[level] - again_s * tiles.number
        ahead = tiles.number
        for at in reversed(sent.get(index, ())):
            clock.now_s += (ahead - at - 1) * (piece_s + again_s)
            pieces.fetch((index, at))
            clock.now_s += piece_s
            pieces.free((index, at))
            ahead = at
        clock.now_s += ahead * (piece_s + again_s) + cost.backward_s - cost.mlp_s
        if index in kept:
            layers.free(index)
    return clock.now_s + COPY_DRAG * clock.copying_s
