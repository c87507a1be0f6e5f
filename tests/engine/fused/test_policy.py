"""Policies fit their budget, are close to the best of all, and cost what the order of the store's copies costs."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.engine.fused import families
from tunesmith_engine.fused.activations import LEVELS, ActivationStore, LayerBuffers, LayerPolicy, store_bytes
from tunesmith_engine.fused.policy import (
    NAMED,
    RUNGS,
    choose,
    describe,
    plan_bytes,
    step_down,
    without_host,
)
from tunesmith_engine.fused.prediction import NO_TILES, LayerCosts, Tiles, predicted_s
from tunesmith_engine.fused.rates import CopyRates, measure_copy_rate, measure_matmul_rate
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.host_memory import host_budget_bytes
from tunesmith_engine.mixer_shapes import AttentionShape, ChannelDeltaShape, DeltaShape
from tunesmith_engine.shapes import LayerShape, MlpShape, Unfused

CPU = torch.device("cpu")
WIDTHS = {"x": 8, "x_mid": 8, "qkv": 20, "gate_up": 56}
KEPT = {"none": set(WIDTHS), "mlp": {"x", "x_mid", "qkv"}, "smart": {"x", "x_mid"}, "full": {"x"}}
COSTS = LayerCosts(1.0, 1.1, {"none": 0.0, "mlp": 0.5, "smart": 0.7, "full": 0.8})
TOKENS, TILE_TOKENS = 256, 64
PLENTY = 1e18
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def _costs(factor: float) -> LayerCosts:
    """Costs of a layer whose mixer takes longer, whose MLP is the others'."""
    mlp_s = COSTS.replay_s["mlp"]
    replay_s = {level: factor * max(0.0, s - mlp_s) + min(s, mlp_s) for level, s in COSTS.replay_s.items()}
    return LayerCosts(COSTS.forward_s + factor, COSTS.backward_s + factor, replay_s)


def _buffers(num_layers: int, widening: int = 0) -> dict[str, list[LayerBuffers]]:
    """As the fused layers: gate and up exist under "none" only, else they are computed in small tiles."""
    found = {}
    for level in LEVELS:
        names = set(WIDTHS) if level == "none" else set(WIDTHS) - {"gate_up"}
        widths = WIDTHS | {"qkv": WIDTHS["qkv"] + 8 * widening}
        tensors = {name: (widths[name], torch.bfloat16) for name in WIDTHS if name in names}
        tile = (WIDTHS["gate_up"], torch.bfloat16) if level != "none" else None
        layer = LayerBuffers(tensors, {other: frozenset(KEPT[other] & names) for other in LEVELS}, tile=tile)
        found[level] = [layer] * num_layers
    return found


def _bytes(policies: Sequence[LayerPolicy], buffers: Mapping[str, Sequence[LayerBuffers]]) -> tuple[int, int]:
    layers = [buffers[policy.level][i] for i, policy in enumerate(policies)]
    return store_bytes(layers, policies, TOKENS, tile_tokens=TILE_TOKENS)


def _kept_bytes(buffers: Mapping[str, Sequence[LayerBuffers]]) -> dict[str, int]:
    return {level: layers[0].num_bytes(layers[0].kept[level], TOKENS) for level, layers in buffers.items()}


def _predicted_s(
    policies: Sequence[LayerPolicy],
    rates: CopyRates | None,
    tiles: Tiles = NO_TILES,
) -> float:
    """Predict the time of layers that are alike."""
    alike = [COSTS] * len(policies), [_kept_bytes(_buffers(1))] * len(policies)
    return predicted_s(policies, *alike, rates, tiles=tiles)


def _rates(copy_s: float) -> CopyRates:
    """Rates at which a layer that keeps everything is copied in so many seconds."""
    whole = _kept_bytes(_buffers(1))["none"]
    return CopyRates(whole / copy_s, whole / copy_s)


