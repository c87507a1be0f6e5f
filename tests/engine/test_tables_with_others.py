"""Embeddings and new words trained together with other things: preferences, adapters to start from, packed bases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine import causal_types
from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.distillation.test_gkd_runs import gkd_spec, teacher
from tests.engine.exports import export
from tests.engine.preference.test_preference_runs import pair_spec
from tests.engine.reinforcement.test_reward_runs import reward_spec
from tests.engine.test_continued import HELD_OUT, continued, make_adapter, weights_of
from tests.engine.test_packed_weights import packed_model
from tests.engine.test_trained_tables import WORDS, changed, rare
from tunesmith_core import adapter_folders
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter, compare_with_others, trainable
from tunesmith_engine.model.other_weights import asked_with, start_of

__all__ = ["gkd_spec", "packed_model", "pair_spec", "reward_spec", "teacher"]
MakeSpec = Callable[..., RunSpec]
NewRun = Callable[[RunSpec], Run]

ALL_AND_NEW = [("new", True), rare("new", False), rare("all", True), rare("all", False)]


@pytest.mark.parametrize(("embeddings", "kernels"), ALL_AND_NEW)
def test_the_reference_has_the_embeddings_of_before(
    embeddings: str, kernels: bool, pair_spec: MakeSpec, new_run: NewRun
) -> None:
    """Computed once before the first update, the reference is what it is when each step asks for it."""
    losses = []
    for how in ("each-step", "once"):
        spec = changed(pair_spec("dpo", hardware={"kernels": kernels}), embeddings, WORDS)
        spec.objective.reference = how
        spec.optimizer.learning_rate, spec.optimizer.embedding_rate, spec.schedule.max_steps = 1e-2, 1.0, 3
        run = new_run(spec)
        assert train(run) == 0
        losses.append(step_losses(run))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][0] == pytest.approx(0.693147, abs=1e-5)
    assert abs(losses[0][-1] - losses[0][0]) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize(("embeddings", "kernels"), ALL_AND_NEW)
def test_a_run_continues_them_with_their_words(
    embeddings: str, kernels: bool, tiny_spec: MakeSpec, new_run: NewRun
) -> None:
    sections: dict[str, Any] = {"hardware": {"kernels": kernels}, "evaluation": HELD_OUT}
    first = new_run(changed(tiny_spec(**sections), embeddings, WORDS))
    assert train(first) == 0
    spec = continued(tiny_spec(**sections), first.adapter_path)
    assert (spec.adapter.embeddings, spec.model.new_tokens) == (embeddings, WORDS)
    whole, halves = new_run(spec), new_run(spec)
    assert train(whole) == 0
    assert events(whole, "eval")[0].data["loss"] == pytest.approx(result_of(first)["eval_loss_after"], rel=1e-5)
    assert result_of(whole)["eval_loss_after"] < result_of(first)["eval_loss_after"]
    assert weights_of(whole).keys() == weights_of(first).keys()
    assert train(halves, lambda host: after_step(host, 3, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(halves) == 0
    assert step_losses(halves) == step_losses(whole)
    files = [(run.adapter_path / adapter_folders.WEIGHTS).read_bytes() for run in (whole, halves)]
    assert files[0] == files[1]


@pytest.mark.parametrize("tied", [False, True])
def test_the_start_is_asked_in_place_of_what_was_trained(
    tied: bool, tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path
) -> None:
    base, saved = tiny_model, {"modules_to_save": ["embed_tokens", "lm_head"]}
    if tied:
        base = causal_types.write_model("gemma3_text", tmp_path / "model", tiny_model)
        saved = {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}
    folder = make_adapter(base, tmp_path / "before", **saved)
    spec = continued(tiny_spec(model={"path": str(base)}), folder)
    assert spec.adapter.embeddings == "all"
    model = attach_adapter(load_model(base, choose_compute(spec), False), spec).eval()
    compare_with_others(model, spec)
    ids, start = torch.arange(3, 30)[None], start_of(model)
    assert start is not None
    with torch.no_grad():
        began = model(input_ids=ids).logits
        for parameter in trainable(model).values():
            parameter.data = parameter.data + 0.1
        trained = model(input_ids=ids).logits
        with asked_with(model, start):
            assert torch.equal(model(input_ids=ids).logits, began)
        assert torch.equal(model(input_ids=ids).logits, trained)
    assert not torch.allclose(began, trained, atol=1e-2)
    whole = [name for name in trainable(model) if "modules_to_save" in name]
    assert len(whole) == (1 if tied else 2)


@pytest.mark.long
@pytest.mark.parametrize("kernels", [True, False])
def test_a_packed_base_gets_new_words(
    kernels: bool,
    packed_model: Callable[..., tuple[Path, Any]],
    tiny_spec: MakeSpec,
    new_run: NewRun,
    tmp_path: Path,
) -> None:
    folder, meant = packed_model("awq")
    spec = changed(tiny_spec(model={"path": str(folder)}, evaluation=HELD_OUT), "all", WORDS)
    spec.hardware.kernels = kernels
    run = new_run(spec)
    assert train(run) == 0
    assert result_of(run)["eval_loss_after"] < result_of(run)["eval_loss_before"]
    assert export(run, tmp_path / "merged")["proof"]["passed"] is True
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert len(merged.lm_head.weight) == merged.config.vocab_size > len(meant["lm_head.weight"])
    assert "plus one" in AutoTokenizer.from_pretrained(tmp_path / "merged").get_vocab()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_base_of_few_bits_keeps_its_tables_wide(kind: str, tiny_spec: MakeSpec, new_run: NewRun) -> None:
    spec = changed(tiny_spec(quantization={"kind": kind}, evaluation=HELD_OUT), "all", WORDS)
    run = new_run(spec)
    assert train(run) == 0
    assert result_of(run)["eval_loss_after"] < result_of(run)["eval_loss_before"]


@pytest.mark.long
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("kind", ["kto", "grpo"])
def test_other_objectives_with_a_reference_resume_to_the_bit(
    kind: str, kernels: bool, pair_spec: MakeSpec, reward_spec: MakeSpec, new_run: NewRun
) -> None:
    spec = (reward_spec if kind == "grpo" else pair_spec)(kind, hardware={"kernels": kernels}, evaluation=HELD_OUT)
    spec = changed(spec, "new", WORDS)
    spec.objective.beta = 0.1
    whole, halves = new_run(spec), new_run(spec)
    assert train(whole) == 0
    assert not [event for event in events(whole, "warning") if event.data["code"] == "not-fused"]
    assert train(halves, lambda host: after_step(host, 3, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(halves) == 0
    assert step_losses(halves) == step_losses(whole)
    files = [(run.adapter_path / adapter_folders.WEIGHTS).read_bytes() for run in (whole, halves)]
    assert files[0] == files[1]


@pytest.mark.long
def test_a_bigger_model_teaches_embeddings(gkd_spec: MakeSpec, new_run: NewRun) -> None:
    losses = []
    for rate in (1e-9, 1.0):
        spec = changed(gkd_spec(), "all", [])
        spec.optimizer.embedding_rate = rate
        run = new_run(spec)
        assert train(run) == 0
        losses.append(step_losses(run))
        assert any("embed_tokens" in name for name in weights_of(run))
    assert losses[0][0] == losses[1][0]
    assert losses[0][-1] > losses[1][-1]
