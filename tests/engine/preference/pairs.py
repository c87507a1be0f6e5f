"""Pairs of random answers, and what a preference objective makes of them by transformers and autograd in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from peft import PeftModel

from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.preference.labeled import LabeledObjective, mismatched
from tunesmith_engine.preference.objective import PreferenceObjective


def pairs(sizes: Sequence[tuple[int, int, int]], vocab_size: int = 160) -> list[Example]:
    """Return pairs of which each has so many tokens of prompt, of the better answer and of the worse one."""
    generator = np.random.default_rng(7)
    found = []
    for num_prompt, *num_answers in sizes:
        prompt = generator.integers(3, vocab_size, num_prompt)
        answers = []
        for num in num_answers:
            ids = np.concatenate([prompt, generator.integers(3, vocab_size, num)]).astype(np.int32)
            labels = np.where(np.arange(len(ids)) < num_prompt, IGNORED_LABEL, ids).astype(np.int32)
            answers.append((ids, labels))
        found.append(Example(*answers[0], Example(*answers[1])))
    return found


def one_by_one(model: PeftModel, sequences: Sequence[Example]) -> torch.Tensor:
    """Return log-probabilities of answers, each of which goes through the model alone."""
    return torch.stack([_of_logits(_logits(model, sequence.input_ids[None])[0], sequence) for sequence in sequences])


def padded(model: PeftModel, sequences: Sequence[Example]) -> torch.Tensor:
    """Return log-probabilities of answers that go through the model together, as TRL has it."""
    longest = max(len(sequence.input_ids) for sequence in sequences)
    ids = np.stack([np.pad(sequence.input_ids, (0, longest - len(sequence.input_ids))) for sequence in sequences])
    together = zip(_logits(model, ids), sequences, strict=True)
    return torch.stack([_of_logits(logits[: len(sequence.input_ids)], sequence) for logits, sequence in together])


def in_portions(model: PeftModel, sequences: Sequence[Example]) -> torch.Tensor:
    """Return the same as `padded`, of four sequences at a time, as a step in portions has it."""
    portions = [sequences[at : at + 4] for at in range(0, len(sequences), 4)]
    return torch.cat([padded(model, portion) for portion in portions])


LogProbabilities = Callable[[PeftModel, Sequence[Example]], torch.Tensor]


def by_autograd(
    model: PeftModel,
    rows: Sequence[Example],
    objective: PreferenceObjective | LabeledObjective,
    dtype: torch.dtype,
    log_probabilities: LogProbabilities = one_by_one,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return loss and metrics, and the gradients of the adapter."""
    model = copy.deepcopy(model).to(dtype)
    sequences = [sequence for row in rows for sequence in row.sequences]
    num_tokens = torch.tensor([float(sequence.num_trained_tokens) for sequence in sequences])
    reference = None
    if objective.has_reference:
        with torch.no_grad(), model.disable_adapter():
            reference = log_probabilities(model, sequences)
    sums = log_probabilities(model, sequences)
    if isinstance(objective, LabeledObjective):
        assert reference is not None
        are_good = torch.tensor([not row.is_bad for row in rows])
        kl = _kl(model, rows, log_probabilities) if objective.needs_kl else None
        values = objective(sums, reference, are_good, len(rows), int(are_good.sum()), kl)
    else:
        num_chosen = sum(row.num_trained_tokens for row in rows)
        values = objective(sums, reference, num_tokens.to(sums.dtype), len(rows), num_chosen)
    values[0].backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return values.detach(), gradients


def _kl(model: PeftModel, rows: Sequence[Example], log_probabilities: LogProbabilities) -> torch.Tensor:
    others = mismatched(rows, 1000)
    with torch.no_grad():
        now = log_probabilities(model, others)
        with model.disable_adapter():
            return (now - log_probabilities(model, others)).mean().clamp(min=0)


def labeled(sizes: Sequence[tuple[int, int]], vocab_size: int = 160) -> list[Example]:
    """Return answers with so many tokens of prompt and of answer, good and bad ones by turns."""
    rows = pairs([(num_prompt, num, 1) for num_prompt, num in sizes], vocab_size)
    return [replace(row, rejected=None, is_bad=place % 2 == 1) for place, row in enumerate(rows)]


def _logits(model: PeftModel, ids: NDArray[np.int32]) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.from_numpy(ids).long()).logits
    return logits if logits.dtype == torch.float64 else logits.float()


def _of_logits(logits: torch.Tensor, sequence: Example) -> torch.Tensor:
    labels = torch.from_numpy(sequence.labels).long()[1:]
    return -torch.nn.functional.cross_entropy(logits[:-1], labels, ignore_index=IGNORED_LABEL, reduction="sum")
