"""Blind votes on answers of a run: two answers without names, which one a person found better, and what that tells.

The votes of a run are lines of one file in its folder. A line that can't be read is left alone and told.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core import adapter_folders, files, json_values, paths, presets
from tunesmith_core.conversations import Answer
from tunesmith_core.datafmt.formats import PREFERENCE
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.json_values import is_text, is_time
from tunesmith_core.locks import FileLock
from tunesmith_core.messages import Message
from tunesmith_core.operations.kinds.chat import BASE, TUNED
from tunesmith_core.protocol import Event
from tunesmith_core.report.facts import read
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_objective import ObjectiveSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.vote_counts import FEW_VOTES, Count, name_of

VERSION = 1
FILE = "votes.jsonl"
LOCK_PATIENCE_S = 10.0

A_BETTER, B_BETTER, SAME, BOTH_BAD = "a", "b", "same", "bad"
CHOICES = (A_BETTER, B_BETTER, SAME, BOTH_BAD)
"""What a person can say of two answers, in the order of the keys 1 to 4."""

SAMPLING = Sampling(max_tokens=256)
"""How both models answer: always the likeliest token, so that chance favors neither."""

Prompt = list[dict[str, str]]
"""Messages with role and content; the last one is the question."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Who answers.

    Attributes:
        side: one of `SIDES`.
        checkpoint: as in `ChatSpec`; 0 for the base model.
    """

    side: str = TUNED
    checkpoint: int = 0


BASE_MODEL = Contender(BASE)


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that was shown, and the step after which the weights that gave it were saved; 0 for the base model."""

    step: int
    text: str

    @property
    def name(self) -> Message:
        """Who gave it, for a person."""
        return name_of(self.step)


@dataclass(frozen=True, slots=True)
class Vote:
    """What a person said of two answers to a question.

    Attributes:
        a, b: the answers as they were shown.
        choice: one of `CHOICES`.
        at: seconds since 1970.
    """

    prompt: Prompt
    a: Given
    b: Given
    choice: str
    at: float = field(default_factory=lambda: round(time.time(), 3))

    @property
    def better(self) -> Given | None:
        """The answer that was found better, None for neither; of two that read the same none is."""
        return {A_BETTER: self.a, B_BETTER: self.b}.get(self.choice) if self.a.text != self.b.text else None

    @property
    def note(self) -> Message | None:
        """What to know of a vote for one of two answers that read the same; None for every other one."""
        if self.choice not in (A_BETTER, B_BETTER) or self.better:
            return None
        return Message("Both answers are the same word for word, so this counts as the same.")

    @property
    def steps(self) -> tuple[int, int]:
        """The steps of both, the later first."""
        return max(self.a.step, self.b.step), min(self.a.step, self.b.step)

    def pair(self) -> dict[str, Any] | None:  # Any: JSON values
        """Return it as a row of preference data, None where neither was found better."""
        chosen = self.better
        if chosen is None:
            return None
        rejected = self.b if chosen is self.a else self.a
        answers = {
            name: [{"role": "assistant", "content": given.text}]
            for name, given in (("chosen", chosen), ("rejected", rejected))
        }
        return {"prompt": self.prompt, **answers}

    @staticmethod
    def from_dict(values: Any) -> Vote:  # Any: JSON values
        """Rebuild a vote from a line of the file. Raises ValueError for anything else."""
        try:
            if values["version"] != VERSION:
                raise ValueError("not a vote of this version")
            a, b = (Given(**values[place]) for place in ("a", "b"))
            vote = Vote(values["prompt"], a, b, values["choice"], values["at"])
            texts = [a.text, b.text, *(each[key] for each in vote.prompt for key in ("role", "content"))]
            steps = all(type(each.step) is int and each.step >= 0 for each in (a, b)) and a.step != b.step
            is_sound = steps and is_time(vote.at) and vote.choice in CHOICES and all(map(is_text, texts))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a vote: {error}") from error
        if not is_sound or not vote.prompt:
            raise ValueError("not a vote")
        return vote


