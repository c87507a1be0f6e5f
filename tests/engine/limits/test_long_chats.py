"""Chats of thousands of messages: few renderings, the same answers, and a stated end where it would take too long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.test_chat_templates import ask, say, tokenizer_of
from tunesmith_core.datafmt import Chat
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import DataSpec
from tunesmith_engine.data.answers import MAX_MESSAGES
from tunesmith_engine.data.render import Renderer

TEMPLATES = ("llama3", "qwen2_5", "qwen3", "lfm2_v2")


def chat_of(num_messages: int) -> Chat:
    """Return a chat of short messages."""
    return Chat(tuple((say if number % 2 else ask)(f"message {number}") for number in range(num_messages)))


def renderings(monkeypatch: pytest.MonkeyPatch, name: str, num_messages: int) -> tuple[list[str], int]:
    """Return what is learned of such a chat, and how many messages were rendered for it in all."""
    tokenizer = tokenizer_of(name)
    rendered, render = [0], tokenizer.apply_chat_template

    def counted(messages: list[Any], *arguments: Any, **options: Any) -> Any:
        rendered[0] += len(messages)
        return render(messages, *arguments, **options)

    monkeypatch.setattr(tokenizer, "apply_chat_template", counted)
    row = Renderer(tokenizer, DataSpec()).render(chat_of(num_messages), "line 1")
    return [row.text[start:end] for start, end in row.trained], rendered[0]


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_answer_of_a_long_chat_is_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    num_messages = 100
    said, rendered = renderings(monkeypatch, name, num_messages)
    answers = num_messages // 2
    assert len(said) == answers
    assert all(f"message {2 * number + 1}" in text for number, text in enumerate(said))
    # Once up to each answer; two more of the whole chat only for an answer that does not follow its prompt at once.
    assert rendered <= (answers + 20) * num_messages


@pytest.mark.long
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("num_messages", [1000, MAX_MESSAGES])
def test_every_answer_of_a_very_long_chat_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, num_messages: int
) -> None:
    said, rendered = renderings(monkeypatch, name, num_messages)
    assert len(said) == num_messages // 2
    assert rendered <= (num_messages // 2 + 20) * num_messages


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_without_end_is_a_bad_row_unless_all_is_learned(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(UserError, match=r"line 1: the chat has 10,000 messages") as caught:
        renderings(monkeypatch, name, 10_000)
    assert caught.value.code == "dataset-parse-error"
    row = Renderer(tokenizer_of(name), DataSpec(train_on="all")).render(chat_of(10_000), "line 1")
    assert row.trained == [(0, len(row.text))]
