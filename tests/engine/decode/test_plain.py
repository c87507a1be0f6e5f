"""Answers through transformers: what is reported on the way is the answer, and nothing of the training is touched."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from tests.engine.causal_types import make_config
from tests.engine.fused.test_model import adapted, compute
from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode.plain import PlainDecoder

PROMPTS = [[3, 5, 7], [4], [9, 8, 7, 6, 5]]


@pytest.fixture(scope="module")
def decoder() -> PlainDecoder:
    return PlainDecoder(adapted("llama"), compute())


def likeliest(decoder: PlainDecoder, prompt: list[int], number: int) -> list[int]:
    """Return the most likely tokens by the whole row through the model each time, without a cache."""
    row = list(prompt)
    with torch.no_grad():
        for _ in range(number):
            row.append(int(decoder._model(torch.tensor([row]), use_cache=False).logits[0, -1].argmax()))
    return row[len(prompt) :]


def test_each_row_is_continued_by_its_most_likely_tokens(decoder: PlainDecoder) -> None:
    answers = decoder.generate(PROMPTS, Sampling(6), ())
    assert answers == [likeliest(decoder, prompt, 6) for prompt in PROMPTS]


def test_what_is_reported_is_the_answer_without_its_end(decoder: PlainDecoder) -> None:
    whole = likeliest(decoder, PROMPTS[0], 9)
    end = whole[6]
    reported: list[tuple[int, list[int]]] = []
    answers = decoder.generate(PROMPTS[:1], Sampling(20), {end}, on_tokens=lambda *new: reported.append(new))
    assert answers == [whole[: whole.index(end)]]
    assert {row for row, _ in reported} == {0}
    assert reported[0] == (0, whole[:1]), "the first token is told at once"
    assert [token for _, tokens in reported for token in tokens] == answers[0]


def test_a_stop_keeps_what_there_is(decoder: PlainDecoder) -> None:
    asked: list[int] = []
    answers = decoder.generate(PROMPTS[:2], Sampling(20), (), should_stop=lambda: len(asked.append(1) or asked) > 2)  # type: ignore[func-returns-value]
    assert answers == [likeliest(decoder, PROMPTS[0], 4), []]


def test_a_seed_gives_the_same_answer_again_and_no_number_of_the_training(decoder: PlainDecoder) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    warm = Sampling(12, temperature=5.0, top_k=50, top_p=0.99, min_p=0.001, seed=7)
    first, again = decoder.generate(PROMPTS, warm, ()), decoder.generate(PROMPTS, warm, ())
    assert first == again
    assert decoder.generate(PROMPTS, Sampling(12, temperature=5.0, seed=8), ()) != first
    assert torch.equal(torch.get_rng_state(), before)


def test_without_its_adapter_the_base_model_answers(decoder: PlainDecoder) -> None:
    with decoder._model.disable_adapter():
        expected = likeliest(decoder, PROMPTS[2], 8)
    assert decoder.generate(PROMPTS[2:], Sampling(8), (), with_adapter=False) == [expected]
    assert decoder.generate(PROMPTS[2:], Sampling(8), ()) != [expected]


def test_a_model_that_fails_over_its_own_state_reads_the_whole_text_again() -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(make_config("rwkv", attention_hidden_size=128)).eval()
    decoder = PlainDecoder(model, compute())
    reported: list[int] = []
    warm = Sampling(6, temperature=5.0, seed=7)
    first = decoder.generate(PROMPTS, warm, (), on_tokens=lambda _, tokens: reported.extend(tokens))
    assert reported == [token for answer in first for token in answer]
    assert decoder.generate(PROMPTS, warm, ()) == first, "a seed gives the same answer again"
    assert decoder.generate(PROMPTS, Sampling(6), ()) == [likeliest(decoder, prompt, 6) for prompt in PROMPTS]


def test_an_error_with_and_without_the_state_is_told(
    decoder: PlainDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(*_: object, generation_config: GenerationConfig, **__: object) -> None:
        asked.append(generation_config.use_cache)
        raise RuntimeError("it is broken")

    monkeypatch.setattr(decoder._model, "generate", fail)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="it is broken"):
            decoder.generate(PROMPTS, Sampling(6), ())
    assert asked == [True, False] * 2, "one that fails anyway says nothing of the state"


def test_an_error_of_who_is_told_ends_the_answer(decoder: PlainDecoder) -> None:
    parts: list[list[int]] = []

    def told(_: int, tokens: list[int]) -> None:
        parts.append(tokens)
        if len(parts) == 2:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        decoder.generate(PROMPTS, Sampling(20), (), on_tokens=told)
    assert len(parts) == 2
