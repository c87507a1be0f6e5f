"""Plans for memory that is short: what has room, and when smaller micro-batches serve better than computing again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.engine.fused import families
from tests.engine.fused.test_model import adapted, compute, rows
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_engine.data import Example
from tunesmith_engine.fused.assembly import Assembly
from tunesmith_engine.fused.memory import MemoryPlan, MemoryPlanner
from tunesmith_engine.fused.rates import CopyRates
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.tiling import FEW_LOGITS, SMALL, WHOLE
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.train.fused_path import FusedPath, RowLengths
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.oom import MemoryLadder
from tunesmith_engine.train.optim import Updater

MOST_TOKENS, LONGEST_TOKENS = 8192, 1024
SLOW, FAST = 1e6, 1e18
"""Operations per second of a machine on which arithmetic is everything, and of one on which it is nothing."""


@pytest.fixture(scope="module")
def assembly() -> Iterator[Assembly]:
    model = adapted("llama")
    made = Assembly(model, recognise(model), compute())
    yield made
    made.release()


def planner_for(
    assembly: Assembly,
    memory_bytes: int | None,
    flops_per_s: float = SLOW,
    longest_tokens: int | None = LONGEST_TOKENS,
) -> MemoryPlanner:
    planner = MemoryPlanner(assembly, MOST_TOKENS, memory_bytes, 8.0, longest_tokens)
    planner._flops_per_s = lambda _: flops_per_s  # type: ignore[method-assign]
    return planner


def needed_bytes(assembly: Assembly, policy: str) -> int:
    return planner_for(assembly, None).plan(policy).peak_bytes


def levels(plan: MemoryPlan) -> set[str]:
    return {policy.level for policy in plan.policies}


def test_what_has_room_is_kept_and_nothing_divided(assembly: Assembly) -> None:
    plan = planner_for(assembly, needed_bytes(assembly, "none")).plan("auto")
    assert (plan.capacity_tokens, levels(plan)) == (MOST_TOKENS, {"none"})


def test_fewer_rows_at_a_time_rather_than_computing_again(assembly: Assembly) -> None:
    memory = needed_bytes(assembly, "full")
    plan = planner_for(assembly, memory).plan("auto")
    assert plan.peak_bytes <= memory
    assert LONGEST_TOKENS <= plan.capacity_tokens < MOST_TOKENS
    assert plan.capacity_tokens % LONGEST_TOKENS == 0
    undivided = planner_for(assembly, memory, longest_tokens=None).plan("auto")
    assert levels(plan) == {"none"} != levels(undivided)


def test_long_rows_cost_the_same_in_micro_batches_of_every_size(assembly: Assembly) -> None:
    """Else a micro-batch of one long row would look dearer than one of two."""
    planner = planner_for(assembly, None, longest_tokens=MOST_TOKENS // 2)
    one, two = (planner._costs(capacity)[0].forward_s / capacity for capacity in (MOST_TOKENS // 2, MOST_TOKENS))
    assert one == pytest.approx(two)
    alone = planner_for(assembly, None, longest_tokens=MOST_TOKENS)
    assert alone._costs(MOST_TOKENS)[0].forward_s > 1.1 * planner._costs(MOST_TOKENS)[0].forward_s
    assert alone.s_per_token == planner.s_per_token


@pytest.mark.parametrize(("flops_per_s", "longest_tokens", "name"), [
    (FAST, LONGEST_TOKENS, "auto"),  # every micro-batch costs more than what is computed again
    (SLOW, MOST_TOKENS, "auto"),  # a row is never divided
    (SLOW, None, "auto"),
    (SLOW, LONGEST_TOKENS, "full"),  # a policy that was asked for by name
])  # fmt: skip
def test_when_micro_batches_stay_as_large_as_asked_for(
    assembly: Assembly, flops_per_s: float, longest_tokens: int | None, name: str
) -> None:
    plan = planner_for(assembly, needed_bytes(assembly, "full"), flops_per_s, longest_tokens).plan(name)
    assert plan.capacity_tokens == MOST_TOKENS


def test_what_can_not_be_captured_is_not_divided_below_what_the_host_can_launch() -> None:
    model = adapted("llama", use_dora=True, lora_dropout=0.1)
    slow_to_launch = Assembly(model, recognise(model), compute())
    memory = needed_bytes(slow_to_launch, "full")
    # Eight micro-batches that take a millisecond each would wait for the host.
    plan = planner_for(slow_to_launch, memory, 1e13).plan("auto")
    assert not slow_to_launch.capturable
    assert plan.capacity_tokens == MOST_TOKENS


def test_where_there_is_room_all_policies_cut_alike(assembly: Assembly) -> None:
    """So they give the same bits; only a policy that has too little room cuts smaller."""
    plans = [planner_for(assembly, None).plan(name) for name in ("auto", "none", "mlp", "smart", "full", "offload")]
    assert {plan.tiling for plan in plans} == {WHOLE}
    assert planner_for(assembly, plans[-2].peak_bytes - 1).plan("full").tiling != WHOLE


def test_fewer_logits_at_a_time_before_smaller_pieces_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large vocabulary they are hundreds of MiB, and cost nothing; heads of a delta rule in parts do."""
    monkeypatch.setitem(families.SIZES, "vocab_size", 20_000)
    model = adapted("llama")
    made = Assembly(model, recognise(model), compute())
    try:
        planner = planner_for(made, None, longest_tokens=None)
        small, few = (planner._chosen("none", MOST_TOKENS, tiling, 0) for tiling in (SMALL, FEW_LOGITS))
        assert few.peak_bytes < small.peak_bytes
        plan = planner_for(made, few.peak_bytes, longest_tokens=None).plan("auto")
        assert (plan.policies, plan.tiling) == (few.policies, FEW_LOGITS)
    finally:
        made.release()


