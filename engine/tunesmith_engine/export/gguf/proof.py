"""Proof that a GGUF file in llama.cpp answers as the trained weights in transformers do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.llama_cpp import LlamaCpp
from tunesmith_engine.export.gguf.tokenizer import is_blind_to_marks, template_stops
from tunesmith_engine.export.proof import (
    PROMPTS,
    Answer,
    Choice,
    Figures,
    Tokenizer,
    chat,
    choice,
    differs,
    figures_of,
    prompt_tokens,
)

SAME_TOKENS_NATS = 1e-3
"""Two prompts are the same tokens where the log-probabilities of what comes next differ by less."""

TEXTS = (
    "Hello world",
    " leading, and   several spaces\tand tabs\n\n\n",
    "It's 12345.67 $, isn't it? THEY'LL see.",
    "Straße, naïve café: 你好，世界。 Привет! 🙂👍🏽",
    "def f(x):\n    return x  # ok\r\n/HTMLParser/getURL",
)
MARKED = "नमस्ते दुनिया, สวัสดี"
"""Of scripts whose letters are followed by combining marks."""


def ask_file(llama: LlamaCpp, answers: Sequence[Answer], tokenizer: Tokenizer) -> Figures:
    """Return how far a file is from the trained model.

    Args:
        llama: with the file.
        answers: of the trained model.
        tokenizer: of the model.

    Raises:
        RunFailure: `export-differs` when tokens, chat template or stop tokens differ, with what does.
    """
    check_texts(llama, tokenizer)
    return figures_of([_compare(llama, answer) for answer in answers])


def check_texts(llama: LlamaCpp, tokenizer: Tokenizer) -> None:
    """Check that a file takes texts and chats for the same tokens, and ends answers as the tokenizer does.

    Raises:
        RunFailure: `export-differs`, with what does.
    """
    _check_tokens(llama, tokenizer)
    _check_template(llama, tokenizer)
    _check_stops(llama, tokenizer)


def plain_token(tokenizer: Tokenizer) -> int:
    """Return the number of a token that is a letter."""
    letters = (number for token, number in tokenizer.get_vocab().items() if len(token) == 1 and token.isascii())
    return int(min(letters))


def _check_tokens(llama: LlamaCpp, tokenizer: Tokenizer) -> None:
    """Let llama.cpp cut texts into tokens: after the same tokens the next one is equally likely."""
    for text in TEXTS if is_blind_to_marks(tokenizer) else (*TEXTS, MARKED):
        tokens = list(tokenizer(text)["input_ids"])
        if not _same(llama.next_token(text, anew=True), llama.next_token(tokens, anew=True)):
            raise differs(Message("llama.cpp cuts {text!r} into other tokens", text=text))


def _check_template(llama: LlamaCpp, tokenizer: Tokenizer) -> None:
    if tokenizer.chat_template:
        rendered = llama.next_token(prompt_tokens(tokenizer, PROMPTS[0]), anew=True)
        if not _same(llama.next_in_chat(chat(PROMPTS[0])), rendered):
            raise differs(Message("llama.cpp renders the chat template in another way"))


def _check_stops(llama: LlamaCpp, tokenizer: Tokenizer) -> None:
    for token in {tokenizer.eos_token_id, *template_stops(tokenizer)} - {None}:
        if not llama.stops_at(prompt_tokens(tokenizer, PROMPTS[0]), token):
            raise differs(
                Message("an answer does not end with {token!r}", token=str(tokenizer.convert_ids_to_tokens(token)))
            )


def _same(one: tuple[int, dict[int, float]], other: tuple[int, dict[int, float]]) -> bool:
    """Return whether two prompts have as many tokens, and the same next ones."""
    best = sorted(one[1], key=lambda token: -one[1][token])[:8]
    differences = (abs(one[1][each] - other[1].get(each, -math.inf)) for each in best)
    return one[0] == other[0] and all(difference < SAME_TOKENS_NATS for difference in differences)


def _compare(llama: LlamaCpp, answer: Answer) -> list[Choice]:
    places = enumerate(answer.expected, answer.num_prompt)
    return [choice(expected, llama.next_token(answer.tokens[:place])[1]) for place, expected in places]
