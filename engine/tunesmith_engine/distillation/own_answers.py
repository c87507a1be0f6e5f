"""Answers that a model writes itself, to learn from its teacher what would have been better at each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.sampling import Sampling
from tunesmith_engine.data.asked import question_in
from tunesmith_engine.data.example import IGNORED_LABEL, Example
from tunesmith_engine.decode import MOST_ROWS, end_tokens
from tunesmith_engine.train.oom import is_out_of_memory

if TYPE_CHECKING:
    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.loss_paths import LossPath

SEEDS = 2**63 - 1


class OwnAnswers:
    """Writes answers to the prompts of steps that learn from them. Which these are depends on the seed alone.

    Args:
        parts: rows, tokenizer and settings.
        path: answers by its decoder.
        warn: takes a code and a sentence.

    Raises:
        UserError: `teacher-unsuitable` where a row has no prompt.
    """

    def __init__(self, parts: Parts, path: LossPath, warn: Callable[[str, str], None]) -> None:
        self._path, self._warn = path, warn
        self._settings, self._seed = parts.spec.teacher, parts.spec.schedule.seed
        self._ends = end_tokens(parts.model.get_base_model(), parts.tokenizer)
        self._prompts = [_prompt_of(row) for row in parts.data.train] if self._settings.own_answers else []
        self._rows_at_once = MOST_ROWS

    def are_learned(self, step: int) -> bool:
        """Return whether a step, from 0, learns from own answers; with probability lambda, as in GKD's algorithm 1."""
        if not self._prompts:
            return False
        return bool(np.random.default_rng([self._seed, step]).random() < self._settings.own_answers)

    def rows(self, rows: Sequence[int], step: int, should_stop: Callable[[], bool]) -> list[Example] | None:
        """Return the answers to the prompts of training rows; None after a stop.

        Args:
            rows: their numbers.
            step: from 0; the same step with the same weights gives the same answers.
            should_stop: asked every few tokens.
        """
        prompts = [self._prompts[row] for row in rows]
        seed = int(np.random.SeedSequence([self._seed, step]).generate_state(1, np.uint64)[0] >> 2)
        written: list[list[int]] = []
        decoder = self._path.decoder()
        while len(written) < len(prompts):
            some = prompts[len(written) : len(written) + self._rows_at_once]
            # By the place of the first one: however many are answered at once, none is answered twice alike.
            place = (seed + len(written)) % SEEDS
            sampling = Sampling(self._settings.max_tokens, temperature=1.0, seed=place)
            try:
                written += decoder.generate(some, sampling, self._ends, should_stop=should_stop, keeps_end=True)
            except (RuntimeError, MemoryError) as error:
                if len(some) == 1 or not is_out_of_memory(error):
                    raise
                decoder.release()
                self._use_less(len(some) // 2)
            if should_stop():
                return None
        decoder.release()
        return [_joined(prompt, tokens) for prompt, tokens in zip(prompts, written, strict=True)]

    def trial_rows(self, num_rows: int) -> list[Example]:
        """Return rows as long as any may get, for a trial of the memory; [] where none are written."""
        if not self._prompts:
            return []
        longest = max(self._prompts, key=len)
        return [_joined(longest, [min(self._ends, default=0)] * self._settings.max_tokens)] * num_rows

    def _use_less(self, num_rows: int) -> None:
        self._rows_at_once = num_rows
        words = Message("There was not enough memory for the answers. {num} are written at once.", num=num_rows)
        self._warn("cuda-oom", words)
        torch.cuda.empty_cache()


def _prompt_of(row: Example) -> tuple[int, ...]:
    asked = question_in(row, "asked")
    if asked is None or not asked.question:
        raise TunesmithError(
            "teacher-unsuitable",
            "The data holds a row without a prompt of its own, such as plain text. The model can't answer it itself.",
            hint=Message("Set the share of own answers to 0 (teacher.own_answers), or use prompts with answers."),
        )
    return asked.prompt


def _joined(prompt: Sequence[int], answer: Sequence[int]) -> Example:
    return Example(
        np.array([*prompt, *answer], dtype=np.int32),
        np.array([*[IGNORED_LABEL] * len(prompt), *answer], dtype=np.int32),
    )
