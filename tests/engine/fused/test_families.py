"""Every family's own forward pass equals what its recognised shape says, run by plain operations."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional

from tests.engine.fused import families, plain_forward
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.fused.recognise import recognise
from tunesmith_engine.shapes import ModelShape, NotFusableError, Unfused

RECOGNISED = [*families.FUSED, *families.MLP_UNFUSED]
LENGTHS = (11, 1, 7)
"""Documents, longer than the windows of the sliding layers."""

CHAIN = 16 * REDUCTION
"""The `c` of numbers that went through several layers; a step left out shows as a hundred times that. Of a few thousand
numbers the largest error differs by half from one processor, and from one count of its threads, to the next."""


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def _with_adapter(model: Any, name: str) -> Any:  # Any: transformers' and PEFT's models
    """Put random LoRA on every linear layer of the decoder that is one, the head left out."""
    targets = families.TARGETS.get(name, "all-linear")
    config = LoraConfig(r=4, lora_alpha=6, target_modules=targets, lora_dropout=0.0)
    adapted = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return adapted.eval()


def _input_ids() -> torch.Tensor:
    return torch.randint(3, families.SIZES["vocab_size"], (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))


def _rows(model: Any, input_ids: torch.Tensor) -> torch.Tensor:
    """Return the logits that transformers computes for each document alone, behind each other."""
    rows = [model(input_ids=row[None], use_cache=False).logits[0] for row in input_ids.split(LENGTHS)]
    return torch.cat(rows)


def _packed(shape: ModelShape, input_ids: torch.Tensor) -> torch.Tensor:
    return plain_forward.logits(shape, plain_forward.hidden_numbers(shape, input_ids, LENGTHS))


def _alone(shape: ModelShape, input_ids: torch.Tensor) -> torch.Tensor:
    rows = [plain_forward.hidden_numbers(shape, row, (len(row),)) for row in input_ids.split(LENGTHS)]
    return plain_forward.logits(shape, torch.cat(rows))


@pytest.mark.parametrize("adapted", [False, True], ids=["base", "lora"])
@pytest.mark.parametrize("name", families.marked(RECOGNISED))
def test_shape_computes_what_transformers_computes(name: str, adapted: bool) -> None:
    model = families.make(name).eval()
    if adapted:
        model = _with_adapter(model, name)
    input_ids = _input_ids()
    shape = recognise(model)
    ours, usual = (_packed(shape, input_ids), _alone(shape, input_ids)), _rows(model, input_ids)
    exact = _packed(recognise(copy.deepcopy(model).double()), input_ids)
    # The plain operations are the measure here: transformers may be as far from the exact numbers as they are. How far
    # the worst number of one pass lies is chance, so that they compute it in two ways.
    judge(name, usual, ours, exact, torch.float32, CHAIN)
    mutants_fail(lambda mutant: judge(name, mutant, ours, exact, torch.float32, CHAIN), usual)


@pytest.mark.parametrize("name", families.marked(name for name in RECOGNISED if name not in families.SAME_LABELS))
def test_loss_is_that_of_transformers(name: str) -> None:
    model = families.make(name).eval()
    input_ids = _input_ids()
    losses = [
        float(model(input_ids=row[None], labels=row[None], use_cache=False).loss) * (len(row) - 1)
        for row in input_ids.split(LENGTHS)
        if len(row) > 1
    ]
    assert float(plain_forward.summed_loss(recognise(model), input_ids, LENGTHS)) == pytest.approx(
        sum(losses), rel=1e-5
    )


@pytest.mark.parametrize("name", families.marked(families.FUSED))
def test_whole_family_runs_fused(name: str) -> None:
    shape = recognise(families.make(name))
    assert shape.notes == []
    assert not any(isinstance(layer.mlp, Unfused) for layer in shape.layers)


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, (_, reason) in families.MLP_UNFUSED.items()])
def test_unfused_mlp_says_why_once(name: str, reason: str) -> None:
    layers = recognise(families.make(name)).layers
    (sentence,) = {layer.mlp.reason for layer in layers if isinstance(layer.mlp, Unfused)}
    assert reason in sentence
    assert all(isinstance(layer.mlp, Unfused) for layer in layers)


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, (_, reason) in families.NOT_FUSABLE.items()])
def test_refused_family_is_told_why(name: str, reason: str) -> None:
    with pytest.raises(NotFusableError, match=reason):
        recognise(families.make(name))


@pytest.mark.parametrize("name", ["llama3", "llama-yarn", "phi4-mini"])
def test_rotary_table_is_scaled(name: str) -> None:
    shape, plain = recognise(families.make(name)), recognise(families.make("llama"))
    positions = torch.arange(9)[None]
    assert shape.rotary is not None
    assert plain.rotary is not None
    cos, sin = shape.rotary(torch.zeros(1), positions, "")
    usual, _ = plain.rotary(torch.zeros(1), positions, "")
    assert cos.shape == sin.shape == (1, 9, 12 if name == "phi4-mini" else 16)
    assert not torch.allclose(cos, usual[..., : cos.shape[-1]], atol=1e-3)


def test_kinds_of_rotary_tables_differ() -> None:
    shape = recognise(families.make("gemma3"))
    assert [layer.rotary_kind for layer in shape.layers] == families.TWO_KINDS
    assert shape.rotary is not None
    tables = [shape.rotary(torch.zeros(1), torch.arange(9)[None], kind)[0] for kind in families.TWO_KINDS[:2]]
    assert not torch.equal(*tables)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ["gemma", "gemma2", "gemma3", "granite"])
def test_embedding_scale_is_rounded_as_the_model_rounds_it(name: str, dtype: torch.dtype) -> None:
    model = families.make(name).to(dtype)
    if hasattr(model.model.embed_tokens, "embed_scale"):
        # Some ways of loading leave it in float32; then it is rounded where it is used.
        model.model.embed_tokens.embed_scale = torch.tensor(48**0.5)
    shape = recognise(model)
    input_ids = torch.arange(20)
    taken: list[torch.Tensor] = []
    handle = model.model.layers[0].register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0]))
    model(input_ids=input_ids[None], use_cache=False)
    handle.remove()
    exact = functional.embedding(input_ids, model.model.embed_tokens.weight).float() * shape.embedding_scale
    assert torch.equal(taken[0][0], exact.to(dtype))
