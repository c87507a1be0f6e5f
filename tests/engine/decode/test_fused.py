"""Answers by the fused model are those of transformers, token for token, for every family and rows of any lengths."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, Gemma4ForConditionalGeneration

from tests.engine import causal_types
from tests.engine.fused import families
from tests.engine.fused.families import FUSED, QUICK, SPARSE
from tests.engine.fused.family_shapes import BY_ATTENTION, BY_RULE, BY_SHAPE, OF_BLOCKS, OF_TWO_STACKS
from tests.engine.fused.test_model import adapted, compute
from tests.engine.fused.test_sharing import WITH_IMAGES
from tunesmith_core.errors import TunesmithError
from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode import open_decoder
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.decode.plain import PlainDecoder
from tunesmith_engine.shapes import NotFusableError

LATER = {*BY_SHAPE, *BY_ATTENTION, *OF_TWO_STACKS, *BY_RULE, *OF_BLOCKS, *SPARSE}
FIRST = {changes["model_type"]: name for name, changes in reversed(FUSED.items()) if name not in LATER}.values()
"""One family of each architecture; its variants are for the long run."""
OF_STEPS = (
    *("laguna", "llama4", "cohere2-moe", "lfm2-moe", "mistral4", "falcon-h1", "nemotron-h", "mamba2"),
    "gemma4-a4b",
)
"""Others whose steps have parts of their own."""
NO_STEP = ("gemma3n",)
"""Those that answer as transformers does."""

PROMPTS = [[3, 5, 7], [4], [9, 8, 7, 6, 5, 31, 44, 100, 17, 3, 2, 1]]


def with_cache(model: PeftModel, with_adapter: bool) -> list[list[int]]:
    """Return transformers' answers."""
    return PlainDecoder(model, compute()).generate(PROMPTS, Sampling(12), (), with_adapter=with_adapter)


def without_cache(model: PeftModel, with_adapter: bool) -> list[list[int]]:
    """Return the likeliest tokens by a whole pass for each."""
    rows = [list(prompt) for prompt in PROMPTS]
    with torch.no_grad(), contextlib.nullcontext() if with_adapter else model.disable_adapter():
        for row in rows:
            for _ in range(12):
                row.append(int(model(torch.tensor([row]), use_cache=False).logits[0, -1].argmax()))
    return [row[len(prompt) :] for row, prompt in zip(rows, PROMPTS, strict=True)]


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=() if name in {*FIRST, *QUICK, *OF_STEPS} else pytest.mark.long)
        for name in FUSED
        if name not in NO_STEP
    ],
)
def test_the_likeliest_answers_are_those_of_transformers(family: str) -> None:
    model = adapted(family)
    # What transformers itself computes token by token leaves the limits of steps out.
    answered = without_cache if "time_step_limit" in FUSED[family] else with_cache
    expected = [answered(model, with_adapter) for with_adapter in (True, False)]
    fused = FusedDecoder.attach(model, compute())
    for with_adapter, answers in zip((True, False), expected, strict=True):
        assert fused.generate(PROMPTS, Sampling(12), (), with_adapter=with_adapter) == answers
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            assert fused.generate([prompt], Sampling(12), (), with_adapter=with_adapter) == [answer]


@pytest.mark.parametrize("family", NO_STEP)
def test_streams_and_branches_answer_in_plain_pytorch(family: str) -> None:
    model = adapted(family)
    with pytest.raises(NotFusableError, match="run in plain PyTorch only"):
        FusedDecoder.attach(model, compute())
    decoder = open_decoder(model, compute())
    assert (decoder.name, decoder.generate(PROMPTS, Sampling(12), ())) == ("plain", with_cache(model, True))


@pytest.fixture(scope="module")
def fused() -> FusedDecoder:
    return FusedDecoder.attach(adapted("qwen2"), compute())


def answers(decoder: FusedDecoder, prompts: list[list[int]], number: int = 10) -> list[list[int]]:
    return [decoder.generate([prompt], Sampling(number), ())[0] for prompt in prompts]


