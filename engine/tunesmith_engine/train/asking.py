"""Answers to questions of held-out rows: before the first step, on the way and at the end, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tunesmith_core.messages import Message
from tunesmith_engine.data.asked import Asked, choose, question_in
from tunesmith_engine.evaluation.metrics import right_or_wrong
from tunesmith_engine.failures import MAX_MESSAGE_CHARS
from tunesmith_engine.host import Host

if TYPE_CHECKING:
    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.evaluate import Written

MAX_TEXT_CHARACTERS = 2000
ROUND_S = 60.0
"""Of all answers of one round; what is not answered by then is left out."""

SHARE = 0.1
"""Of a run's time that answers on the way may take; those before and at the end are always given."""


class Asking:
    """Asks the model the same questions again and again.

    Args:
        host: told the answers.
        parts: rows and tokenizer.
        answer: as `Trainee.answer`.

    Attributes:
        last_step: that of the last round, None before the first.
    """

    def __init__(
        self, host: Host, parts: Parts, answer: Callable[[list[int], int, Callable[[], bool]], Written | None]
    ) -> None:
        self.last_step: int | None = None
        self._host, self._answer, self._tokenizer = host, answer, parts.tokenizer
        data = parts.data
        self._asked = choose(data.eval, data.questions) if parts.method.writes else []
        rows = [question_in(data.eval[place], text) for place, text in data.questions.items()]
        # By all rows that may be asked: the few that are say less about what is expected.
        expected = [self._text(row.expected) for row in rows if row and row.question]
        self._is_right = right_or_wrong(expected)
        self._began_s, self._spent_s, self._round_s = time.monotonic(), 0.0, 0.0

    @property
    def has_questions(self) -> bool:
        """Whether there is a row to ask."""
        return bool(self._asked)

    def is_affordable(self) -> bool:
        """Return whether another round on the way stays within the share of time that answers may take."""
        return self._spent_s + self._round_s <= SHARE * (time.monotonic() - self._began_s)

    def ask(self, step: int) -> None:
        """Ask every question and publish the answers as those of a step; a failure is a warning."""
        began_s = time.monotonic()
        self.last_step = step
        answers: list[dict[str, Any]] = []  # Any: JSON values
        cuts: list[int] = []

        def is_over() -> bool:
            self._host.progress()
            return self._host.stop_requested() or time.monotonic() - began_s > ROUND_S

        try:
            for asked in self._asked:
                written = self._answer(list(asked.prompt), asked.max_tokens, is_over)
                if is_over():
                    # The last one may be cut short.
                    break
                if written is None:
                    words = Message("There was not enough memory for an answer. It was skipped.")
                    self._host.warning("cuda-oom", words)
                    break
                answers.append(self._told(asked, written.text))
                cuts.append(written.cut_at)
        except Exception as error:
            # Training needs no answer, and transformers can't generate with every model that it trains.
            words = Message("Step {step}: {error}", step=step, error=str(error)[:MAX_MESSAGE_CHARS])
            self._host.warning("sample-failed", words)
            self._asked = []
        self._round_s = time.monotonic() - began_s
        self._spent_s += self._round_s
        if answers:
            self._host.event("answers", step=step, answers=answers, cuts=cuts, seconds=round(self._round_s, 3))

    def _told(self, asked: Asked, text: str) -> dict[str, Any]:  # Any: JSON values
        expected = self._text(asked.expected)
        texts = {"prompt": asked.question or self._text(asked.prompt), "expected": expected, "answer": text}
        told: dict[str, Any] = {name: value[:MAX_TEXT_CHARACTERS] for name, value in texts.items()}
        if self._is_right and asked.question:
            told["right"] = bool(self._is_right(text, expected))
        return told

    def _text(self, tokens: tuple[int, ...]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()
