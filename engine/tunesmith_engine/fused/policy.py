"""Chooses for each layer what is kept, where, and what is computed again, so that a step is fastest in given memory."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tunesmith_core.fused_memory import NUM_SLOTS
from tunesmith_core.messages import LISTED, Message, joined
from tunesmith_engine.fused.activations import LEVELS, LayerBuffers, StoreBytes
from tunesmith_engine.fused.activations import LayerPolicy as LayerPolicy
from tunesmith_engine.fused.prediction import LayerCosts, Tiles, predicted_s
from tunesmith_engine.fused.rates import CopyRates

ON_DEVICE = tuple(LayerPolicy(level, "device") for level in LEVELS)
ON_HOST = tuple(LayerPolicy(level, "host") for level in LEVELS)
RUNGS = ON_DEVICE + ON_HOST
"""From most to least memory of the device."""

NAMED: Mapping[str, tuple[LayerPolicy, ...]] = {
    "auto": RUNGS,
    **{policy.level: (policy,) for policy in ON_DEVICE},
    "offload": ON_HOST,
    "saver": ON_HOST[-1:],
}
"""Name -> what `choose` may choose from."""

TILES_PER_LAYER = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""How many tiles of gate and up may be sent of each layer, on average."""

MOST_COUNTS = 40
"""Layers are counted in steps so that a choice looks at about this many counts."""

PHRASES = {
    LayerPolicy("none"): Message("keep everything"),
    LayerPolicy("mlp"): Message("recompute the MLP"),
    LayerPolicy("smart"): Message("recompute attention and the MLP"),
    LayerPolicy("full"): Message("recompute all but the last product"),
    LayerPolicy("none", "host"): Message("keep everything in system memory"),
    LayerPolicy("mlp", "host"): Message("recompute the MLP and keep the rest in system memory"),
    LayerPolicy("smart", "host"): Message("recompute attention and the MLP and keep the rest in system memory"),
    LayerPolicy("full", "host"): Message("recompute all but the last product from an input in system memory"),
}


# Choosing


class _Sizes:
    """Bytes of the largest layer under each level: exact where all layers and tiles are alike, else too many."""

    def __init__(
        self,
        buffers: Mapping[str, Sequence[LayerBuffers]],
        capacity_tokens: int,
        num_slots: int,
        tile_tokens: int,
    ) -> None:
        self.num_slots = num_slots
        self.tiles = Tiles.of(buffers, capacity_tokens, tile_tokens)
        self.kept = {
            level: max(layer.num_bytes(layer.kept[level], capacity_tokens) for layer in layers)
            for level, layers in buffers.items()
        }
        self._scratch: dict[str, dict[str, int]] = {level: {} for level in buffers}
        for level, layers in buffers.items():
            shared = self._scratch[level]
            for layer in layers:
                for name in layer.tensors.keys() - layer.kept[level]:
                    shared[name] = max(shared.get(name, 0), layer.tensor_bytes(name, capacity_tokens))
        self._unions: dict[frozenset[str], int] = {}

    def store(self, counts: Mapping[LayerPolicy, int]) -> StoreBytes:
        """Return what a store with so many layers of each kind takes."""
        device = sum(self.kept[kind.level] * count for kind, count in counts.items() if kind.place == "device")
        host = [(self.kept[kind.level], count) for kind, count in counts.items() if kind.place == "host"]
        num_slots = min(self.num_slots, sum(count for _, count in host))
        device += num_slots * max((size for size, _ in host), default=0)
        # Which layers stay in their slots is not known yet: take the smallest for them.
        sent = sum(size * count for size, count in host) - num_slots * min((size for size, _ in host), default=0)
        num_tiles = sum(kind.sent_tiles * count for kind, count in counts.items())
        device += min(self.num_slots, num_tiles) * self.tiles.num_bytes
        sent += max(0, num_tiles - self.num_slots) * self.tiles.num_bytes
        return StoreBytes(device + self._shared(frozenset(kind.level for kind in counts)), sent)

    def _shared(self, levels: frozenset[str]) -> int:
        if levels not in self._unions:
            union: dict[str, int] = {}
            for name, size in itertools.chain.from_iterable(self._scratch[level].items() for level in levels):
                union[name] = max(union.get(name, 0), size)
            self._unions[levels] = sum(union.values())
        return self._unions[levels]