def test_more_rows_than_are_answered_at_once_keep_their_order(
    fused: FusedDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [[3 + row, 9] * (1 + row % 4) for row in range(7)]
    expected = answers(fused, prompts)
    monkeypatch.setattr("tunesmith_engine.decode.fused.MOST_ROWS", 3)
    monkeypatch.setattr("tunesmith_engine.decode.fused.PREFILL_TOKENS", 9)
    reported: dict[int, list[int]] = {}
    ended: list[int] = []
    found = fused.generate(
        prompts,
        Sampling(10),
        (),
        on_tokens=lambda row, tokens: reported.setdefault(row, []).extend(tokens),
        on_end=ended.append,
    )
    assert found == expected
    assert sorted(ended) == list(range(7)), "each is told once when it is whole"
    assert reported == dict(enumerate(expected))


@pytest.mark.parametrize("family", ["qwen3.5", "lfm2", "deepseek-v3"])
def test_what_prompts_leave_behind_them_is_their_own(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are read one after another, over what other rows have left there."""
    decoder = FusedDecoder.attach(adapted(family), compute())
    prompts = [[3 + row, 9] * (1 + row % 4) for row in range(6)]
    expected = answers(decoder, prompts)
    assert decoder.generate(prompts, Sampling(10), ()) == expected
    decoder.release()
    monkeypatch.setattr("tunesmith_engine.decode.fused.PREFILL_TOKENS", 9)
    assert [decoder.generate(prompts, Sampling(10), ()) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["gpt-oss", "qwen3.5", "falcon-h1", "lfm2", "kimi-linear", "gemma4"])
def test_steps_agree_in_16_bits(family: str, dtype: torch.dtype) -> None:
    """Attaching compares with transformers; all buffers have the format of the run but those of states."""
    model = adapted(family)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    decoder = FusedDecoder.attach(model, compute(dtype))
    assert all(len(answer) == 4 for answer in decoder.generate(PROMPTS, Sampling(4), ()))


def test_an_answer_ends_before_its_end_while_others_continue(fused: FusedDecoder) -> None:
    whole = answers(fused, PROMPTS, 12)
    end = whole[0][4]
    expected = [answer[: answer.index(end)] if end in answer else answer for answer in whole]
    assert fused.generate(PROMPTS, Sampling(12), {end}) == expected
    assert expected != whole


def test_a_stop_keeps_what_there_is(fused: FusedDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunesmith_engine.decode.fused.REPORT_S", 0.0)
    whole, asked = answers(fused, PROMPTS[:1])[0], []

    def stops() -> bool:
        asked.append(1)
        return len(asked) > 3

    assert fused.generate(PROMPTS[:1], Sampling(10), (), should_stop=stops) == [whole[:3]]
    assert fused.generate(PROMPTS[:1], Sampling(10), (), should_stop=lambda: True) == [[]]


def test_a_longer_answer_gets_a_larger_cache_and_a_shorter_one_keeps_it(fused: FusedDecoder) -> None:
    fused.generate(PROMPTS[:1], Sampling(4), ())
    small = fused._cache
    fused.generate(PROMPTS[:1], Sampling(3), (), with_adapter=False)
    assert fused._cache is small
    long = fused.generate(PROMPTS[:1], Sampling(300), ())[0]
    assert fused._cache is not small
    assert long[:4] == fused.generate(PROMPTS[:1], Sampling(4), ())[0]
    fused.release()
    assert fused._cache is None
    assert fused.generate(PROMPTS[:1], Sampling(300), ())[0] == long


def test_new_weights_of_the_adapter_answer_once_they_are_told() -> None:
    model = adapted("llama")
    decoder = FusedDecoder.attach(model, compute())
    before = decoder.generate(PROMPTS, Sampling(8), ())
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.neg_()
    decoder.weights_changed()
    after = decoder.generate(PROMPTS, Sampling(8), ())
    assert after != before
    assert after == PlainDecoder(model, compute()).generate(PROMPTS, Sampling(8), ())


def test_a_model_that_is_refused_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = adapted("llama")
    expected = PlainDecoder(model, compute()).generate(PROMPTS, Sampling(8), ())

    def differs(*_: object) -> None:
        raise NotFusableError("A test.")

    monkeypatch.setattr("tunesmith_engine.decode.fused.check_agreement", differs)
    decoder = open_decoder(model, compute())
    assert decoder.name == "plain"
    assert decoder.generate(PROMPTS, Sampling(8), ()) == expected


def test_each_number_of_the_heads_may_have_a_gate() -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(causal_types.make_config("afmoe"), attn_implementation="eager")
    model.requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    expected = PlainDecoder(model, compute()).generate(PROMPTS, Sampling(8), ())
    assert FusedDecoder.attach(model, compute()).generate(PROMPTS, Sampling(8), ()) == expected


def test_tokens_in_whose_places_images_stand_are_read_as_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    family, settings = WITH_IMAGES["Gemma4ForConditionalGeneration"]
    config = AutoConfig.for_model(**settings, text_config={**families.SIZES, **FUSED[family]})
    torch.manual_seed(0)
    base = Gemma4ForConditionalGeneration(config).eval().requires_grad_(False)
    base.set_attn_implementation("eager")
    monkeypatch.setattr(families, "make", lambda _: base)
    model = adapted(family, target_modules=r".*language_model.*(q_proj|down_proj|per_layer_projection)")
    prompts = [[3, settings["image_token_id"], 7], [settings["audio_token_id"]]]
    expected = PlainDecoder(model, compute()).generate(prompts, Sampling(8), ())
    decoder = FusedDecoder.attach(model, compute())
    assert decoder.generate(prompts, Sampling(8), ()) == expected
    step, logits = decoder._step_for(1, 256, True), []
    for token in (0, settings["image_token_id"], 5):
        step.cache.lengths.fill_(2)
        step.ids.fill_(token)
        step.run()
        logits.append(step.logits.clone())
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


def test_an_mlp_as_wide_as_the_model_reads_what_it_does_not_write() -> None:
    model = families.make("gpt-neox", intermediate_size=64)
    expected = PlainDecoder(model, compute()).generate(PROMPTS, Sampling(8), ())
    assert FusedDecoder.attach(model, compute()).generate(PROMPTS, Sampling(8), ()) == expected


@pytest.mark.parametrize("kind", [PlainDecoder, FusedDecoder.attach], ids=["plain", "fused"])
def test_each_row_is_answered_up_to_the_last_position(kind: Any) -> None:
    torch.manual_seed(0)
    model = families.make("gpt2", max_position_embeddings=128)
    prompts = [[3, 5, 7], [4] * 124]
    answers = kind(model, compute()).generate(prompts, Sampling(8), ())
    assert [len(answer) for answer in answers] == [8, 4]
    with pytest.raises(TunesmithError, match="The prompt has 128 tokens, and this model reads at most 128"):
        kind(model, compute()).generate([[3] * 128], Sampling(8), ())


def test_beyond_the_first_rotary_table_transformers_answers() -> None:
    """The model takes another table from 128 tokens on, also for the tokens before."""
    model = adapted("phi4-mini")
    expected = PlainDecoder(model, compute()).generate([[5] * 120], Sampling(12), ())
    assert FusedDecoder.attach(model, compute()).generate([[5] * 120], Sampling(12), ()) == expected
