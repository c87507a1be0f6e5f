"""What is wrong with new words, and with what is trained whole beside an adapter."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.declared import FieldProblem
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.objectives import DISTILLATION
from tunesmith_core.spec_sections import FROZEN_EMBEDDINGS, NEW_EMBEDDINGS
from tunesmith_core.trained_parts import ALL, EMBEDDINGS, FULL, LORA

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec

MOST_WORDS = 20_000
LONGEST_WORD = 64
"""Characters."""


def trained_embeddings(spec: RunSpec) -> str:
    """Return what of the embeddings a run trains beside its adapter, as `adapter.embeddings`."""
    return spec.adapter.embeddings if spec.adapter.kind == LORA else FROZEN_EMBEDDINGS


def trained_modules(spec: RunSpec) -> list[str]:
    """Return the other modules that a run trains whole beside its adapter, as `adapter.modules_to_save`."""
    return spec.adapter.modules_to_save if spec.adapter.kind == LORA else []


def trains_whole(spec: RunSpec) -> bool:
    """Return whether anything is trained whole beside the adapter."""
    return trained_embeddings(spec) != FROZEN_EMBEDDINGS or bool(trained_modules(spec))


def word_problems(spec: RunSpec) -> list[FieldProblem]:
    """Return what is wrong with new words, and with embeddings that should or can't be trained."""
    words = spec.model.new_tokens
    problems = [FieldProblem("model.new_tokens", problem) for problem in [_problem(words)] if problem]
    if words and spec.objective.kind in DISTILLATION:
        text = Message("can't be used here, because the bigger model doesn't know them. Leave it empty")
        problems.append(FieldProblem("model.new_tokens", text))
    if spec.adapter.kind == FULL:
        parts = spec.adapter.parts
        if words and parts != ALL and EMBEDDINGS not in parts:
            text = Message("must hold embeddings, so that the new words are learned")
            problems.append(FieldProblem("adapter.parts", text))
        return problems
    if spec.adapter.kind in KINDS:
        if words:
            kind = KINDS[spec.adapter.kind].title
            text = Message("must be empty for {kind}. New words are learned by LoRA or full fine-tuning", kind=kind)
            problems.append(FieldProblem("model.new_tokens", text))
        return problems
    if words and spec.adapter.embeddings == FROZEN_EMBEDDINGS:
        text = Message("must be New words only or All, so that the new words (model.new_tokens) are learned")
        problems.append(FieldProblem("adapter.embeddings", text))
    if not words and spec.adapter.embeddings == NEW_EMBEDDINGS:
        text = Message("has nothing to train without new words. Add some, or choose Frozen")
        problems.append(FieldProblem("adapter.embeddings", text))
    if not all(name.strip() for name in spec.adapter.modules_to_save):
        problems.append(FieldProblem("adapter.modules_to_save", Message("must not hold an empty name")))
    return problems


def _problem(words: list[str]) -> Message | None:
    if len(words) > MOST_WORDS:
        return Message("must be at most {most} words", most=MOST_WORDS)
    if any(not word.strip() for word in words):
        return Message("must not hold an empty word")
    spaced = next((word for word in words if word != word.strip() or "\n" in word), None)
    if spaced is not None:
        return Message("must not begin or end with a space: {word!r}", word=shortened(spaced))
    long = next((word for word in words if len(word) > LONGEST_WORD), None)
    if long is not None:
        word = shortened(long)
        return Message("must be words of at most {most} characters, not {word}", most=LONGEST_WORD, word=word)
    twice = [word for word, count in Counter(words).items() if count > 1]
    return Message("holds {word} twice", word=shortened(twice[0])) if twice else None
