"""Prompts as tokens: asked by the chat template, within limits, and left out where it refuses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data.prompts import prompt_ids, sample_prompt_ids


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def asked(tokenizer: PreTrainedTokenizerBase, prompt: str, system_prompt: str = "") -> str:
    return str(tokenizer.decode(prompt_ids(tokenizer, prompt, system_prompt, Portions())))


def with_leading_token(tokenizer: PreTrainedTokenizerBase) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )


def test_a_prompt_is_asked_as_the_template_asks_it(tokenizer: PreTrainedTokenizerBase) -> None:
    with_leading_token(tokenizer)
    question = "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    assert asked(tokenizer, "Who?") == question
    assert asked(tokenizer, "Who?", "Be brief.") == f"<|im_start|>system\nBe brief.<|im_end|>\n{question}"
    tokenizer.chat_template = None
    assert asked(tokenizer, "Who?", "Be brief.") == "<|endoftext|>Who?"


def test_what_a_template_says_of_a_prompt_is_told_shortly(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = "{{ raise_exception('no ' * 1000) }}"
    with pytest.raises(TunesmithError) as caught:
        asked(tokenizer, "Who?")
    assert caught.value.code == "sample-failed"
    assert caught.value.message == "The chat template rejects the prompt: " + "no " * 200


class Writing:
    """A tokenizer whose template writes so many characters."""

    chat_template = "any"

    def __init__(self, num_characters: int) -> None:
        self._text = "x" * num_characters

    def apply_chat_template(self, *_: object, **__: object) -> str:
        return self._text

    def __call__(self, text: str, *, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [len(text), add_special_tokens]}


def test_a_template_may_write_a_million_characters_and_four_for_each_of_the_prompt() -> None:
    portions = Portions()
    portions.about(Path("model"))
    portions.begin("prompt")
    assert prompt_ids(Writing(1_000_040), "Who?", "system", portions) == [1_000_040, 0]
    with pytest.raises(TunesmithError) as caught:
        prompt_ids(Writing(1_000_041), "Who?", "system", portions)
    assert caught.value.message == ("model: the chat template of a sample prompt wrote more than 1,000,040 characters.")


def test_prompts_that_can_not_be_asked_are_left_out(
    tokenizer: PreTrainedTokenizerBase, tiny_spec: Callable[..., RunSpec]
) -> None:
    spec = tiny_spec(evaluation={"percent": 0, "sample_prompts": ["Who?", "no", "Why?"]})
    refusing = "{% if messages[1].content == 'no' %}{{ raise_exception('no') }}{% endif %}"
    tokenizer.chat_template = refusing + str(tokenizer.chat_template)
    portions = Portions()
    found = sample_prompt_ids(spec, tokenizer, "Be brief.", portions)
    assert found == {prompt: prompt_ids(tokenizer, prompt, "Be brief.", Portions()) for prompt in ("Who?", "Why?")}
    assert (portions.now.number, portions.now.work) == (3, "prompt"), "each has a time of its own"


def test_a_prompt_without_memory_is_not_called_refused(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(tokenizer, "apply_chat_template", fail)
    with pytest.raises(MemoryError):
        asked(tokenizer, "Who?")
