"""Every answer in every position is learned with its stop token, by the chat templates of many families.

The templates and their twins with {% generation %} marks come with TRL; transformers reads the marks without us.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import trl
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tunesmith_core.datafmt import Chat, Message
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data import answers
from tunesmith_engine.data.render import Renderer

FOLDER = Path(trl.__file__).parent / "chat_templates"
SPECIAL = re.compile(r"<\|[\w/ ]+?\|>|<\|?[a-z_]+\|>|<\|[a-z_]+>|<\uff5c[^>]*?\uff5c>|<(?:start|end)_of_turn>")

STOPS = {
    "qwen3": "<|im_end|>",
    "qwen2_5": "<|im_end|>",
    "qwen3_5_think": "<|im_end|>",
    "qwen3_5_nothink": "<|im_end|>",
    "qwen3_6": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>",
    "cohere": "<|END_OF_TURN_TOKEN|>",
    "cohere2": "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
    "deepseekv3": "<｜end▁of▁sentence｜>",
    "gemma": "<end_of_turn>",
    "gemma3": "<end_of_turn>",
    "llama3": "<|eot_id|>",
    "llama3_1": "<|eot_id|>",
    "phi3": "<|end|>",
    "lfm2_v2": "<|im_end|>",
    "nemotron_3_nano": "<|im_end|>",
}


def say(text: str, **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


def ask(text: str) -> Message:
    return {"role": "user", "content": text}


CALLS = [{"type": "function", "id": "abcdefghi", "function": {"name": "add", "arguments": {"x": 1}}}]
RESULT = {"role": "tool", "name": "add", "tool_call_id": "abcdefghi", "content": '{"r": 2}'}
CHATS = {
    "answer": [ask("Who?"), say("Me.")],
    "answers": [ask("Who?"), say("Me."), ask("Sure?"), say("Yes\nsure")],
    "question": [ask("Who?"), say("Me."), ask("Sure?"), say("Yes"), ask("Last?")],
    "system": [{"role": "system", "content": "Be."}, ask("Who?"), say("Me."), ask("Sure?"), say("Yes"), ask("Last?")],
}


def tokenizer_of(name: str, template: str = "") -> PreTrainedTokenizerFast:
    source = template or (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    specials = sorted({*SPECIAL.findall(source), "<bos>", "<eos>"} | set(SPECIAL.findall(STOPS.get(name, ""))))
    vocabulary = {token: n for n, token in enumerate([*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(specials)
    eos = (SPECIAL.findall(STOPS.get(name, "")) or ["<eos>"])[-1]
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<bos>", eos_token=eos, chat_template=source)


def learned(tokenizer: PreTrainedTokenizerFast, chat: list[Message], tools: tuple[Any, ...] = ()) -> list[str]:
    renderer = Renderer(tokenizer, DataSpec())
    (row,) = renderer.tokenise([renderer.render(Chat(tuple(chat), tools=tools), "line 1")])
    return stretches(tokenizer, row.example.input_ids.tolist(), (row.example.labels != -100).tolist())


def stretches(tokenizer: PreTrainedTokenizerFast, ids: list[int], marks: list[Any]) -> list[str]:
    groups = groupby(zip(ids, marks, strict=True), key=lambda pair: bool(pair[1]))
    return [tokenizer.decode([token for token, _ in group]) for marked, group in groups if marked]


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("name", STOPS)
def test_every_answer_is_learned_with_its_stop(name: str, kind: str) -> None:
    if (name, kind) == ("gemma", "system"):
        pytest.skip("Gemma refuses system prompts")
    chat = CHATS[kind]
    answers = [message["content"] for message in chat if message["role"] == "assistant"]
    found = learned(tokenizer_of(name), chat)
    assert len(found) == len(answers)
    for stretch, answer in zip(found, answers, strict=True):
        assert stretch.endswith(answer + STOPS[name])
        assert not any(message["content"] in stretch for message in chat if message["role"] != "assistant")


@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize(
    "name", ["cohere", "cohere2", "qwen2_5", "gemma3", "llama3", "deepseekv3", "gptoss", "glm4moe"]
)
def test_what_is_learned_is_what_transformers_marks(name: str, kind: str) -> None:
    """TRL marks the generation prompt of some templates and the line feed behind the stop; we train neither."""
    tokenizer = tokenizer_of(name)
    twin = (FOLDER / f"{name}_training.jinja").read_text(encoding="utf-8")
    encoded = tokenizer.apply_chat_template(
        CHATS[kind], chat_template=twin, return_dict=True, return_assistant_tokens_mask=True
    )
    marked = stretches(tokenizer, encoded["input_ids"], encoded["assistant_masks"])
    found = learned(tokenizer, CHATS[kind])
    assert len(found) == len(marked)
    for ours, theirs in zip(found, marked, strict=True):
        if name == "glm4moe":
            # The next speaker's token ends an answer; behind the last one the original writes nothing.
            ours, theirs = (
                ours.removesuffix(""),
                theirs if ours.endswith("<|user|>") else theirs[: -len("<|user|>")],
            )
        assert theirs.strip("\n").endswith(ours.strip("\n"))
        assert theirs.strip("\n").removesuffix(ours.strip("\n")) in ("", "<｜Assistant｜>", "<|start|>assistant")


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5_think", "deepseekv3", "gptoss", "lfm2_v2", "llama3_1", "gemma4_v5"])
def test_tool_calls_are_learned_and_results_are_not(name: str) -> None:
    for chat in (
        [ask("Add"), say("", tool_calls=CALLS), RESULT],
        [ask("Add"), say("", tool_calls=CALLS), RESULT, say("2")],
    ):
        found = learned(tokenizer_of(name), chat)
        assert len(found) == len(chat) // 2
        assert "add" in found[0]
        assert SPECIAL.search(found[0].strip()[-25:]), "the call ends with a special token"
        assert not any('r\\": 2' in stretch or '"r"' in stretch for stretch in found)


def test_thoughts_and_tools_reach_the_template_and_others_are_named() -> None:
    chat = [ask("Who?"), say("Me.", reasoning="hm", weight=1)]
    tokenizer = tokenizer_of("qwen3")
    assert learned(tokenizer, chat) == ["<think>\nhm\n</think>\n\nMe.<|im_end|>"]
    renderer = Renderer(tokenizer, DataSpec())
    rendered = renderer.render(Chat(tuple(chat), tools=({"type": "function", "function": {"name": "add"}},)), "line 1")
    assert '"name": "add"' in rendered.text
    ((code, message),) = renderer.notes.items()
    assert code == "dataset-fields-unused"
    assert '"weight"' in message
    assert "reasoning" not in message


def test_a_marked_answer_gets_the_stop_that_its_marks_leave_out() -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    )
    assert learned(tokenizer_of("marked", template), CHATS["question"]) == ["Me.<|im_end|>", "Yes<|im_end|>"]


@pytest.mark.parametrize("name", [*STOPS, "gptoss", "gemma4_v5"])
def test_answers_of_a_long_chat_are_found_as_those_of_a_short_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [ask(f"Who {n}?" + " " * (n % 3)) if n % 2 == 0 else say(f"Me {n}.") for n in range(90)]
    turns[11], turns[31], turns[51] = say("<think>\nHm.\n</think>\n\nYou."), say(" Me. "), say("Me", thinking="Hm")
    chat = Chat((*turns, ask("Me.")), first_trained=3)
    renderer = Renderer(tokenizer_of(name), DataSpec())
    many = renderer.render(chat, "x")
    monkeypatch.setattr(answers, "MANY_ANSWERS", len(turns))
    assert many == renderer.render(chat, "x")
    assert len(many.trained) >= 44


def test_the_work_for_a_long_chat_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    renderings: list[int] = []
    renderer = Renderer(tokenizer_of("qwen3"), DataSpec())
    for num_turns in (200, 400):
        chat = Chat((ask("Who?"), say("Me.")) * num_turns)
        assert len(renderer.render(chat, "x").trained) == num_turns
        renderings.append(0)
        text = renderer._tokenizer.apply_chat_template

        def count(messages: list[Message], *rest: Any, of: Any = text, **more: Any) -> Any:
            renderings[-1] += len(messages)
            return of(messages, *rest, **more)

        monkeypatch.setattr(renderer._tokenizer, "apply_chat_template", count)
        renderer.render(chat, "x")
        monkeypatch.setattr(renderer._tokenizer, "apply_chat_template", text)
    assert renderings[1] <= 2.1 * renderings[0]
