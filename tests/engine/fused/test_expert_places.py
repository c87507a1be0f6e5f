"""Experts in 4 bits in the computer's memory: the same bits from there, and only as many as have no room elsewhere."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.engine.fused import families
from tests.engine.fused.fake_host import FakeHost
from tests.engine.fused.fake_host import host as host
from tests.engine.fused.test_model import CAPACITY, CPU, compute, fused, num_trained, row_loss, rows
from tests.engine.fused.test_packed_experts import SIZES, in_four_bits, saved
from tunesmith_core.expert_memory import code_bytes
from tunesmith_core.fused_memory import weight_bytes
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.spec import RunSpec
from tunesmith_engine.fused.memory import MemoryPlan, MemoryPlanner
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.rates import CopyRates
from tunesmith_engine.host_memory import PinningError
from tunesmith_engine.model import packed_experts
from tunesmith_engine.model.expert_places import ExpertPlaces, HostRoom, host_room, is_on_host
from tunesmith_engine.model.load import load_model
from tunesmith_engine.packed.pack import make_packed_batch

FAMILIES = ("qwen2-moe", "gpt-oss")
"""One in NF4, one in MXFP4."""


def placed(twin: FusedModel, experts_on_host: int) -> None:
    twin._change(dataclasses.replace(twin.plan, experts_on_host=experts_on_host))


def step(twin: FusedModel) -> list[torch.Tensor]:
    """Return loss and gradients of all rows."""
    assert twin.arena is not None
    twin.arena.gradients.zero_()
    loss = twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
    return [loss, twin.arena.gradients.clone()]


def equal(ones: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("policy", ["none", "full"])
@pytest.mark.parametrize("with_experts", [True, False], ids=["adapted", "frozen"])
@pytest.mark.parametrize("name", FAMILIES)
def test_experts_give_the_same_bits_from_either_place(
    tmp_path: Path, host: FakeHost, name: str, with_experts: bool, policy: str
) -> None:
    model = in_four_bits(tmp_path, name, with_experts=with_experts)
    twin, *_ = fused(model, rows(), policy)
    of_layers = twin.assembly.places.experts.layer_bytes
    kept = step(twin), row_loss(model, rows()[0]), decoded(model)
    assert len(of_layers) == 2
    assert not any("experts" in line for line in twin.report)
    for number in (1, 2, 0):
        placed(twin, number)
        assert host.num_bytes == sum(of_layers[2 - number :])
        said = f"The experts of {number} of 2 layers are kept in system memory."
        assert (said in twin.report) == (number > 0)
        # By the fused path, by the module's own code, and by the code that writes answers.
        assert equal(step(twin), kept[0])
        assert torch.equal(row_loss(model, rows()[0]), kept[1])
        assert torch.equal(decoded(model), kept[2])


def decoded(model: PeftModel) -> torch.Tensor:
    """Return tokens that a model writes, and how likely it found them."""
    ids = torch.from_numpy(rows()[0].input_ids)[None].long()
    with torch.no_grad():
        settings = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
        written = model.generate(input_ids=ids, **settings)
    return torch.cat([written.sequences.float(), torch.stack(written.logits).flatten(1).float().T.reshape(1, -1)], 1)


# Planning


@pytest.fixture
def twin(tmp_path: Path, host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[FusedModel]:
    """A fused model of eight layers with experts."""
    monkeypatch.setitem(SIZES, "num_hidden_layers", 8)
    made = FusedModel.attach(in_four_bits(tmp_path, "qwen2-moe"), compute(), CAPACITY)
    yield made
    made.detach()


RATES = CopyRates(1e9, 1e9)


def planner_for(twin: FusedModel, memory_bytes: int | None, rates: CopyRates | None = RATES) -> MemoryPlanner:
    planner = MemoryPlanner(twin.assembly, CAPACITY, memory_bytes, 8.0)
    planner._flops_per_s = lambda _: 1e9  # type: ignore[method-assign]
    planner._rates, planner._pins = rates, rates is not None
    return planner


def least(twin: FusedModel, experts_on_host: int = 0) -> MemoryPlan:
    """Return the plan that takes the least with the experts of so many layers out."""
    return planner_for(twin, 1)._with_experts_out("auto", experts_on_host)


def test_more_experts_leave_only_where_nothing_fits_beside_them(twin: FusedModel) -> None:
    sizes = [least(twin, number).peak_bytes for number in (0, 2, 4, 6, 8)]
    of_layer = twin.assembly.places.experts.layer_bytes[0]
    assert [one - other for one, other in itertools.pairwise(sizes)] == [2 * of_layer] * 4
    assert planner_for(twin, None).plan("auto").experts_on_host == 0
    for memory, number in zip(sizes, (0, 2, 4, 6, 8), strict=True):
        plan = planner_for(twin, memory).plan("auto")
        assert plan.experts_on_host == number
        assert plan.peak_bytes <= memory
        assert planner_for(twin, memory + 1).plan("auto").experts_on_host == number
        # Before them go activations.
        assert planner_for(twin, memory + 2 * of_layer).plan("auto").experts_on_host < max(number, 1)
    assert planner_for(twin, 1).plan("auto").experts_on_host == 8


def test_no_more_experts_leave_than_may_be_pinned(twin: FusedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    of_layer = twin.assembly.places.experts.layer_bytes[0]
    monkeypatch.setattr("tunesmith_engine.fused.memory.host_budget_bytes", lambda: 5 * of_layer)
    assert planner_for(twin, 1).plan("auto").experts_on_host == 4
    # What lies there already needs no more.
    twin.assembly.places.experts.place(3)
    assert planner_for(twin, 1).plan("auto").experts_on_host == 8
    assert planner_for(twin, 1, rates=None).plan("auto").experts_on_host == 2


def test_what_left_while_loading_counts_as_if_it_were_there(twin: FusedModel) -> None:
    def peaks() -> list[int]:
        planner = planner_for(twin, None)
        return [planner._with_experts_out("auto", number).peak_bytes for number in (0, 8)]

    before, num_bytes = peaks(), twin.assembly.places.experts.bytes_of(8)
    twin.assembly.places.experts.place(8)
    # On a GPU what has left is no longer allocated.
    assert [there - here for here, there in zip(before, peaks(), strict=True)] == [num_bytes] * 2


def test_experts_that_cross_the_bus_cost_time(twin: FusedModel) -> None:
    planner = planner_for(twin, 1, CopyRates(1.0, 1e6))
    plans = [planner._with_experts_out("full", number) for number in (0, 1, 8)]
    none, one, all_of_them = (planner.step_s(plan) for plan in plans)
    of_layer = twin.assembly.places.experts.layer_bytes[0]
    assert one - none == pytest.approx(of_layer / 1e6)
    assert all_of_them - none == pytest.approx(15 * of_layer / 1e6)


def test_experts_leave_at_last_when_a_step_finds_no_memory(twin: FusedModel) -> None:
    twin._planner = planner_for(twin, None)
    said = []
    while (sentence := twin.step_down()) is not None:
        said.append(str(sentence))
    assert said[-4:] == [
        f"The experts of {number} of 8 layers are kept in system memory." for number in (2, 4, 6, 8)
    ]
    assert all(line.startswith("Layers: ") for line in said[:-4])
    assert twin.plan.experts_on_host == twin.assembly.places.experts.num_on_host == 8


def test_micro_batches_of_another_size_leave_experts_where_they_are(twin: FusedModel) -> None:
    placed(twin, 6)
    twin.resize(CAPACITY // 2)
    assert twin.plan.experts_on_host == 6
    with twin.out_of_the_way():
        assert twin.assembly.places.experts.num_on_host == 6


def test_a_machine_that_pins_no_more_keeps_what_has_left(twin: FusedModel, host: FakeHost) -> None:
    kept = step(twin)
    # The second stack of the fourth layer is refused.
    host.most_tables = 7
    placed(twin, 8)
    assert twin.plan.experts_on_host == 3
    assert host.num_bytes == twin.assembly.places.experts.bytes_of(3)
    assert equal(step(twin), kept)
    assert twin._planner.plan("auto").experts_on_host == 0


# Loading


class Watch:
    """Counts how many stacks lie on the device while a model is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stacks: list[Any] = []
        self.most = 0
        self._pack = packed_experts._packed
        monkeypatch.setattr(packed_experts, "_packed", self)

    def __call__(self, whole: Any) -> Any:
        found = self._pack(whole)
        self._stacks.append(found)
        self.most = max(self.most, sum(not is_on_host(stack) for stack in self._stacks))
        return found


