"""A mixer, or a layer, that isn't understood runs as written between fused parts: same gradients, nothing leaks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.fused import families
from tests.engine.fused.full_models import full_model, fused_gradients, plain_gradients
from tests.engine.fused.test_model import CAPACITY, CPU, adapted, compute, fused, num_trained, reference, rows
from tests.engine.fused.test_variants import assert_equal
from tunesmith_core.sampling import Sampling
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.decode import open_decoder
from tunesmith_engine.fused.model import FusedModel
from tunesmith_engine.fused.plain_memory import Growth
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.fused.recognise.handed import Handing
from tunesmith_engine.packed.pack import make_packed_batch
from tunesmith_engine.shapes import MlpShape, NotFusableError, Unfused, UnfusedLayer

MIXERS, LAYERS = families.MIXERS_AS_WRITTEN, families.LAYERS_AS_WRITTEN
QUICK = ("diffllama", "gpt-neox-japanese", "falcon-alibi")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in (*MIXERS, *LAYERS)]
MORE = ("qwen3-next", "mamba2", "falcon-h1")
PAIR = ("diffllama", "gpt-neox-japanese")
"""A mixer and a layer."""


@pytest.mark.parametrize("name", NAMES)
def test_packed_rows_give_the_loss_and_gradients_of_separate_rows(name: str) -> None:
    model = adapted(name)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)
    assert twin.report[0] == f"0 of {len(twin.plan.policies)} layers run on Tunesmith's own path."
    shape = twin.assembly.shape
    assert all(isinstance(layer, UnfusedLayer) == (name in LAYERS) for layer in shape.layers)
    if name in MIXERS:
        assert all(isinstance(layer.attention, Unfused) for layer in shape.layers)
        assert all(isinstance(layer.mlp, MlpShape) for layer in shape.layers)
    reason = {**MIXERS, **LAYERS}[name][1]
    what = "Attention" if name in MIXERS else "The whole layer"
    assert any(re.search(rf"Not fused in \d of \d layers\. {what}: .*{reason}", str(note)) for note in twin.notes)


@pytest.mark.parametrize("name", PAIR)
def test_no_policy_changes_a_bit(name: str) -> None:
    twin, loss, kept = fused(adapted(name), rows(), "none")
    batch = make_packed_batch(rows(), CPU)
    for policy in ("mlp", "smart", "full", "offload"):
        twin._change(twin._planner.plan(policy))
        twin.arena.gradients.zero_()
        assert torch.equal(twin.loss_and_gradients(batch, num_trained(rows())), loss)
        assert all(torch.equal(parameter.grad, kept[name]) for name, parameter in twin.arena.parameters.items())


@pytest.mark.parametrize("name", NAMES)
def test_no_document_sees_another(name: str) -> None:
    twin = FusedModel.attach(adapted(name), compute(), CAPACITY)
    generator = np.random.default_rng(1)
    examples = rows()
    usual = twin.losses(make_packed_batch(examples, CPU))
    for changed in (0, 3):
        other = generator.integers(3, 160, len(examples[changed].input_ids))
        some = [*examples]
        some[changed] = replace(examples[changed], input_ids=other)
        counts = [int((example.labels[1:] != IGNORED_LABEL).sum()) for example in examples]
        moved = (twin.losses(make_packed_batch(some, CPU)) - usual).split(counts)
        assert [bool(part.any()) for part in moved] == [place == changed for place in range(len(examples))]


def test_texts_of_one_length_pass_together() -> None:
    model = adapted("diffllama")
    examples = rows((5, 5, 5, 7, 7, 3))
    shape = recognise(model)
    assert shape.handing is not None
    shape.handing.begin(make_packed_batch(examples, CPU), torch.float32, 10)
    assert [(run.rows.start, run.rows.stop, run.number) for run in shape.handing.runs] == [
        *((0, 10, 2), (10, 15, 1), (15, 22, 1), (22, 29, 1), (29, 32, 1))
    ]
    expected_loss, expected = reference(model, examples)
    _, loss, gradients = fused(model, examples)
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


@pytest.mark.parametrize("name", PAIR)
def test_documents_that_share_their_beginning_have_the_gradients_of_whole_ones(name: str) -> None:
    generator = np.random.default_rng(5)
    ids = [generator.integers(3, 160, length) for length in (20, 9, 14)]
    answers = []
    for answer in ids[1:]:
        labels = np.concatenate((np.full(len(ids[0]), IGNORED_LABEL), answer))
        answers.append(Example(np.concatenate((ids[0], answer)), labels))
    pair = [rows()[3], replace(answers[0], rejected=answers[1])]
    whole = [rows()[3], *answers]
    _, loss, expected = fused(adapted(name), whole, capacity=128)
    twin = FusedModel.attach(adapted(name), compute(), 128, "full", spread=2.0)
    batch = make_packed_batch(pair, CPU)
    assert batch.num_tokens < sum(len(each.input_ids) for each in whole)
    assert torch.isclose(twin.loss_and_gradients(batch, num_trained(whole)), loss, rtol=1e-5)
    assert_equal({key: parameter.grad for key, parameter in twin.arena.parameters.items()}, expected)


@pytest.mark.parametrize(
    ("name", "options"),
    [("llama", {"attention_dropout": 0.4}), ("phi3", {"resid_pdrop": 0.4})],
)
def test_dropout_is_the_same_when_it_is_computed_again(name: str, options: dict[str, Any]) -> None:
    from peft import LoraConfig, get_peft_model

    results = []
    for policy in ("none", "full"):
        torch.manual_seed(1)
        settings = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
        model = get_peft_model(families.make(name, **options), settings).train()
        twin = FusedModel.attach(model, compute(), CAPACITY, policy)
        torch.manual_seed(5)
        batch = make_packed_batch(rows(), CPU)
        loss = twin.loss_and_gradients(batch, num_trained(rows()))
        results.append((loss, twin.arena.gradients.clone()))
        # It is there, and the next step draws other numbers.
        assert not torch.equal(twin.loss_and_gradients(batch, num_trained(rows())), loss)
        # The gradient is that of this very draw.
        direction = torch.randn(twin.arena.weights.shape, generator=torch.Generator().manual_seed(3)) * 1e-3
        slope = float((results[0][1].double() * direction).sum())
        moved = []
        for sign in (1.0, -1.0):
            twin.arena.weights.add_(direction, alpha=sign)
            twin.refresh()
            torch.manual_seed(5)
            moved.append(float(twin.loss_and_gradients(batch, num_trained(rows()))))
            twin.arena.weights.add_(direction, alpha=-sign)
        assert (moved[0] - moved[1]) / 2 == pytest.approx(slope, rel=2e-2, abs=2e-6)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize(
    "name",
    [*PAIR, "qwen3.5", "nemotron-h", *(pytest.param(name, marks=pytest.mark.long) for name in MORE)],
)
def test_whole_weights_have_the_gradients_of_float64(name: str) -> None:
    exact_loss, exact = plain_gradients(full_model(name, torch.float64), rows())
    twin, loss, found = fused_gradients(full_model(name), rows(), compute())
    assert torch.isclose(loss, exact_loss, rtol=1e-5)
    assert found.keys() == exact.keys()
    least = 1e-4 * max(gradient.norm() for gradient in exact.values())
    for key, gradient in exact.items():
        # Its own operations in float32 are autograd's affair.
        assert (found[key] - gradient).norm() <= 1e-4 * gradient.norm().clamp_min(least), key
    assert any(isinstance(layer.attention, Unfused) for layer in twin.assembly.shape.layers)


@pytest.mark.parametrize("name", PAIR)
def test_in_16_bits_the_gradients_point_the_same_way(name: str) -> None:
    _, expected = reference(adapted(name), rows())
    twin = FusedModel.attach(adapted(name).bfloat16(), compute(torch.bfloat16), CAPACITY)
    twin.loss_and_gradients(make_packed_batch(rows(), CPU), num_trained(rows()))
    found, exact = (
        torch.cat([each[key].flatten() for key in sorted(expected)])
        for each in ({key: parameter.grad for key, parameter in twin.arena.parameters.items()}, expected)
    )
    assert torch.cosine_similarity(found, exact, dim=0) > 0.999


@pytest.mark.parametrize("name", PAIR)
def test_steps_are_not_captured_and_answers_come_from_transformers(name: str) -> None:
    twin = FusedModel.attach(adapted(name), compute(), CAPACITY)
    assert not twin.assembly.capturable
    twin.detach()
    decoder = open_decoder(adapted(name), compute())
    assert decoder.name == "plain"
    assert len(decoder.generate([[3, 5, 7]], Sampling(4), ())[0]) == 4


# What a decoder hands over


def _layers_called(monkeypatch: pytest.MonkeyPatch, forward: Any) -> Any:
    model = families.make("diffllama")
    monkeypatch.setattr(type(model.model), "forward", forward)
    return model


def test_layers_that_pass_something_on_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.modeling_outputs import BaseModelOutputWithPast

    def result(self: Any, x: torch.Tensor) -> BaseModelOutputWithPast:
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x))

    def mean(self: Any, input_ids: torch.Tensor, **_: Any) -> Any:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, position_embeddings=x.mean())
        return result(self, x)

    def others(self: Any, input_ids: torch.Tensor, **_: Any) -> Any:
        x, kept = self.embed_tokens(input_ids), None
        for layer in self.layers:
            x, kept = layer(x, position_embeddings=kept)
        return result(self, x)

    def filled(self: Any, input_ids: torch.Tensor, **_: Any) -> Any:
        x, states = self.embed_tokens(input_ids), {}
        for layer in self.layers:
            x = layer(x, past_key_values=states)
        return result(self, x)

    def halved(self: Any, input_ids: torch.Tensor, **_: Any) -> Any:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x) / 2
        return result(self, x)

    named = {mean: "position_embeddings", others: "position_embeddings", filled: "past_key_values", halved: "hand"}
    for forward, name in named.items():
        with pytest.raises(NotFusableError, match=name):
            recognise(_layers_called(monkeypatch, forward))


def test_calls_that_depend_on_the_tokens_are_made_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = families.make("diffllama")
    usual = type(model.model.layers[0]).forward

    def forward(self: Any, hidden_states: torch.Tensor, position_ids: torch.Tensor | None = None, **rest: Any) -> Any:
        return usual(self, hidden_states, position_ids=position_ids, **rest) * (1 + position_ids[..., None] % 3)

    decoder = type(model.model).forward

    def of_tokens(self: Any, input_ids: torch.Tensor, **rest: Any) -> Any:
        rest["position_ids"] = input_ids
        return decoder(self, input_ids=input_ids, **rest)

    monkeypatch.setattr(type(model.model.layers[0]), "forward", forward)
    monkeypatch.setattr(type(model.model), "forward", of_tokens)
    handing = recognise(model).handing
    assert isinstance(handing, Handing)
    assert handing.uses_embedding
    handing.begin(make_packed_batch(rows((4, 4)), CPU), torch.float32, 64)
    ids = np.stack([example.input_ids for example in rows((4, 4))])
    assert torch.equal(handing.runs[0].calls[0].named["position_ids"], torch.from_numpy(ids).long())


def test_a_trained_embedding_that_layers_are_handed_is_refused() -> None:
    model = full_model("gemma")
    embedding = model.get_base_model().model.embed_tokens
    forward = {"forward": lambda self, ids: self.weight[ids] * self.embed_scale * 1.5}
    embedding.__class__ = type("Scaled", (type(embedding),), forward)
    with pytest.raises(NotFusableError, match=r"embed_tokens\.weight is trained"):
        recognise(model)


def test_an_embedding_that_is_not_understood_is_run_as_written() -> None:
    model = adapted("gemma")
    embedding = model.get_base_model().model.embed_tokens
    forward = {"forward": lambda self, ids: self.weight[ids] * self.embed_scale * 1.5}
    embedding.__class__ = type("Scaled", (type(embedding),), forward)
    expected_loss, expected = reference(model, rows())
    twin, loss, gradients = fused(model, rows())
    assert twin.assembly.shape.begins_as_written
    assert torch.isclose(loss.double(), expected_loss, rtol=1e-5)
    assert_equal(gradients, expected)


# Memory


def test_the_plan_holds_what_autograd_keeps_of_it() -> None:
    lengths = (16, 32, 64)
    growth = Growth.through(lengths, [5.0 + 2.0 * n + 0.5 * n * n for n in lengths])
    assert (growth.fixed, growth.per_token, growth.per_pair) == pytest.approx((5.0, 2.0, 0.5))
    twin = FusedModel.attach(adapted("diffllama"), compute(), CAPACITY)
    (growth,) = twin._planner._passing._growths
    # Shares of attention: at least once for each head and pair of tokens.
    assert growth.per_pair >= 4 * 4
    assert growth.per_token >= 4 * 64
    assert not twin.arena.gradients.any()
    longer = FusedModel.attach(adapted("diffllama"), compute(), 4 * CAPACITY)
    assert longer.plan.peak_bytes - twin.plan.peak_bytes >= growth.num_bytes(256, 256) - growth.num_bytes(64, 64)


def test_a_decoder_may_ask_for_the_weight_of_its_embedding() -> None:
    """Llama 4's code looks where that lies, also where nobody reads what the embedding gives."""
    rope = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}
    shape = recognise(families.make("llama4", rope_parameters=rope))
    assert all(isinstance(layer.attention, Unfused) for layer in shape.layers)
