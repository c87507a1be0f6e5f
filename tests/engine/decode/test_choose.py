"""The next token is drawn from the same tokens, with the same probabilities, as transformers would draw it."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode.choose import Chooser

CPU = torch.device("cpu")
NUM_TOKENS, DRAWS = 12, 20_000
PROMPT = [3, 7, 7]
CASES = {
    "temperature": Sampling(temperature=0.7),
    "top-k": Sampling(temperature=1.0, top_k=3),
    "top-p": Sampling(temperature=1.3, top_p=0.7),
    "min-p": Sampling(temperature=1.0, min_p=0.3),
    "penalty": Sampling(temperature=1.0, repetition_penalty=2.0),
    "all": Sampling(temperature=1.5, top_k=6, top_p=0.9, min_p=0.05, repetition_penalty=1.3),
}


def logits() -> torch.Tensor:
    return torch.randn(1, NUM_TOKENS, generator=torch.Generator().manual_seed(4)) * 2


def theirs(sampling: Sampling) -> torch.Tensor:
    """Return the probabilities by transformers' own filters."""
    filters = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)])
    filters.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        filters.append(TopKLogitsWarper(sampling.top_k))
    filters += [TopPLogitsWarper(sampling.top_p), MinPLogitsWarper(sampling.min_p)]
    return filters(torch.tensor([PROMPT]), logits()).softmax(dim=1)[0]


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_probabilities_of_transformers(name: str) -> None:
    chooser = Chooser(CASES[name], [PROMPT] * DRAWS, NUM_TOKENS, CPU)
    drawn = chooser.choose(logits().expand(DRAWS, -1)).bincount(minlength=NUM_TOKENS) / DRAWS
    expected = theirs(CASES[name])
    assert bool((drawn[expected == 0] == 0).all())
    # Four standard deviations of so many draws.
    allowed = 4 * (expected * (1 - expected) / DRAWS).sqrt() + 1e-12
    assert bool(((drawn - expected).abs() <= allowed).all())


def test_a_token_that_was_chosen_is_penalized_from_then_on() -> None:
    chooser = Chooser(Sampling(repetition_penalty=100.0), [[0]], 3, CPU)
    scores = torch.tensor([[5.0, 4.0, 3.0]])
    assert [int(chooser.choose(scores)) for _ in range(3)] == [1, 2, 0]
    lowered = torch.tensor([[-5.0, -4.0, -3.0]])
    assert int(Chooser(Sampling(repetition_penalty=10.0), [[2]], 3, CPU).choose(lowered)) == 1


def test_without_a_temperature_the_most_likely_token_is_taken() -> None:
    assert Chooser(Sampling(), [[1]] * 2, 3, CPU).choose(torch.tensor([[0.0, 2, 1], [3, 2, 1]])).tolist() == [1, 0]


def test_rows_draw_for_themselves() -> None:
    drawn = Chooser(Sampling(temperature=1.0), [[1]] * 40, 100, CPU).choose(torch.zeros(40, 100))
    assert len(set(drawn.tolist())) > 10