def choose(
    name: str,
    costs: LayerCosts,
    buffers: Mapping[str, Sequence[LayerBuffers]],
    capacity_tokens: int,
    budget_bytes: float,
    host_budget_bytes: float = 0,
    rates: CopyRates | None = None,
    num_slots: int = NUM_SLOTS,
    tile_tokens: int = 0,
) -> tuple[LayerPolicy, ...]:
    """Return the fastest policies whose store fits, or the smallest ones when none fits.

    Looks at all mixtures of `keep everything on the device` with up to two other kinds of layers, and with one kind
    that sends some tiles of gate and up; layers that copy are spread evenly, so that those between them hide the
    copies.

    Args:
        name: a key of NAMED.
        costs: of a layer on average.
        buffers: level -> the buffers of all layers under it.
        capacity_tokens: as the store gets it.
        budget_bytes: for the store on the device.
        host_budget_bytes: for the store on the host.
        rates: of copies; None rules the host out.
        num_slots, tile_tokens: as the store gets them; without the latter no tiles are sent.
    """
    num_layers = len(buffers[LEVELS[0]])
    sizes = _Sizes(buffers, capacity_tokens, num_slots, tile_tokens)
    kinds = [kind for kind in NAMED[name] if rates or kind.place == "device"]
    mixtures = _mixtures(kinds, num_layers)
    if name == "auto" and rates and sizes.tiles.num_bytes:
        mixtures = itertools.chain(mixtures, _mixtures_with_tiles(num_layers, sizes.tiles.number))
    candidates = [(counts, sizes.store(counts)) for counts in mixtures]
    candidates = [(counts, store) for counts, store in candidates if store.host <= host_budget_bytes]
    fitting = [counts for counts, store in candidates if store.device <= budget_bytes]
    if not candidates:
        return (ON_DEVICE[-1],) * num_layers
    if not fitting:
        smallest = min(candidates, key=lambda found: (found[1].device, _compute_s(found[0], costs, sizes.tiles)))
        return _arranged(smallest[0], num_layers)
    best_s, best = math.inf, _arranged(fitting[0], num_layers)
    bounds = [(_compute_s(counts, costs, sizes.tiles), index) for index, counts in enumerate(fitting)]
    for bound_s, index in sorted(bounds):
        if bound_s >= best_s:
            break
        policies = _arranged(fitting[index], num_layers)
        alike = [costs] * num_layers, [sizes.kept] * num_layers
        step_s = predicted_s(policies, *alike, rates, num_slots, sizes.tiles)
        if step_s < best_s:
            best_s, best = step_s, policies
    return best