class Clock:
    """Copies that only take time on two engines, beside a computation that takes time too."""

    def __init__(self, rates: CopyRates) -> None:
        self.now_s = 0.0
        self._rates, self._free_s, self._host_s = rates, {True: 0.0, False: 0.0}, 0.0
        self._host: torch.Tensor | None = None

    def start(self, destination: torch.Tensor, source: torch.Tensor) -> float:
        """Return when the copy ends."""
        assert self._host is not None
        outward = destination.untyped_storage().data_ptr() == self._host.data_ptr()
        rate = self._rates.to_host if outward else self._rates.to_device
        self._free_s[outward] = max(self.now_s, self._free_s[outward]) + source.numel() / rate
        return self._free_s[outward]

    def wait(self, mark: float) -> None:
        """Let the computation go on at the end of a copy."""
        self.now_s = max(self.now_s, mark)

    def host_memory(self, num_bytes: int) -> torch.Tensor:
        """Return memory that nothing is written to."""
        self._host = torch.empty(num_bytes, dtype=torch.uint8)
        return self._host


def _time_by_store(
    layers: Sequence[LayerBuffers],
    costs: Sequence[LayerCosts],
    policies: Sequence[LayerPolicy],
    rates: CopyRates,
    num_slots: int,
) -> float:
    clock = Clock(rates)
    store = ActivationStore(layers, policies, TOKENS, CPU, num_slots, clock, TILE_TOKENS)
    num_tiles = TOKENS // TILE_TOKENS
    for index, cost in enumerate(costs):
        store.forward(index, TOKENS)
        clock.now_s += cost.forward_s - cost.mlp_s
        tiles = store.tiles(index)
        for number in range(num_tiles):
            sent = tiles and tiles.write(number, TILE_TOKENS) is not None
            clock.now_s += cost.mlp_s / num_tiles
            if tiles and sent:
                tiles.written(number)
        store.forward_done(index)
    for index in reversed(range(len(policies))):
        cost = costs[index]
        replay_s, replay_mlp_s = cost.replay_s[policies[index].level], cost.replay_s["mlp"]
        store.backward(index, TOKENS)
        clock.now_s += max(0.0, replay_s - replay_mlp_s)
        tiles = store.tiles(index)
        for number in reversed(range(num_tiles)):
            there = tiles and tiles.read(number, TILE_TOKENS) is not None
            clock.now_s += (cost.mlp_s + (0.0 if there else min(replay_s, replay_mlp_s))) / num_tiles
            if tiles and there:
                tiles.used(number)
        clock.now_s += cost.backward_s - cost.mlp_s
        store.backward_done(index)
    return clock.now_s


def _tiles() -> Tiles:
    return Tiles.of(_buffers(1), TOKENS, TILE_TOKENS)


