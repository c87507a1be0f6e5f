"""Chats of thousands of messages: few renderings, and the same answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.test_chat_templates import ask, say, tokenizer_of
from tunesmith_core.datafmt import Chat
from tunesmith_core.spec_sections import DataSpec
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


@pytest.mark.parametrize("num_messages", [100, 2000])
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_answer_of_a_long_chat_is_found(monkeypatch: pytest.MonkeyPatch, name: str, num_messages: int) -> None:
    said, rendered = renderings(monkeypatch, name, num_messages)
    answers = num_messages // 2
    assert len(said) == answers
    assert all(f"message {2 * number + 1}" in text for number, text in enumerate(said))
    # Whole chats, not one rendering up to each answer.
    assert rendered <= 20 * num_messages


def test_a_chat_of_ten_thousand_messages_may_be_learned_whole() -> None:
    row = Renderer(tokenizer_of("qwen3"), DataSpec(train_on="all")).render(chat_of(10_000), "line 1")
    assert row.trained == [(0, len(row.text))]