def _mixtures(kinds: Sequence[LayerPolicy], num_layers: int) -> Iterator[dict[LayerPolicy, int]]:
    """Yield numbers of layers: of the first kind, and of each pair of the others."""
    stride = -(-num_layers // MOST_COUNTS)
    first, others = kinds[:1], kinds[1:]
    for kind in first:
        yield {kind: num_layers}
    for num_first in range(0, num_layers, stride):
        rest = num_layers - num_first
        for kind in others:
            yield {k: n for k, n in ((first[0], num_first), (kind, rest)) if n}
        for one, other in itertools.combinations(others, 2):
            for num_one in range(stride, rest, stride):
                yield {k: n for k, n in ((first[0], num_first), (one, num_one), (other, rest - num_one)) if n}


def _mixtures_with_tiles(num_layers: int, num_tiles: int) -> Iterator[dict[LayerPolicy, int]]:
    """Yield numbers of layers: some that keep everything, and others of one kind of which tiles are sent."""
    for num_first in range(0, num_layers, -(-num_layers // MOST_COUNTS)):
        rest = num_layers - num_first
        for kind, average in itertools.product(ON_HOST[1:], TILES_PER_LAYER):
            if average <= num_tiles:
                fewer = int(average)
                num_more = round((average - fewer) * rest)
                counts = {LayerPolicy("none"): num_first, replace(kind, sent_tiles=fewer): rest - num_more}
                counts[replace(kind, sent_tiles=fewer + 1)] = num_more
                yield {k: n for k, n in counts.items() if n}


def _arranged(counts: Mapping[LayerPolicy, int], num_layers: int) -> tuple[LayerPolicy, ...]:
    """Spread the layers that copy evenly among the others; of those the ones that keep most come last."""
    copying = [kind for kind, count in counts.items() if kind.place == "host" for _ in range(count)]
    staying = [kind for kind in reversed(ON_DEVICE) for _ in range(counts.get(kind, 0))]
    # Each kind of copying layers is spread among these, too: place them by the middle of their share.
    kinds = sorted(set(copying), key=lambda kind: (_rung(kind), kind.sent_tiles))
    order = sorted(
        ((place + 0.5) / counts[kind], rank) for rank, kind in enumerate(kinds) for place in range(counts[kind])
    )
    copies, stays = iter([kinds[rank] for _, rank in order]), iter(staying)
    num_copying = len(copying)
    return tuple(
        next(copies) if (index + 1) * num_copying // num_layers > index * num_copying // num_layers else next(stays)
        for index in range(num_layers)
    )


def _rung(policy: LayerPolicy) -> int:
    return RUNGS.index(replace(policy, sent_tiles=0))


def _compute_s(counts: Mapping[LayerPolicy, int], costs: LayerCosts, tiles: Tiles) -> float:
    piece_s = costs.replay_s["mlp"] / tiles.number
    return sum(
        count * (costs.forward_s + costs.backward_s + costs.replay_s[kind.level] - kind.sent_tiles * piece_s)
        for kind, count in counts.items()
    )


# Less memory


def step_down(policies: Sequence[LayerPolicy], host: bool = True) -> tuple[LayerPolicy, ...] | None:
    """Return policies that take less memory of the device, or None when there are none.

    Tiles of gate and up that were sent are computed again. Where there were none, half of the layers on the highest
    rung go one rung down. Layers that copy go together: the largest of them sets the size of the ring's slots.

    Args:
        policies: the present ones.
        host: whether pinned memory may be used.
    """
    if any(policy.sent_tiles for policy in policies):
        return tuple(replace(policy, sent_tiles=0) for policy in policies)
    rungs = RUNGS if host else ON_DEVICE
    highest = min((RUNGS.index(policy) for policy in policies), default=len(rungs))
    if highest + 1 >= len(rungs):
        return None
    here, below = RUNGS[highest], RUNGS[highest + 1]
    if below == ON_HOST[0]:
        # From the least on the device straight to the least on the host.
        below = ON_HOST[-1]
    places = [index for index, policy in enumerate(policies) if policy == here]
    num_moved = len(places) if here.place == "host" else -(-len(places) // 2)
    moved = set(places[:num_moved])
    return tuple(below if index in moved else policy for index, policy in enumerate(policies))


def without_host(policies: Sequence[LayerPolicy]) -> tuple[LayerPolicy, ...]:
    """Return policies for a machine that pins no memory: what was to be sent out is computed again."""
    return tuple(ON_DEVICE[-1] if policy.place == "host" else replace(policy, sent_tiles=0) for policy in policies)


def plan_bytes(store: StoreBytes, fixed_bytes: int, workspace_bytes: int) -> int:
    """Return the expected peak of the device's memory: weights and the like, activations, intermediate results."""
    return fixed_bytes + store.device + workspace_bytes


def describe(policies: Sequence[LayerPolicy]) -> str:
    """Return a sentence such as "Layers: 12 keep everything, 20 recompute the MLP."."""
    counts = Counter(RUNGS[_rung(policy)] for policy in policies)
    parts = [Message("{count} {what}", count=counts[kind], what=PHRASES[kind]) for kind in RUNGS if counts[kind]]
    if num_tiles := sum(policy.sent_tiles for policy in policies):
        parts.append(Message("{count} pieces of the MLP in system memory", count=num_tiles))
    return Message("Layers: {parts}.", parts=joined(parts, LISTED))