def prompt(question: str, system: str) -> Prompt:
    """Return a question as messages, behind the system prompt where there is one."""
    said = [{"role": "system", "content": system}] if system else []
    return [*said, {"role": "user", "content": question}]


def held_out_questions(run: Run) -> list[str]:
    """Return the held-out questions that a run asked itself, each once."""
    return list(dict.fromkeys(asked.prompt for asked in read(run).answers if asked.prompt))


class Contest:
    """One question on its way to a vote: who is A is drawn, and the answers are collected.

    Attributes:
        prompt: what both are asked.
        order: who is asked first, and second; it says nothing about who is A.
        error: why there is nothing to vote on.
    """

    def __init__(self, prompt: Prompt, contenders: tuple[Contender, Contender]) -> None:
        self.prompt = prompt
        self.order = contenders
        self.error: TunesmithError | None = None
        self._answers: dict[Contender, Answer] = {}
        self._words = ""
        self._shown = draw(contenders)

    @property
    def is_over(self) -> bool:
        """Whether both have ended."""
        return len(self._answers) == len(self.order)

    @property
    def is_answered(self) -> bool:
        """Whether both answers are there, whole, and not of the same weights."""
        ended = all(answer.status in ("end", "length") for answer in self._answers.values())
        return self.is_over and ended and self.error is None

    def take(self, event: Event) -> None:
        """Take a piece or the end of the answer under way into account."""
        data = event.data
        if event.type == "piece" and not data.get("thinking"):
            self._words += data.get("text") or ""
        elif event.type == "done" and not self.is_over:
            answer = Answer(self._words)
            answer.fold(data)
            self._words = ""
            self._answers[self.order[len(self._answers)]] = answer
            if data.get("error"):
                self.error = TunesmithError.from_dict(data["error"])
            elif self.is_answered and len({given.step for given in self.shown()}) == 1:
                self.error = TunesmithError(
                    "usage", "Both are the weights of step {step}. Compare with another checkpoint.", step=answer.step
                )

    def shown(self) -> tuple[Given, Given]:
        """Return the answers A and B."""
        a, b = (self._given(contender) for contender in self._shown)
        return a, b

    def vote(self, choice: str) -> Vote:
        """Return what a person says of the answers."""
        return Vote(self.prompt, *self.shown(), choice)

    def _given(self, contender: Contender) -> Given:
        answer = self._answers[contender]
        return Given(0 if contender.side == BASE else answer.step, answer.text)


def draw(contenders: tuple[Contender, Contender]) -> tuple[Contender, Contender]:
    """Return who is A and who is B, by chance that nothing can foresee."""
    a, b = random.SystemRandom().sample(contenders, 2)
    return a, b


# The file


@dataclass(frozen=True, slots=True)
class Kept:
    """What the file of a run holds; `num_unreadable` of its lines are no votes of this version."""

    votes: list[Vote] = field(default_factory=list)
    num_unreadable: int = 0

    @property
    def warning(self) -> Message | None:
        """What a person must know of lines that can't be read."""
        if not self.num_unreadable:
            return None
        return Message(
            "{num} lines of {file} can't be read and are not counted. They stay in the file.",
            num=self.num_unreadable,
            file=FILE,
        )

    def counted(self) -> list[Vote]:
        """Return the votes that count: of several on the same answers to the same question only the last."""
        last = {}
        for vote in self.votes:
            answers = sorted((given.step, given.text) for given in (vote.a, vote.b))
            last[json.dumps([vote.prompt, answers])] = vote
        return list(last.values())

    def counts(self) -> list[Count]:
        """Return how the votes stand for each two that were compared, those with the most votes first."""
        found: dict[tuple[int, int], Count] = {}
        for vote in self.counted():
            count = found.setdefault(vote.steps, Count(*vote.steps))
            if vote.better is not None:
                is_later = vote.better.step == count.later
                count.better, count.worse = count.better + is_later, count.worse + (not is_later)
            elif vote.choice == BOTH_BAD:
                count.bad += 1
            else:
                count.same += 1
        return sorted(found.values(), key=lambda count: -count.num_votes)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the result as JSON values, for programs."""
        return {
            "votes": len(self.votes),
            "unreadable": self.num_unreadable,
            "counts": [count.to_dict() for count in self.counts()],
        }


def load(run: Run) -> Kept:
    """Return the votes of a run. Raises TunesmithError as `wrap` when the file can't be read."""
    path = run.path / FILE
    try:
        if not path.exists():
            return Kept()
        with files.open_file(path) as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise wrap(error) from error
    found, num_unreadable = [], 0
    for line in filter(bytes.strip, lines):
        try:
            found.append(Vote.from_dict(json_values.parse(line)))
        except ValueError:
            num_unreadable += 1
    return Kept(found, num_unreadable)


