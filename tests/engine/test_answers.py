"""Where answers end and which template is asked, beyond what whole templates show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.test_data_render import MARKED
from tunesmith_core.datafmt import Chat
from tunesmith_core.errors import TunesmithError
from tunesmith_engine.data.answers import ChatRenderer

QUESTION, ANSWER = {"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}END{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def learned(tokenizer: PreTrainedTokenizerBase, *messages: dict[str, Any], **chat: Any) -> list[str]:
    renderer = ChatRenderer(tokenizer)
    whole = Chat(messages, **chat)
    text = renderer.text(whole, "line 3")
    return [text[start:end] for start, end in renderer.answers(whole, text, "line 3")]


def test_a_stop_that_the_tokenizer_does_not_call_special_is_found(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.add_tokens(["<|stop|>"], special_tokens=False)
    tokenizer.chat_template = TURNS.replace("END", "<|stop|>") + PROMPT
    assert ChatRenderer(tokenizer).has_stop
    assert learned(tokenizer, QUESTION, ANSWER, QUESTION) == ["Me.<|stop|>"]


def test_behind_a_special_stop_other_tokens_are_not_learned(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.add_tokens(["<note>"], special_tokens=False)
    tokenizer.chat_template = TURNS.replace("END", "<|im_end|><note>") + PROMPT
    assert learned(tokenizer, QUESTION, ANSWER, QUESTION) == ["Me.<|im_end|>"]


def test_of_two_stops_that_begin_alike_the_longer_one_is_meant(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>>"]})
    tokenizer.chat_template = TURNS.replace("END", "<|im_end|>>") + PROMPT
    assert learned(tokenizer, QUESTION, ANSWER, QUESTION) == ["Me.<|im_end|>>"]


def test_an_answer_without_a_stop_ends_before_the_next_turn(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ '<|im_end|>' if m.role == 'user' }}{% endfor %}"
        "{{ '[assistant]' if add_generation_prompt }}"
    )
    assert learned(tokenizer, QUESTION, ANSWER, QUESTION) == ["Me."]


def test_chats_with_tools_are_asked_of_the_template_for_tools(tokenizer: PreTrainedTokenizerBase) -> None:
    plain = str(tokenizer.chat_template)
    for names in (("default", "tool_use"), ("tool_use", "default")):
        tokenizer.chat_template = dict(zip(names, (MARKED, plain), strict=True))
        for tools in ((), ({"type": "function", "function": {"name": "f"}},)):
            assert learned(tokenizer, QUESTION, ANSWER, tools=tools) == ["Me.<|im_end|>"]


def test_calls_that_a_template_leaves_out_are_named_with_their_message(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(TunesmithError) as caught:
        learned(tokenizer, QUESTION, {"role": "assistant", "content": "", "tool_calls": [CALL]})
    assert (caught.value.code, caught.value.message) == (
        "chat-template-unclear",
        "line 3: the chat template does not write the tool calls of message 2.",
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}{% endfor %}"
    with pytest.raises(TunesmithError) as caught:
        learned(tokenizer, QUESTION, ANSWER, QUESTION, {"role": "assistant", "content": "You."})
    assert caught.value.message == "line 3: the chat template hides where the answer in message 2 begins and ends."


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (CALL, '{"a": 1}'),
        ({"name": "f", "arguments": {"a": 1}}, '{"a": 1}'),
        ({"name": "f", "arguments": "text"}, '"text"'),
        ({"name": "f", "arguments": {}}, "{}"),
    ],
)
def test_calls_are_learned_whatever_their_arguments(
    tokenizer: PreTrainedTokenizerBase, call: dict[str, Any], written: str
) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for call in m.tool_calls or [] %}"
        "[{{ (call.function or call).arguments | tojson }}]{% endfor %}<|im_end|>\n{% endfor %}" + PROMPT
    )
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert learned(tokenizer, QUESTION, said, {"role": "tool", "content": "2"}, ANSWER) == [
        f"[{written}]<|im_end|>",
        "Me.<|im_end|>",
    ]
    assert learned(tokenizer, QUESTION, said | {"content": "So:"}) == [f"So:[{written}]<|im_end|>"]


def test_calls_and_words_with_the_results_between_them_are_two_stretches(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{% for call in m.tool_calls or [] %}"
        "[{{ call.function.arguments | tojson }}]<|im_end|>{{ messages[loop.index0 + 2].content }}{% endfor %}"
        "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}" + PROMPT
    )
    said = {"role": "assistant", "content": "Two.", "tool_calls": [CALL]}
    found = learned(tokenizer, QUESTION, said, {"role": "tool", "content": "2"})
    assert found == ['[{"a": 1}]<|im_end|>', "Two.<|im_end|>"]


def test_what_stands_right_behind_the_question_is_the_models_to_say(tokenizer: PreTrainedTokenizerBase) -> None:
    name = "{{ '|' + m.role + ':' if not loop.first }}"
    tokenizer.chat_template = f"{{% for m in messages %}}{name}{{{{ m.content }}}}{{% endfor %}}"
    assert learned(tokenizer, QUESTION, ANSWER) == ["|assistant:Me."]


@pytest.mark.parametrize("make", ["render", "answers"])
def test_a_chat_that_needs_too_much_memory_is_not_called_refused(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    renderer = ChatRenderer(tokenizer)

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(tokenizer, "apply_chat_template", fail)
    chat = Chat((QUESTION, ANSWER))
    with pytest.raises(MemoryError):
        renderer.text(chat, "line 3") if make == "render" else renderer.answers(chat, "text", "line 3")