@pytest.mark.parametrize("seed", range(30))
def test_prediction_follows_the_store(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunesmith_engine.fused.prediction.COPY_DRAG", 0.0)
    chance = random.Random(seed)
    policies = [chance.choice(RUNGS) for _ in range(chance.randint(1, 12))]
    if seed % 2:
        policies = [p if p.level == "none" else replace(p, sent_tiles=chance.randint(0, 4)) for p in policies]
    num_slots = chance.randint(2, 3)
    to_host, to_device = (_rates(chance.uniform(0.1, 5.0)).to_host for _ in range(2))
    rates = CopyRates(to_host, to_device)
    buffers = [_buffers(1, widening=chance.randint(0, 3)) for _ in policies]
    costs = [_costs(chance.uniform(0.5, 2.0)) for _ in policies]
    predicted = predicted_s(policies, costs, list(map(_kept_bytes, buffers)), rates, num_slots, _tiles())
    layers = [each[policy.level][0] for each, policy in zip(buffers, policies, strict=True)]
    assert predicted == pytest.approx(_time_by_store(layers, costs, policies, rates, num_slots))


@pytest.mark.parametrize("seed", range(6))
def test_close_to_the_best_of_all_assignments(seed: int) -> None:
    chance = random.Random(seed)
    num_layers, rates = 4, _rates(chance.uniform(0.3, 6.0))
    buffers = _buffers(num_layers)
    kept = _kept_bytes(buffers)
    every = [(policies, _bytes(policies, buffers)) for policies in itertools.product(RUNGS, repeat=num_layers)]
    sizes = sorted(device for _, (device, _) in every)
    budget, host_budget = chance.choice(sizes), chance.choice([0, kept["full"], 10 * kept["none"]])
    best_s = min(
        _predicted_s(policies, rates)
        for policies, (device, host) in every
        if device <= budget and host <= host_budget
    )
    chosen = choose("auto", COSTS, buffers, TOKENS, budget, host_budget, rates)
    device, host = _bytes(chosen, buffers)
    assert device <= budget
    assert host <= host_budget
    assert _predicted_s(chosen, rates) <= 1.05 * best_s


@pytest.mark.parametrize("copy_s", [1.0, *(pytest.param(s, marks=pytest.mark.long) for s in (0.2, 3.0, None))])
def test_more_memory_is_never_slower(copy_s: float | None) -> None:
    buffers = _buffers(16)
    kept, rates = _kept_bytes(buffers), _rates(copy_s) if copy_s else None
    times = []
    for budget in range(0, 20 * kept["none"], kept["none"] // 2):
        chosen = choose("auto", COSTS, buffers, TOKENS, budget, PLENTY, rates)
        assert len(chosen) == 16
        smallest = _bytes(choose("auto", COSTS, buffers, TOKENS, 0, PLENTY, rates), buffers)[0]
        assert _bytes(chosen, buffers)[0] <= max(budget, smallest)
        times.append(_predicted_s(chosen, rates))
        assert rates or all(policy.place == "device" for policy in chosen)
    # What fits nowhere comes out as the smallest there is, which need not be the slowest.
    fitting = times[next(i for i in range(len(times)) if i * (kept["none"] // 2) >= smallest) :]
    assert fitting == sorted(fitting, reverse=True)
    assert chosen == (LayerPolicy("none"),) * 16
    assert fitting[0] > 1.1 * fitting[-1] or copy_s == 0.2


def test_fast_copies_replace_replay_and_slow_ones_do_not() -> None:
    buffers = _buffers(32)
    # Two slots of everything, and what the levels with less keep in common.
    budget = _bytes([LayerPolicy("none", "host")] * 32, buffers)[0]
    fast = choose("auto", COSTS, buffers, TOKENS, budget, PLENTY, _rates(0.5))
    assert set(fast) == {LayerPolicy("none", "host")}
    slow = choose("auto", COSTS, buffers, TOKENS, budget, PLENTY, _rates(20.0))
    assert any(policy.level == "full" for policy in slow)
    without = choose("auto", COSTS, buffers, TOKENS, budget, 0, _rates(0.5))
    assert {policy.place for policy in without} == {"device"}


def test_layers_that_copy_stand_between_those_that_do_not() -> None:
    buffers = _buffers(16)
    kept = _kept_bytes(buffers)
    chosen = choose("auto", COSTS, buffers, TOKENS, 10.5 * kept["none"], PLENTY, _rates(1.9))
    hosts = [index for index, policy in enumerate(chosen) if policy.place == "host"]
    assert len(hosts) > 2
    assert max(after - before for before, after in itertools.pairwise(hosts)) <= 3
    together = sorted(chosen, key=lambda policy: policy.place)
    assert _predicted_s(chosen, _rates(1.9)) < _predicted_s(together, _rates(1.9))


def test_a_mixture_beats_one_kind_beside_those_that_keep_everything() -> None:
    buffers = _buffers(16)
    rates, budget = _rates(3.0), 4 * _kept_bytes(buffers)["none"]
    single = [[LayerPolicy("none")] * number + [kind] * (16 - number) for number in range(16) for kind in RUNGS]
    best_s = min(_predicted_s(policies, rates) for policies in single if _bytes(policies, buffers)[0] <= budget)
    chosen = choose("auto", COSTS, buffers, TOKENS, budget, PLENTY, rates)
    assert _predicted_s(chosen, rates) < 0.98 * best_s


def test_tiles_go_out_where_copies_have_time_for_some_and_slots_no_room_for_all() -> None:
    """As one long row of an 8B model in the memory that replaying the MLP takes."""
    buffers = _buffers(16)
    rates = _rates(1.2)
    budget = _bytes([LayerPolicy("mlp", "host", 1)] * 16, buffers)[0]
    without = choose("auto", COSTS, buffers, TOKENS, budget, PLENTY, rates)
    assert not any(policy.sent_tiles for policy in without)
    chosen = choose("auto", COSTS, buffers, TOKENS, budget, PLENTY, rates, tile_tokens=TILE_TOKENS)
    assert sum(policy.sent_tiles for policy in chosen) > 0
    device, host = _bytes(chosen, buffers)
    assert device <= budget
    assert _predicted_s(chosen, rates, _tiles()) < 0.95 * _predicted_s(without, rates)
    for limit in (host - 1, host // 2):
        less = choose("auto", COSTS, buffers, TOKENS, budget, limit, rates, tile_tokens=TILE_TOKENS)
        assert _bytes(less, buffers)[1] <= limit
    # Slow copies are filled by what replaces most.
    slow = choose("auto", COSTS, buffers, TOKENS, budget, PLENTY, _rates(30.0), tile_tokens=TILE_TOKENS)
    assert sum(policy.sent_tiles for policy in slow) < sum(policy.sent_tiles for policy in chosen)


def test_no_tiles_where_a_layer_has_none() -> None:
    buffers = _buffers(16)
    without = {level: [replace(layers[0], tile=None), *layers[1:]] for level, layers in buffers.items()}
    budget = _bytes([LayerPolicy("mlp", "host", 1)] * 16, buffers)[0]
    chosen = choose("auto", COSTS, without, TOKENS, budget, PLENTY, _rates(1.2), tile_tokens=TILE_TOKENS)
    assert not any(policy.sent_tiles for policy in chosen)


def test_unequal_layers_fit_by_the_largest() -> None:
    buffers = _buffers(6)
    large = {
        level: LayerBuffers(
            {name: (3 * width, dtype) for name, (width, dtype) in layers[0].tensors.items()}, layers[0].kept
        )
        for level, layers in buffers.items()
    }
    mixed = {level: [*layers[:3], large[level], *layers[4:]] for level, layers in buffers.items()}
    for budget in range(60_000, 600_000, 60_000):
        chosen = choose("auto", COSTS, mixed, TOKENS, budget, PLENTY, _rates(1.0))
        smallest = choose("auto", COSTS, mixed, TOKENS, 0, PLENTY, _rates(1.0))
        assert _bytes(chosen, mixed)[0] <= max(budget, _bytes(smallest, mixed)[0])


def test_names() -> None:
    buffers = _buffers(8)
    rates = _rates(1.0)
    for level in LEVELS:
        assert choose(level, COSTS, buffers, TOKENS, 0) == (LayerPolicy(level),) * 8
    assert choose("saver", COSTS, buffers, TOKENS, PLENTY, PLENTY, rates) == (LayerPolicy("full", "host"),) * 8
    offload = choose("offload", COSTS, buffers, TOKENS, PLENTY, PLENTY, rates)
    assert set(offload) == {LayerPolicy("none", "host")}
    assert choose("auto", COSTS, buffers, TOKENS, PLENTY, PLENTY, rates) == (LayerPolicy("none"),) * 8
    for name in ("saver", "offload"):
        assert choose(name, COSTS, buffers, TOKENS, PLENTY, 0, rates) == (LayerPolicy("full"),) * 8
        assert choose(name, COSTS, buffers, TOKENS, PLENTY) == (LayerPolicy("full"),) * 8
    assert set(NAMED) == {"auto", *LEVELS, "offload", "saver"}


def test_eighty_layers_are_chosen_for_in_a_moment() -> None:
    start_s = time.process_time()
    budget = 20 * _kept_bytes(_buffers(1))["none"]
    choose("auto", COSTS, _buffers(80), TOKENS, budget, PLENTY, _rates(8.0), tile_tokens=TILE_TOKENS)
    assert time.process_time() - start_s < 3.0


@pytest.mark.parametrize("host", [True, False])
def test_stepping_down_ends_at_the_smallest(host: bool) -> None:
    buffers = _buffers(32)
    policies: tuple[LayerPolicy, ...] | None = (LayerPolicy("none"),) * 32
    seen = []
    while policies is not None:
        seen.append(policies)
        policies = step_down(policies, host)
    sizes = [_bytes(policies, buffers)[0] for policies in seen]
    assert len(seen) < 30
    assert sizes == sorted(sizes, reverse=True)
    assert set(seen[-1]) == {LayerPolicy("full", "host" if host else "device")}
    assert {len(policies) for policies in seen} == {32}


@pytest.mark.parametrize("seed", range(10))
def test_stepping_down_from_any_mixture_takes_less(seed: int) -> None:
    chance = random.Random(seed)
    buffers = _buffers(12)
    policies: tuple[LayerPolicy, ...] | None = tuple(chance.choice(RUNGS) for _ in range(12))
    sizes = []
    while policies is not None:
        sizes.append(_bytes(policies, buffers)[0])
        assert len(sizes) < 40
        policies = step_down(policies)
    assert sizes[-1] == min(sizes) == _bytes([LayerPolicy("full", "host")] * 12, buffers)[0]


def test_layers_that_copy_step_down_together() -> None:
    policies = (LayerPolicy("full"),) + (LayerPolicy("none", "host"),) * 5
    assert step_down(policies) == (LayerPolicy("full", "host"),) + (LayerPolicy("none", "host"),) * 5
    assert step_down(policies[1:]) == (LayerPolicy("mlp", "host"),) * 5


def test_tiles_step_down_first() -> None:
    policies = (LayerPolicy("none"), LayerPolicy("mlp", "host", 2), LayerPolicy("mlp", "host", 1))
    assert step_down(policies) == (LayerPolicy("none"), LayerPolicy("mlp", "host"), LayerPolicy("mlp", "host"))


def test_without_pinned_memory_it_replays() -> None:
    policies = (LayerPolicy("none"), LayerPolicy("mlp", "host"))
    assert without_host(policies) == (LayerPolicy("none"), LayerPolicy("full"))
    assert without_host([LayerPolicy("mlp", "device", 2)]) == (LayerPolicy("mlp"),)
    assert step_down(without_host(policies), host=False) == (LayerPolicy("mlp"), LayerPolicy("full"))


def test_plan_adds_up() -> None:
    policies = (LayerPolicy("none"), LayerPolicy("none"))
    found = store_bytes(_buffers(2)["none"], policies, TOKENS)
    assert plan_bytes(found, 10, 100) == 110 + 2 * _kept_bytes(_buffers(1))["none"]


@pytest.mark.parametrize(
    ("policies", "sentence"),
    [
        ([LayerPolicy("none")] * 12 + [LayerPolicy("mlp")] * 20, "Layers: 12 keep everything, 20 recompute the MLP."),
        ([LayerPolicy("none")], "Layers: 1 keep everything."),
        (
            [LayerPolicy("mlp", "host", 1), LayerPolicy("mlp", "host", 2)],
            "Layers: 2 recompute the MLP and keep the rest in system memory, 3 pieces of the MLP in system memory.",
        ),
        (
            [LayerPolicy("none"), LayerPolicy("mlp", "host", 1)],
            "Layers: 1 keep everything, 1 recompute the MLP and keep the rest in system memory, 1 pieces of the "
            "MLP in system memory.",
        ),
        (
            [LayerPolicy("smart"), LayerPolicy("mlp", "host")],
            "Layers: 1 recompute attention and the MLP, 1 recompute the MLP and keep the rest in system memory.",
        ),
    ],
)
def test_sentences(policies: list[LayerPolicy], sentence: str) -> None:
    assert describe(policies) == sentence


def test_every_kind_has_a_phrase() -> None:
    assert len({describe([policy]) for policy in RUNGS}) == len(RUNGS)


def _llama_8b_layer(window: int | None = None) -> LayerShape:
    part = nn.Identity()
    attention = AttentionShape((part,), part, 32, 8, 128, 0.1, window=window)
    return LayerShape("layers.0", attention, MlpShape((part,), part, "silu", 14336), None, None, None, None)


def test_operations_of_a_known_layer() -> None:
    # Llama-3.1-8B: 436 million operations a token in products forward; 16.8 more in attention at 2,048 tokens.
    costs = LayerCosts.of(_llama_8b_layer(), 4096, 1, 2048, 1e6)
    assert costs.forward_s == pytest.approx(436.2 + 16.8, abs=0.1)
    assert costs.backward_s == pytest.approx(436.2 + 2.5 * 16.8, abs=0.1)
    # Replaying all but the last product is the forward pass without it.
    assert costs.replay_s["full"] == pytest.approx(costs.forward_s - 2 * 14336 * 4096 / 1e6)
    assert costs.replay_s["none"] == 0 < costs.replay_s["mlp"] < costs.replay_s["smart"] < costs.replay_s["full"]
    windowed = LayerCosts.of(_llama_8b_layer(window=512), 4096, 1, 8192, 1e6)
    assert windowed.forward_s == pytest.approx(436.2 + 8.4, abs=0.1)


@pytest.mark.parametrize("name", ["qwen3.5", "kimi-linear"])
def test_a_delta_rule_waits_from_chunk_to_chunk(name: str) -> None:
    """A document alone takes as long as several together, and heads in parts as often as there are parts."""
    model = families.make(name)
    rules = DeltaShape | ChannelDeltaShape
    layer = next(layer for layer in recognise(model).layers if isinstance(layer.attention, rules))
    times = {"flops_per_s": 1e15, "document_length": 2048}
    one, four = (LayerCosts.of(layer, 32, tokens, **times) for tokens in (2048, 8192))
    assert one.forward_s == pytest.approx(four.forward_s, rel=0.05)
    assert one.backward_s == pytest.approx(four.backward_s, rel=0.05)
    in_parts = LayerCosts.of(layer, 32, 2048, **times, numbers_at_once=1)
    assert in_parts.forward_s > 1.9 * one.forward_s
    assert in_parts.replay_s["smart"] > 1.9 * one.replay_s["smart"]
    assert in_parts.replay_s["mlp"] == one.replay_s["mlp"]
    # So many operations that waiting is lost in them.
    busy, busier = (LayerCosts.of(layer, 32, tokens, 2048, 1e9) for tokens in (2048, 8192))
    assert busier.forward_s == pytest.approx(4 * busy.forward_s)


def test_an_unfused_mlp_costs_nothing_to_replay() -> None:
    whole = _llama_8b_layer()
    layer = LayerShape("layers.0", whole.attention, Unfused(nn.Identity(), "experts"), None, None, None, None)
    assert LayerCosts.of(layer, 4096, 1, 2048, 1e6).replay_s["mlp"] == 0


def test_rates_of_this_machine() -> None:
    numbers_of_run = torch.get_rng_state()
    assert measure_matmul_rate(CPU, torch.float32, 64, 128, 256) > 1e6
    assert torch.equal(torch.get_rng_state(), numbers_of_run)
    assert host_budget_bytes() > 0


@on_gpu
def test_rates_of_a_gpu_are_found_in_a_moment() -> None:
    device = torch.device("cuda")
    torch.ones(8, 8, device=device).mm(torch.ones(8, 8, device=device))
    start_s = time.perf_counter()
    rates = measure_copy_rate(device)
    copied_s = time.perf_counter()
    flops_per_s = measure_matmul_rate(device, torch.float16, 4096, 4096, 14336)
    assert min(rates) > 5e8
    assert flops_per_s > 1e11
    assert copied_s - start_s < 0.5
    assert time.perf_counter() - copied_s < 0.5
