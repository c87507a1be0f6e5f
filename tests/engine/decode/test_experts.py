"""Mixtures of experts answer fused: in 4 bits, with adapters, beside a training that draws and counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.engine.decode.test_fused import PROMPTS
from tests.engine.fused import families
from tests.engine.fused.test_model import CPU, adapted, compute, rows
from tests.engine.fused.test_packed_experts import in_four_bits
from tests.engine.fused.test_sparse import EXPERTS
from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.kernels import nf4
from tunesmith_engine.kernels.expert_order import order_of
from tunesmith_engine.model.other_weights import remember
from tunesmith_engine.packed.pack import make_packed_batch


def check(model: PeftModel, decoder: FusedDecoder | None = None) -> None:
    """Fail unless a decoder answers as transformers does, with and without the adapter."""
    plain, kinds = PlainDecoder(model, compute()), (True, False)
    expected = [plain.generate(PROMPTS, Sampling(8), (), with_adapter=kind) for kind in kinds]
    decoder = decoder or FusedDecoder.attach(model, compute())
    assert [decoder.generate(PROMPTS, Sampling(8), (), with_adapter=kind) for kind in kinds] == expected
    assert expected[0] != expected[1]


@pytest.mark.parametrize("name", ["qwen2-moe", "gpt-oss"])
def test_experts_in_four_bits_answer_as_their_module_does(tmp_path: Path, name: str) -> None:
    check(in_four_bits(tmp_path, name))


def test_a_step_reads_no_experts_but_the_chosen_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpack, skipped = nf4.dequantise, []

    def spoiled(*given: Any, counts: torch.Tensor | None = None) -> torch.Tensor:
        out = unpack(*given, counts=counts)
        if counts is not None:
            out.view(len(counts), -1)[counts == 0] = torch.nan
            skipped.append(int((counts == 0).sum()))
        return out

    monkeypatch.setattr(nf4, "dequantise", spoiled)
    check(in_four_bits(tmp_path, "qwen2-moe"))
    assert max(skipped) == 2, "a row has two of four"


def test_what_is_unpacked_in_part_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    experts = FusedDecoder.attach(in_four_bits(tmp_path, "qwen2-moe"), compute())._assembly.projections[0].experts
    assert experts is not None
    whole = experts.down.weight.clone()
    part = experts.down._weight.of_rows(order_of(torch.tensor([[0, 2]]), len(whole)))
    assert torch.equal(part[[0, 2]], whole[[0, 2]])
    part.fill_(torch.nan)
    assert torch.equal(experts.down.weight, whole)


def test_experts_with_adapters_of_their_own_answer_as_transformers_does() -> None:
    check(adapted("qwen3-moe", target_parameters=EXPERTS))


def test_a_router_that_draws_in_training_chooses_the_likeliest_for_answers() -> None:
    model = adapted("phimoe", target_modules=["q_proj", "o_proj"], target_parameters=EXPERTS).train()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    check(model)
    assert torch.equal(torch.get_rng_state(), before), "the training draws what it would have drawn"
    assert all(module.training for module in model.modules())


def test_answers_do_not_count_for_an_even_use_of_the_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    make = families.make
    monkeypatch.setattr(
        families, "make", lambda name: make(name, output_router_logits=True, router_aux_loss_coef=0.5)
    )
    model = adapted("mixtral")
    twin = FusedModel.attach(model, compute(), 64, "full")
    batch = make_packed_batch(rows(), CPU)
    twin.loss(batch)
    before = twin.balance(batch)
    check(model, FusedDecoder(model, twin.assembly))
    assert twin.balance(batch) == before
    assert float(before) > 0


def test_a_run_that_continues_compares_with_the_routers_that_it_began_with() -> None:
    model = adapted("qwen3-moe")
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    assert any("mlp.gate" in name for name in trained), "the routers have adapters"
    remember(model, trained, on_device=True)
    for parameter in trained.values():
        parameter.data = -parameter.data.roll(1)
    check(model)
