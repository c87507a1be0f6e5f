"""What the report tells, folded from a run's journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tunesmith_core import agreement, preferences, rewards, sorting, source_losses
from tunesmith_core.answered import Answered, forget_answers, take_answers
from tunesmith_core.outcome import Verdict
from tunesmith_core.protocol import Event, JournalReader
from tunesmith_core.runs import Run, RunStatus
from tunesmith_core.source_losses import SourceLoss
from tunesmith_core.verdict import Measured, judge

Series = dict[int, float]
"""Values by step; what was measured again after a resume replaces what was measured before."""


Numbers = dict[int, dict[str, float]]


NUMBERS = ("pairs", "labels", "rewards", "teacher")
"""What runs measure beside a loss, each kind for those that learn from it."""


@dataclass(slots=True)
class Facts:
    """What a journal says about a run.

    Attributes:
        training, held_out: losses in nats per token, or per pair; held out of runs that learn from rewards, minus
            the mean reward.
        source_losses: those of each data file where rows of several are held out, by step.
        numbers: what else is told of steps and evaluations, by what is learned from and by step.
        answers: to questions of held-out rows, in the order in which they were first asked.
        comparison: fields of the last event `comparison`.
        samples: for each prompt what the model wrote; nothing is expected of it.
        warnings: each once, in the order of their first coming.
        engine, setup: fields of the last events `hello` and `setup`.
    """

    status: RunStatus = field(default_factory=RunStatus)
    training: Series = field(default_factory=dict)
    held_out: Series = field(default_factory=dict)
    source_losses: dict[int, list[SourceLoss]] = field(default_factory=dict)
    numbers: dict[str, Numbers] = field(default_factory=lambda: {name: {} for name in NUMBERS})
    answers: list[Answered] = field(default_factory=list)
    comparison: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    samples: dict[str, Answered] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    setup: dict[str, Any] = field(default_factory=dict)  # Any: JSON values

    @property
    def pairs(self) -> Numbers:
        """Of runs that learn from pairs, how well held-out ones are told apart."""
        return self.numbers["pairs"]

    @property
    def labels(self) -> Numbers:
        """Of runs that learn labels, how well held-out ones are predicted."""
        return self.numbers["labels"]

    @property
    def teacher(self) -> Numbers:
        """Of runs that learn from a bigger model, how often both agree on held-out rows."""
        return self.numbers["teacher"]

    @property
    def rewards(self) -> Numbers:
        """Of runs that learn from rewards, what is told of their steps."""
        return self.numbers["rewards"]

    def fold(self, event: Event) -> None:
        """Take one event into account; events of one journal come in order."""
        self.status.fold(event)
        data = event.data
        match event.type:
            case "hello":
                self.engine = data
                self._forget_after(data.get("resumed_from_step") or 0)
            case "setup":
                self.setup = data
            case "step":
                _put(self.training, data)
                _put_numbers(self.rewards, data, rewards.of_event(data))
            case "eval":
                _put(self.held_out, data)
                if _is_step(data.get("step")) and (of_sources := source_losses.of_event(data)):
                    self.source_losses[data["step"]] = of_sources
                _put_numbers(self.pairs, data, preferences.of_event(data))
                _put_numbers(self.labels, data, sorting.of_event(data))
                _put_numbers(self.teacher, data, agreement.of_event(data))
            case "answers":
                take_answers(self.answers, event)
            case "comparison":
                self.comparison = data
            case "sample" if _is_step(data.get("step")):
                prompt, step = str(data.get("prompt")), data["step"]
                written = self.samples.setdefault(prompt, Answered(prompt, ""))
                cut_at = data.get("cut_at_tokens")
                written.texts[step] = str(data.get("text"))
                written.cuts[step] = cut_at if isinstance(cut_at, int) else 0
            case "warning" if data.get("message"):
                self.warnings.setdefault(data["message"])

    def _forget_after(self, step: int) -> None:
        """Drop what came after the checkpoint that the run continues from: this model never saw it."""
        self.training = {each: loss for each, loss in self.training.items() if each <= step}
        self.held_out = {each: loss for each, loss in self.held_out.items() if each <= step}
        self.source_losses = {each: found for each, found in self.source_losses.items() if each <= step}
        for name, known in self.numbers.items():
            self.numbers[name] = {each: found for each, found in known.items() if each <= step}
        self.comparison = {}
        self.answers = forget_answers(self.answers, step)
        self.samples = {each.prompt: each for each in forget_answers(list(self.samples.values()), step)}


def _is_step(step: object) -> bool:
    return isinstance(step, int)


def _put(series: Series, data: dict[str, Any]) -> None:  # Any: JSON values
    step, loss = data.get("step"), data.get("loss")
    if isinstance(step, int) and isinstance(loss, float | int):
        series[step] = float(loss)


def _put_numbers(
    series: dict[int, dict[str, float]], data: dict[str, Any], found: dict[str, float]  # Any: JSON values
) -> None:
    if found and _is_step(data.get("step")):
        series[data["step"]] = found


def verdict_on(facts: Facts) -> Verdict:
    """Return what came of a run by what it has measured."""
    return judge(
        Measured(
            *(facts.held_out, facts.training, facts.setup, facts.comparison, facts.answers, facts.pairs),
            labels=facts.labels,
            rewards=facts.rewards,
            teacher=facts.teacher,
        )
    )


def read(run: Run) -> Facts:
    """Return what a run's journal says; that of a run without one says nothing."""
    facts = Facts()
    for event in JournalReader(run.journal_path).read_all():
        facts.fold(event)
    return facts
