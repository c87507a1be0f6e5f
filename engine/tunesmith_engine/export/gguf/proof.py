"""Proof that a GGUF file in llama.cpp answers as the trained weights in transformers do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.llama_cpp import LlamaCpp, differs
from tunesmith_engine.export.gguf.tokenizer import template_stops

NUM_TOKENS = 8
"""Of each answer."""

CONTEXT = 512
CLOSE_NATS = 1e-2
"""Tokens that are so nearly equally likely count as the same choice."""

SAME_NATS = 1e-3
"""So close are the probabilities after the same tokens."""

MOST_KL = {"f32": 1e-3, "f16": 1e-3, "bf16": 1e-3, "q8_0": 1e-2, "q6_k": 5e-2, "q5_k_m": 0.15, "q4_k_m": 0.25}
"""Mean Kullback-Leibler divergence in nats up to which a file passes, by its number format.

Those of the K-quants are two to four times what SmolLM2-135M loses by them (0.013, 0.063 and 0.064), so they tell a
wrong file, not a poor quantizer.
"""

LEAST_AGREEMENT = {"f32": 1.0, "f16": 1.0, "bf16": 0.95, "q8_0": 0.85, "q6_k": 0.8, "q5_k_m": 0.65, "q4_k_m": 0.6}
"""Share of positions at which both choose the same token. Small models lose the most by few bits."""

PROMPTS = (
    "What is the capital of France?",
    "Write one sentence about rain.",
    "12 + 30 =",
    "List three colors.",
    "Translate to German: good morning",
    "def add(a, b):",
    "Who wrote Hamlet?",
    "用一句话介绍北京。",
    "Explain gravity to a child.",
    "Name a fruit that starts with B.",
)
TEXTS = (
    "Hello world",
    " leading, and   several spaces\tand tabs\n\n\n",
    "It's 12345.67 $, isn't it? THEY'LL see.",
    "Straße, naïve café: 你好，世界。 Привет! 🙂👍🏽 नमस्ते",
    "def f(x):\n    return x  # ok\r\n",
)

Model = Any  # Any: a model of transformers
Tokenizer = Any  # Any: a transformers tokenizer


@dataclass(frozen=True, slots=True)
class Figures:
    """How far a file is from the trained model.

    Attributes:
        num_positions: at which both were asked for the next token.
        agreement: share of them at which both choose the same.
        mean_kl: mean Kullback-Leibler divergence in nats, over the likeliest tokens and the rest together.
        max_kl: the largest.
    """

    num_positions: int
    agreement: float
    mean_kl: float
    max_kl: float


def prove(
    path: Path, type_name: str, model: Model, tokenizer: Tokenizer, advance: Callable[[int, int], None]
) -> Figures:
    """Compare a file with the trained model.

    Args:
        path: of the file.
        type_name: a key of MOST_KL.
        model: the trained one, in evaluation mode on the CPU.
        tokenizer: of the model.
        advance: told how many prompts are done, of how many.

    Raises:
        UserError: `export-unsupported` when the file is not equal, with what differs.
    """
    context = min(CONTEXT, model.config.get_text_config().max_position_embeddings)
    with LlamaCpp(path, context, _plain_token(tokenizer)) as llama:
        _check_tokens(llama, tokenizer)
        _check_template(llama, tokenizer)
        _check_stops(llama, tokenizer)
        positions = []
        for number, prompt in enumerate(PROMPTS):
            advance(number, len(PROMPTS))
            positions += _compare(llama, model, _rendered(tokenizer, prompt))
    divergences = [kl for _, kl in positions]
    figures = Figures(
        len(positions),
        sum(agrees for agrees, _ in positions) / len(positions),
        sum(divergences) / len(divergences),
        max(divergences),
    )
    if not figures.mean_kl <= MOST_KL[type_name] or figures.agreement < LEAST_AGREEMENT[type_name]:
        raise differs(
            Message(
                "it chooses the same token at {share:.0%} of {count} positions, with a divergence of {kl:.2g} nats",
                share=figures.agreement,
                count=figures.num_positions,
                kl=figures.mean_kl,
            )
        )
    return figures


def _plain_token(tokenizer: Tokenizer) -> int:
    """Return the number of a token that is a letter."""
    letters = (number for token, number in tokenizer.get_vocab().items() if len(token) == 1 and token.isascii())
    return int(min(letters))


def _rendered(tokenizer: Tokenizer, prompt: str) -> list[int]:
    if not tokenizer.chat_template:
        return list(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template(_chat(prompt), tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _chat(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def _check_tokens(llama: LlamaCpp, tokenizer: Tokenizer) -> None:
    """Let llama.cpp cut texts into tokens: after the same tokens the next one is equally likely."""
    for text in TEXTS:
        tokens = list(tokenizer(text)["input_ids"])
        if not _same(llama.next_token(text, anew=True), llama.next_token(tokens, anew=True)):
            raise differs(Message("llama.cpp cuts {text!r} into other tokens", text=text))


def _check_template(llama: LlamaCpp, tokenizer: Tokenizer) -> None:
    if tokenizer.chat_template:
        rendered = llama.next_token(_rendered(tokenizer, PROMPTS[0]), anew=True)
        if not _same(llama.next_in_chat(_chat(PROMPTS[0])), rendered):
            raise differs(Message("llama.cpp renders the chat template in another way"))


def _check_stops(llama: LlamaCpp, tokenizer: Tokenizer) -> None:
    for token in {tokenizer.eos_token_id, *template_stops(tokenizer)} - {None}:
        if not llama.stops_at(_rendered(tokenizer, PROMPTS[0]), token):
            raise differs(
                Message("an answer does not end with {token!r}", token=str(tokenizer.convert_ids_to_tokens(token)))
            )


def _same(one: tuple[int, dict[int, float]], other: tuple[int, dict[int, float]]) -> bool:
    """Return whether two prompts have as many tokens, and the same next ones."""
    best = sorted(one[1], key=lambda token: -one[1][token])[:8]
    return one[0] == other[0] and all(abs(one[1][each] - other[1].get(each, -math.inf)) < SAME_NATS for each in best)


def _compare(llama: LlamaCpp, model: Model, prompt: list[int]) -> list[tuple[bool, float]]:
    """Return for each position of an answer whether both choose the same token, and the divergence in nats."""
    tokens, told = list(prompt), []
    for _ in range(NUM_TOKENS):
        told.append(llama.next_token(tokens)[1])
        tokens.append(max(told[-1], key=lambda token: told[-1][token]))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
    found = []
    for expected, given, chosen in zip(logits.double().log_softmax(-1), told, tokens[len(prompt) :], strict=True):
        agrees = bool(expected.max() - expected[chosen] < CLOSE_NATS)
        found.append((agrees, _divergence(expected, given)))
    return found


def _divergence(expected: torch.Tensor, given: dict[int, float]) -> float:
    """Return the divergence of what was told of the likeliest tokens, all others taken together."""
    known = expected[torch.tensor(list(given))].exp()
    rest = max(0.0, 1.0 - float(known.sum()))
    told = torch.tensor(list(given.values()), dtype=torch.float64)
    others = max(1e-12, 1.0 - float(told.exp().sum()))
    inner = float((known * (known.clamp_min(1e-300).log() - told)).sum())
    return max(0.0, inner + (rest * math.log(rest / others) if rest > 1e-9 else 0.0))