@pytest.mark.parametrize("name", FAMILIES)
def test_a_load_never_holds_two_stacks_where_experts_leave(
    tmp_path: Path, host: FakeHost, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    in_four_bits(tmp_path, name)
    watch = Watch(monkeypatch)
    model = load_model(tmp_path, compute(), four_bit=True, host_room=HostRoom(1 << 30))
    places = ExpertPlaces(model, CPU)
    assert watch.most == 1
    assert host.num_bytes == places.host_bytes == sum(places.layer_bytes) > 0
    assert places.num_on_host == 2
    staying = load_model(tmp_path, compute(), four_bit=True)
    assert watch.most > 1
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, staying(input_ids=ids).logits)


def test_what_has_no_room_stays_on_the_device(tmp_path: Path, host: FakeHost) -> None:
    in_four_bits(tmp_path, "qwen2-moe")
    of_layer = ExpertPlaces(load_model(tmp_path, compute(), four_bit=True), CPU).layer_bytes[0]
    first = load_model(tmp_path, compute(), four_bit=True, host_room=HostRoom(of_layer))
    assert host.num_bytes == of_layer
    places = ExpertPlaces(first, CPU)
    assert places.report == ["The experts of 1 of 2 layers are kept in system memory."]
    # A plan has the last layers there, of which this is none.
    assert places.num_on_host == 0
    places.place(1)
    assert (places.num_on_host, host.num_bytes) == (1, of_layer)
    host.num_bytes, host.num_tables, host.most_tables = 0, 0, 1
    load_model(tmp_path, compute(), four_bit=True, host_room=HostRoom(1 << 30))
    assert 0 < host.num_bytes < of_layer


