"""Policies that suit each layer: never slower than before, within memory, and near the best of all assignments."""

from __future__ import annotations

import itertools
import random

import pytest

from tunesmith_engine.fused.activations import LayerPolicy
from tunesmith_engine.fused.policy import ON_DEVICE, RUNGS
from tunesmith_engine.fused.refining import Policies, refined

KEEP, AGAIN = LayerPolicy("none"), LayerPolicy("full")


@pytest.mark.parametrize("seed", range(10))
def test_near_the_best_of_all_assignments(seed: int) -> None:
    """Layers whose seconds and bytes under each policy are anything."""
    chance = random.Random(seed)
    num_layers = 5
    seconds = [{kind: chance.uniform(1, 2) + place for place, kind in enumerate(ON_DEVICE)} for _ in range(num_layers)]
    sizes = [
        {kind: chance.uniform(1, 2) + 2 * (3 - place) for place, kind in enumerate(ON_DEVICE)}
        for _ in range(num_layers)
    ]

    def predict(policies: Policies) -> float:
        return sum(of_layer[policy] for of_layer, policy in zip(seconds, policies, strict=True))

    def size(policies: Policies) -> float:
        return sum(of_layer[policy] for of_layer, policy in zip(sizes, policies, strict=True))

    every = list(itertools.product(ON_DEVICE, repeat=num_layers))
    room = chance.uniform(min(map(size, every)), max(map(size, every)))
    fitting = sorted((policies for policies in every if size(policies) <= room), key=predict)
    slowest = fitting[-1]
    found = refined(slowest, ON_DEVICE, 0, predict, lambda policies: size(policies) <= room)
    assert size(found) <= room
    assert predict(found) <= 1.08 * predict(fitting[0])
    assert refined(found, ON_DEVICE, 0, predict, lambda policies: size(policies) <= room) == found


def test_the_layer_that_costs_least_is_computed_again() -> None:
    """Exchanges find it where no layer alone may change: there is room for one to keep everything."""
    dear, cheap = 3.0, 1.0
    seconds = (cheap, dear)

    def predict(policies: Policies) -> float:
        return sum(again for again, policy in zip(seconds, policies, strict=True) if policy == AGAIN)

    found = refined((KEEP, AGAIN), (KEEP, AGAIN), 0, predict, lambda policies: policies.count(KEEP) <= 1)
    assert found == (AGAIN, KEEP)


def test_tiles_are_sent_one_more_or_one_less_but_not_of_what_is_kept() -> None:
    wanted = 3

    def predict(policies: Policies) -> float:
        assert all(policy.sent_tiles <= 4 for policy in policies)
        assert all(policy.sent_tiles == 0 for policy in policies if policy.level == "none")
        return 10.0 + sum(abs(policy.sent_tiles - wanted) + (policy.level == "none") for policy in policies)

    found = refined((LayerPolicy("mlp", "host"), KEEP), RUNGS, 4, predict, lambda _: True)
    assert [policy.sent_tiles for policy in found] == [wanted, wanted]
    without = refined((LayerPolicy("mlp", "host"), KEEP), RUNGS, 0, predict, lambda _: True)
    assert [policy.sent_tiles for policy in without] == [0, 0]


def test_what_does_not_fit_is_not_taken_nor_what_saves_next_to_nothing() -> None:
    before = (AGAIN, AGAIN)
    assert refined(before, RUNGS, 0, lambda policies: float(policies.count(AGAIN)), lambda _: False) == before
    assert refined(before, RUNGS, 0, lambda policies: 1.0 + 1e-6 * policies.count(AGAIN), lambda _: True) == before