def test_where_nothing_fits_the_least_is_planned(assembly: Assembly) -> None:
    plan = planner_for(assembly, 1).plan("auto")
    assert plan.capacity_tokens == LONGEST_TOKENS
    assert levels(plan) == {"full"}


def test_divided_micro_batches_give_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryPlanner, "_flops_per_s", lambda *_: SLOW)
    monkeypatch.setattr("tunesmith_engine.fused.memory.LEAST_TOKENS", 1)
    examples = rows((40, 40, 17, 40, 40, 23))
    whole_loss, whole, whole_path = trained(examples, None)
    loss, gradients, path = trained(examples, whole_path.plan_bytes // 2)
    assert len(path.portions(examples)) > 1 == len(whole_path.portions(examples))
    assert any("at once" in line for line in path.report)
    assert not any("at once" in line for line in whole_path.report)
    assert torch.isclose(loss, whole_loss, rtol=1e-6)
    assert (gradients - whole).norm() < 1e-6 * whole.norm()
    warnings: list[str] = []
    ladder = MemoryLadder(4, lambda _, words: warnings.append(words))
    ladder.path = path
    while path.keep_less():
        pass
    # Two rows at a time are what the plan takes anyway.
    ladder.step_down("No room.")
    assert warnings == ["No room. Continuing with micro-batches of 1."]
    assert max(sum(len(row.input_ids) for row in portion) for portion in path.portions(examples)) == 40


def trained(examples: list[Example], memory_bytes: int | None) -> tuple[torch.Tensor, torch.Tensor, FusedPath]:
    """Return loss, gradients and the path of one step."""
    model = adapted("llama")
    lengths = [len(row.input_ids) for row in examples]
    path = FusedPath(model, compute(), RowLengths(max(lengths), sum(lengths)), len(examples), memory_bytes=memory_bytes)
    assert path.arena is not None
    updater = Updater(trainable(model), OptimizerSpec(), compute().device, compute().dtype, path.arena)
    loss = torch.zeros(())
    for portion in path.portions(examples):
        loss += path.add_gradients(portion, Totals.of(examples), updater)[0]
    return loss, path.arena.gradients.clone(), path


@pytest.mark.parametrize("steps_vary", [False, True])
def test_tiles_are_sent_only_where_steps_fill_the_micro_batch(assembly: Assembly, steps_vary: bool) -> None:
    room = needed_bytes(assembly, "full")
    sent = []
    for share in (1.0, 1.05, 1.1, 1.2):
        planner = MemoryPlanner(assembly, MOST_TOKENS, round(room * share), 8.0, None, steps_vary)
        planner._flops_per_s = lambda _: SLOW  # type: ignore[method-assign]
        planner._rates = CopyRates(1e9, 1e9)
        sent += [policy.sent_tiles for policy in planner.plan("auto").policies]
    assert any(sent) == (not steps_vary)


def test_layers_that_differ_are_planned_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of Qwen3.5 with attention leaves other bytes than one with a delta rule, and is computed again sooner."""
    model = adapted("qwen3.5")
    made = Assembly(model, recognise(model), compute())
    try:
        least, most = (needed_bytes(made, policy) for policy in ("full", "none"))
        gains = []
        for share in (0.2, 0.4, 0.6, 0.8):
            memory = round(least + share * (most - least))
            planner = planner_for(made, memory, longest_tokens=None)
            plan = planner.plan("auto")
            monkeypatch.setattr(MemoryPlanner, "_refined", lambda _, plan: plan)
            by_averages = planner.plan("auto")
            monkeypatch.undo()
            assert plan.peak_bytes <= memory
            gains.append(1 - planner.step_s(plan) / planner.step_s(by_averages))
        assert min(gains) >= 0
        assert max(gains) > 0.01
    finally:
        made.release()
