"""Embedding and output layer trained beside the adapter, fused: PEFT's loss and gradients, whole or by rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import PeftModel

from tests.engine.fused.test_model import CPU, adapted, compute, fused, num_trained, reference, row_loss, rows
from tunesmith_core.spec import RunSpec
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.model.saved_modules import plain
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.train.kernel_check import check_kernels

NEW_ROWS = [5, 17, 40, 159]
WHOLE: dict[str, Any] = {"modules_to_save": ["model.embed_tokens", "lm_head"]}
WHOLE_TIED: dict[str, Any] = {"modules_to_save": ["model.embed_tokens"], "ensure_weight_tying": True}
ROWS: dict[str, Any] = {"trainable_token_indices": {"model.embed_tokens": NEW_ROWS, "lm_head": NEW_ROWS}}
ROWS_TIED: dict[str, Any] = {"trainable_token_indices": {"model.embed_tokens": NEW_ROWS}}


def rare(*values: Any) -> Any:  # Any: pytest.param has no public type
    return pytest.param(*values, marks=pytest.mark.long)


def is_tied(name: str) -> bool:
    base = adapted(name).get_base_model()
    return base.get_input_embeddings().weight is base.get_output_embeddings().weight


def with_tables(name: str, kind: str) -> PeftModel:
    tied = is_tied(name)
    settings = (WHOLE_TIED if tied else WHOLE) if kind == "whole" else (ROWS_TIED if tied else ROWS)
    return adapted(name, **{key: list(value) if isinstance(value, list) else value for key, value in settings.items()})


def tables_of(gradients: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in gradients if "modules_to_save" in name or "trainable_tokens" in name]


@pytest.mark.parametrize("kind", ["whole", "rows"])
@pytest.mark.parametrize("name", ["llama", "gemma2", *(rare(name) for name in ("cohere", "granite", "qwen3"))])
def test_loss_and_gradients_are_those_of_peft(name: str, kind: str) -> None:
    model = with_tables(name, kind)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert twin.report[0].startswith(f"{len(twin.plan.policies)} of")
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert gradients.keys() == expected.keys()
    assert len(tables_of(gradients)) == 2 - is_tied(name)
    for parameter, gradient in gradients.items():
        error = (gradient - expected[parameter]).norm() / expected[parameter].norm().clamp_min(1e-12)
        assert error < 2e-4, (parameter, error)


@pytest.mark.parametrize("embeddings", ["frozen", "all"])
def test_the_kernel_of_the_gradient_is_proven_where_it_runs(embeddings: str) -> None:
    spec = RunSpec()
    spec.adapter.embeddings = embeddings
    named = " ".join(check_kernels(recognise(with_tables("llama", "whole")), compute(), spec, 64).twins)
    assert ("embedding_gradient" in named) == (embeddings == "all")
    assert "norm_gradient" not in named


@pytest.mark.parametrize("table", ["embed_tokens", "lm_head"])
def test_one_table_may_be_trained_alone(table: str) -> None:
    model = adapted("llama", modules_to_save=[table])
    _, expected = reference(model, rows())
    _, _, gradients = fused(model, rows())
    (name,) = tables_of(gradients)
    assert table in name
    for parameter, gradient in gradients.items():
        assert torch.allclose(gradient, expected[parameter].float(), rtol=1e-3, atol=1e-6), parameter


def test_padding_teaches_the_embedding_nothing() -> None:
    for kind in ("whole", "rows"):
        model = with_tables("llama", kind)
        embedding = model.get_base_model().get_input_embeddings()
        inner = embedding.modules_to_save["default"] if kind == "whole" else plain(embedding)
        padding = next(token for token in NEW_ROWS if any(token in example.input_ids for example in rows()))
        inner.padding_idx = plain(embedding).padding_idx = padding
        _, expected = reference(model, rows())
        _, _, gradients = fused(model, rows())
        name = next(name for name in tables_of(gradients) if "embed_tokens" in name)
        place = padding if kind == "whole" else NEW_ROWS.index(padding)
        assert not expected[name][place].any()
        assert torch.allclose(gradients[name], expected[name].float(), rtol=1e-3, atol=1e-6)
        assert gradients[name].any()


@pytest.mark.parametrize("kind", ["whole", "rows"])
@pytest.mark.parametrize("policy", ["full", rare("offload")])
def test_no_policy_changes_a_bit(kind: str, policy: str) -> None:
    _, kept_loss, kept = fused(with_tables("llama", kind), rows(), "none")
    _, loss, gradients = fused(with_tables("llama", kind), rows(), policy)
    assert torch.equal(loss, kept_loss)
    assert all(torch.equal(gradients[parameter], kept[parameter]) for parameter in kept)


@pytest.mark.parametrize("kind", ["whole", "rows"])
@pytest.mark.parametrize("name", ["llama", rare("gemma2")])
def test_new_weights_count_and_the_base_model_stays(name: str, kind: str) -> None:
    model = with_tables(name, kind)
    frozen = ("original", "base_layer")
    before = {key: value.clone() for key, value in model.state_dict().items() if any(part in key for part in frozen)}
    twin, _, _ = fused(model, rows())
    twin.arena.weights.mul_(1.1)
    twin.refresh()
    batch = make_packed_batch(rows(), CPU)
    expected, _ = reference(model, rows())
    assert torch.isclose(twin.loss(batch).double() / num_trained(rows()), expected, rtol=1e-5)
    with model.disable_adapter(), torch.no_grad():
        base = sum(row_loss(model, example) for example in rows())
    assert torch.isclose(twin.loss(batch, with_adapter=False).double(), base, rtol=1e-5)
    assert not torch.isclose(base, expected * num_trained(rows()), rtol=1e-3)
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in before.items())


@pytest.mark.parametrize("kind", ["whole", "rows"])
def test_the_gradient_of_an_objective_is_the_same(kind: str) -> None:
    model = with_tables("llama", kind)
    twin, _, expected = fused(model, rows())
    twin.arena.gradients.zero_()
    batch = make_packed_batch(rows(), CPU)
    twin.objective_and_gradients(batch, lambda found: -found.sum().reshape(1) / num_trained(rows()))
    for parameter, gradient in expected.items():
        assert torch.allclose(twin.arena.parameters[parameter].grad, gradient, rtol=1e-4, atol=1e-6), parameter


@pytest.mark.parametrize("kind", ["whole", "rows"])
def test_answers_come_from_the_same_weights(kind: str) -> None:
    model = with_tables("llama", kind)
    twin = FusedModel.attach(model, compute(), 64)
    # The decoder compares itself with transformers, and refuses what comes to something else.
    assert FusedDecoder(model, twin.assembly).name == "fused"


@pytest.mark.parametrize("kind", ["whole", "rows"])
def test_sixteen_bits_are_as_near_to_the_exact_gradient_as_plain_ones(kind: str) -> None:
    exact = with_tables("llama", kind)
    _, expected = reference(exact, rows())
    near = with_tables("llama", kind)
    for parameter in near.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    twin = FusedModel.attach(near, compute(torch.bfloat16), 64)
    twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
    for parameter in tables_of(expected):
        error = (twin.arena.parameters[parameter].grad - expected[parameter]).norm() / expected[parameter].norm()
        assert error < 0.05, (parameter, error)
