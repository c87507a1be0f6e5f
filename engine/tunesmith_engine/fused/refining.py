"""Betters a choice of policies layer by layer, for layers differ and a choice by averages leaves memory over.

An attention layer is computed again sooner than one with a delta rule, and leaves other bytes. `policy.choose` counts
each layer as the average one and as the largest; what it finds is where this begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tunesmith_engine.fused.policy import LayerPolicy

MOST_ROUNDS = 8
"""Through all layers. With 12 to 16 of them nothing more is found after two to four."""

WORTHWHILE = 1e-4
"""Share of the time that a change has to save."""

Policies = tuple[LayerPolicy, ...]


def refined(
    policies: Policies,
    kinds: Sequence[LayerPolicy],
    num_tiles: int,
    predict: Callable[[Policies], float],
    fits: Callable[[Policies], bool],
) -> Policies:
    """Return policies that fit as well and are predicted to be as fast or faster.

    Args:
        policies: of each layer, a choice that fits.
        kinds: what a layer may get, tiles aside.
        num_tiles: of gate and up that a layer may send at most.
        predict: returns the seconds of a step.
        fits: returns whether a choice has room.
    """
    best, best_s = policies, predict(policies)
    for _ in range(MOST_ROUNDS):
        before_s = best_s
        for index in range(len(policies)):
            for other in itertools.chain(_changes(best, index, kinds, num_tiles), _exchanges(best, index)):
                other_s = predict(other)
                if other_s < best_s * (1 - WORTHWHILE) and fits(other):
                    best, best_s = other, other_s
        if best_s == before_s:
            break
    return best


def _changes(policies: Policies, index: int, kinds: Sequence[LayerPolicy], num_tiles: int) -> Iterator[Policies]:
    """Yield choices with another policy of one layer; a tile more or less at a time."""
    now = policies[index]
    for kind in kinds:
        # What keeps gate and up has no tiles of them to send.
        most = 0 if kind.level == "none" else num_tiles
        for sent_tiles in {0, *range(max(0, now.sent_tiles - 1), min(now.sent_tiles + 1, most) + 1)}:
            other = replace(kind, sent_tiles=min(sent_tiles, most))
            if other != now:
                yield (*policies[:index], other, *policies[index + 1 :])


def _exchanges(policies: Policies, index: int) -> Iterator[Policies]:
    """Yield choices in which one layer and a later one have changed places."""
    for later in range(index + 1, len(policies)):
        if policies[later] != policies[index]:
            changed = list(policies)
            changed[index], changed[later] = changed[later], changed[index]
            yield tuple(changed)
