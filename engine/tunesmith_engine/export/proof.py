"""Proof that an export answers as the trained weights do: the same prompts through both, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from peft import PeftModel

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_engine.model.heads import has_head

NUM_TOKENS = 8
"""Of each answer."""

MOST_LIKELY = 64
"""So many of the next tokens llama.cpp tells, and the rest together: all of a large vocabulary would take minutes."""

CONTEXT = 512
CLOSE_NATS = 1e-2
"""Tokens that are so nearly equally likely count as the same choice."""

EQUAL_NATS = 1e-3
"""Mean divergence up to which two programs compute the same with the same weights."""

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
    "Say hello.",
    "Is the earth flat?",
    "¿Cuántos días tiene una semana?",
    "Complete: roses are red,",
    "SELECT name FROM users WHERE",
    "What comes after Wednesday?",
    '{"city": "Rome", "country":',
    "Почему небо голубое?",
    "Give me a word that rhymes with cat.",
    "Summarize: The meeting was moved to Friday.",
)

Config = Any  # Any: the config of a model
Model = Any  # Any: a model of transformers
Tokenizer = Any  # Any: a transformers tokenizer
Choice = tuple[bool, float]
"""Whether both choose the same token, and the divergence in nats."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the trained model answers to a prompt, word for word as likely as it says.

    Attributes:
        tokens: of prompt and answer.
        num_prompt: how many of them are the prompt.
        expected: log-probabilities in nats of every token at each position of the answer, [positions, vocabulary].
    """

    tokens: list[int]
    num_prompt: int
    expected: torch.Tensor


@dataclass(frozen=True, slots=True)
class Figures:
    """How far an export is from the trained model.

    Attributes:
        num_prompts: that both were asked.
        num_positions: at which both were asked for the next token.
        agreement: share of them at which both choose the same.
        mean_kl: mean Kullback-Leibler divergence in nats; for llama.cpp of the likeliest tokens, see MOST_LIKELY.
        max_kl: the largest.
    """

    num_prompts: int
    num_positions: int
    agreement: float
    mean_kl: float
    max_kl: float


def figures_of(choices: Sequence[Sequence[Choice]]) -> Figures:
    """Return the figures of what was found, for each prompt and position."""
    flat = [choice for each in choices for choice in each]
    divergences = [kl for _, kl in flat]
    agreement = sum(agrees for agrees, _ in flat) / len(flat)
    return Figures(len(choices), len(flat), agreement, math.fsum(divergences) / len(flat), max(divergences))


def prompt_tokens(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Return the tokens of a question as the model is asked it."""
    if not tokenizer.chat_template:
        return list(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template(chat(prompt), tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def chat(prompt: str) -> list[dict[str, str]]:
    """Return a chat of one question."""
    return [{"role": "user", "content": prompt}]


def context_of(config: Config) -> int:
    """Return how many tokens a proof of a model with a config may use."""
    return min(CONTEXT, getattr(config.get_text_config(), "max_position_embeddings", None) or CONTEXT)


def trained_answers(
    model: Model, tokenizer: Tokenizer, advance: Callable[[int, int], None], own: Sequence[list[int]] = ()
) -> list[Answer]:
    """Return what the trained model answers.

    Args:
        model: in evaluation mode on the CPU.
        tokenizer: of the model.
        advance: told how many prompts are done, of how many.
        own: tokens of texts to rate in place of the prompts: what tells those apart says little of others.
    """
    room = context_of(model.config) - NUM_TOKENS
    asked_for = own or [prompt_tokens(tokenizer, prompt) for prompt in PROMPTS]
    answers = []
    for number, whole in enumerate(asked_for):
        advance(number, len(asked_for))
        asked = whole[:room]
        # Behind a text that is rated comes nothing; the place of an answer's end stays empty.
        tokens = [*asked, 0] if _rates(model) else _continued(model, asked)
        answers.append(Answer(tokens, len(asked), _log_probabilities(model, tokens[:-1], len(asked) - 1)))
    return answers


def _continued(model: Model, asked: list[int]) -> list[int]:
    """Return tokens with the likeliest answer."""
    try:
        return _continued_by_cache(model, asked)
    except Exception:
        # Types with states instead of keys and values keep them in ways of their own. Only the time differs.
        tokens = list(asked)
        for _ in range(NUM_TOKENS):
            tokens.append(int(_log_probabilities(model, tokens, len(tokens) - 1).argmax()))
        return tokens


def _continued_by_cache(model: Model, asked: list[int]) -> list[int]:
    tokens, given = list(asked), list(asked)
    kept: dict[str, Any] = {}  # Any: a cache of transformers
    for _ in range(NUM_TOKENS):
        with torch.no_grad():
            told = model(input_ids=torch.tensor([given]), use_cache=True, **kept)
        tokens.append(int(told.logits[0, -1].argmax()))
        kept, given = {"past_key_values": told.past_key_values}, tokens[-1:]
    return tokens


def compare(answers: Iterable[Answer], model: Model, *, as_llama_cpp: bool = False) -> Figures:
    """Return how far a model in transformers is from the trained one.

    Args:
        answers: of the trained model.
        model: in evaluation mode on the CPU.
        as_llama_cpp: whether only as much is looked at as llama.cpp tells, so that its figures can be compared.
    """
    choose = _likeliest_choice if as_llama_cpp else _choice
    found = []
    for answer in answers:
        given = _log_probabilities(model, answer.tokens[:-1], answer.num_prompt - 1)
        found.append([choose(*pair) for pair in zip(answer.expected, given, strict=True)])
    return figures_of(found)


def _likeliest_choice(expected: torch.Tensor, given: torch.Tensor) -> Choice:
    best = given.topk(min(MOST_LIKELY, len(given)))
    return choice(expected, dict(zip(best.indices.tolist(), best.values.tolist(), strict=True)))


def choice(expected: torch.Tensor, given: Mapping[int, float]) -> Choice:
    """Return what was told of the likeliest tokens beside what was expected, all other tokens taken together."""
    expected = expected.double()
    known = expected[torch.tensor(list(given))].exp()
    rest = max(0.0, 1.0 - float(known.sum()))
    told = torch.tensor(list(given.values()), dtype=torch.float64)
    others = max(1e-12, 1.0 - float(told.exp().sum()))
    inner = float((known * (known.clamp_min(1e-300).log() - told)).sum())
    kl = max(0.0, inner + (rest * math.log(rest / others) if rest > 1e-9 else 0.0))
    return _agrees(expected, max(given, key=lambda token: given[token])), kl


def _choice(expected: torch.Tensor, given: torch.Tensor) -> Choice:
    expected, given = expected.double(), given.double()
    inner = torch.where(expected.isfinite(), expected.exp() * (expected - given), 0.0)
    return _agrees(expected, int(given.argmax())), max(0.0, float(inner.sum()))


def _agrees(expected: torch.Tensor, chosen: int) -> bool:
    """Return whether a token is the likeliest one, or as likely."""
    return bool(expected.max() - expected[chosen] < CLOSE_NATS)


def _log_probabilities(model: Model, tokens: list[int], first: int) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
    if _rates(model):
        # A single score is taken for that of a choice between two.
        logits = torch.cat([logits, torch.zeros_like(logits)], -1) if logits.shape[-1] == 1 else logits
        logits = logits[:, -1] if logits.ndim == 3 else logits
    else:
        logits = logits[0, first:]
    return logits.double().log_softmax(-1).float()


def _rates(model: Model) -> bool:
    return has_head(model.get_base_model() if isinstance(model, PeftModel) else model)


def passed(figures: Figures, nats: float, reference: Figures | None = None) -> dict[str, Any]:  # Any: JSON values
    """Return the proof of an export that is equal.

    Args:
        figures: of the export.
        nats: mean divergence that two programs may have.
        reference: of the trained model with rounded numbers, None for a format that rounds nothing.

    Raises:
        RunFailure: `export-differs` when it is not equal.
    """
    # The effects on logits add up, and the divergence grows with their square.
    most = (math.sqrt(nats) + math.sqrt(reference.mean_kl)) ** 2 if reference else nats
    least = 0.0 if reference else 1.0
    if not figures.mean_kl <= most or figures.agreement < least:
        raise differs(
            Message(
                "it chooses the same token at {share:.0%} of {count} positions, with a divergence of {kl:.2g} nats, "
                "where 0 is equal",
                share=figures.agreement,
                count=figures.num_positions,
                kl=figures.mean_kl,
            )
        )
    limits: dict[str, Any] = {"most_mean_kl": most, "least_agreement": least}  # Any: JSON values
    return {"passed": True, **asdict(figures), **limits, "rounding": asdict(reference) if reference else None}


def differs(reason: str) -> TunesmithError:
    """Return the error about an export that is not what was trained."""
    return TunesmithError(
        "export-differs", "The export is not equal to the trained model, so it was not kept: {reason}.", reason=reason
    )