def test_experts_leave_as_they_are_read_where_a_step_has_no_room_beside_them(tmp_path: Path, host: FakeHost) -> None:
    saved(families.make("qwen2-moe", **SIZES), tmp_path)
    spec = RunSpec()
    spec.quantization.kind, spec.data.context_length = "nf4", 64
    card = read_model_card(tmp_path)
    assert host_room(tmp_path, spec, compute())._left == 0
    host.free_bytes = 1 << 20
    assert host_room(tmp_path, spec, compute())._left == code_bytes(card, 2)
    spec.quantization.kind = "none"
    assert host_room(tmp_path, spec, compute())._left == 0


@pytest.mark.parametrize("name", families.marked(families.SPARSE))
def test_what_leaves_is_what_a_plan_counts(tmp_path: Path, host: FakeHost, name: str) -> None:
    folder = saved(families.make(name), tmp_path)
    places, card = ExpertPlaces(load_model(folder, compute(), four_bit=True), CPU), read_model_card(folder)
    num_layers = len(places.layer_bytes)
    assert sum(places.layer_bytes) == code_bytes(card, num_layers) > 0
    spec = RunSpec()
    spec.quantization.kind = "nf4"
    taken = [weight_bytes(spec, card, 4, False, number) for number in (0, num_layers)]
    assert taken[0] - taken[1] == places.bytes_of(num_layers)
    host.most_tables = host.num_tables
    with pytest.raises(PinningError):
        places.place(num_layers)