def save(run: Run, vote: Vote) -> None:
    """Append a vote to those of a run; another window may do so at the same time. Raises TunesmithError as `wrap`."""
    try:
        with FileLock(paths.locks_dir() / "votes.lock").waiting(LOCK_PATIENCE_S):
            files.append_json_line(run.path / FILE, {"version": VERSION, **asdict(vote)})
    except OSError as error:
        raise wrap(error) from error


def pairs(votes: Sequence[Vote]) -> list[dict[str, Any]]:  # Any: JSON values
    """Return the votes that preferred an answer as preference pairs: prompt, chosen and rejected, as messages."""
    return [pair for vote in votes if (pair := vote.pair())]


def save_pairs(path: Path, kept: Kept) -> int:
    """Write the preference pairs of a run's votes as a JSONL file and return how many. Raises TunesmithError."""
    rows = pairs(kept.counted())
    try:
        files.atomic_write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    except OSError as error:
        raise wrap(error) from error
    return len(rows)


def spec_to_train(run: Run, kept: Kept) -> RunSpec:
    """Write the preference pairs of a run's votes and return the spec of a run that learns from them.

    It continues the adapter that was voted on, where the run has made one that can be trained further, else begins with
    its base model and how its adapter is set. The device is the same.

    Raises:
        TunesmithError: `dataset-empty` without a vote that prefers an answer; as `wrap`.
    """
    num = len(pairs(kept.counted()))
    if not num:
        raise TunesmithError("dataset-empty", "No vote prefers an answer yet, so there are no pairs to learn from.")
    # Each number of votes has a file of its own, so that more votes change no run that has begun.
    path = paths.data_root() / "votes" / f"{run.id}-{num}.jsonl"
    try:
        files.private_folder(path.parent)
    except OSError as error:
        raise wrap(error) from error
    save_pairs(path, kept)
    old = run.load_spec()
    spec = presets.apply(RunSpec(model=old.model, objective=ObjectiveSpec(kind="dpo")), presets.DEFAULT)
    spec.adapter, spec.quantization, spec.hardware = old.adapter, old.quantization, old.hardware
    spec.data.sources = [SourceSpec(path=str(path), format=PREFERENCE)]
    spec.data.context_length = old.data.context_length
    with contextlib.suppress(TunesmithError):
        adapter_folders.read_adapter(run.adapter_path)
        spec.adapter.start_from = str(run.adapter_path)
        adapter_folders.take_settings(spec)
    return spec


def too_few(kept: Kept) -> Message | None:
    """Return what a person should know before training on few votes."""
    num = len(pairs(kept.counted()))
    if num > FEW_VOTES:
        return None
    if num == 1:
        return Message(
            "One vote teaches the model next to nothing. At best it repeats that one answer. More than {few} votes "
            "are a start, and more are better.",
            few=FEW_VOTES,
        )
    return Message(
        "{num} votes teach the model little. It may learn these answers by heart and answer everything else as before. "
        "More than {few} votes are a start, and more are better.",
        num=num,
        few=FEW_VOTES,
    )
