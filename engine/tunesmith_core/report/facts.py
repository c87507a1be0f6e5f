"""What the report tells, folded from a run's journal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from tunesmith_core.answered import Answered, forget_answers, take_answers, upto
from tunesmith_core.protocol import Event, JournalReader
from tunesmith_core.runs import Run, RunStatus
from tunesmith_core.verdict import Measured, Verdict, judge

Value = TypeVar("Value", str, int)

Series = dict[int, float]
"""Values by step; what was measured again after a resume replaces what was measured before."""


@dataclass(slots=True)
<<<<<<< HEAD
=======
class Answered:
    """A question of a held-out row, what is expected, and what the model answered by step."""

    prompt: str
    expected: str
    texts: dict[int, str] = field(default_factory=dict)
    cuts: dict[int, int] = field(default_factory=dict)
    """Tokens at which the texts were cut, by step; 0 where the model ended them."""

    @property
    def before(self) -> str | None:
        """What the base model answered, None where it was not asked."""
        return self.texts.get(0)

    @property
    def last_step(self) -> int:
        """Step of the newest answer."""
        return max(self.texts, default=0)

    @property
    def now(self) -> str | None:
        """The newest answer of the trained model, None before there is one."""
        return self.texts[self.last_step] if self.last_step else None

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return question and answers as JSON values."""
        return {
            "prompt": self.prompt,
            "expected": self.expected,
            "before": self.before,
            "now": self.now,
            "step": self.last_step,
        }


def take_answers(answered: list[Answered], event: Event) -> None:
    """Add the answers of an event to what was answered before."""
    step = event.data.get("step")
    if not isinstance(step, int):
        return
    cuts = event.data.get("cuts") or []
    for place, told in enumerate(event.data.get("answers") or ()):
        prompt, expected, answer = (told.get(name, "") for name in ("prompt", "expected", "answer"))
        known = next((each for each in answered if (each.prompt, each.expected) == (prompt, expected)), None)
        if known is None:
            answered.append(known := Answered(prompt, expected))
        known.texts[step], known.cuts[step] = answer, cuts[place] if place < len(cuts) else 0


def forget_answers(answered: list[Answered], step: int) -> list[Answered]:
    """Return what was answered up to a step."""
    kept = [Answered(each.prompt, each.expected, upto(each.texts, step), upto(each.cuts, step)) for each in answered]
    return [each for each in kept if each.texts]


def upto(values: dict[int, Value], step: int) -> dict[int, Value]:
    """Return the values up to a step."""
    return {each: value for each, value in values.items() if each <= step}


@dataclass(slots=True)
>>>>>>> runB
class Facts:
    """What a journal says about a run.

    Attributes:
        training, held_out: losses in nats per token.
        answers: to questions of held-out rows, in the order in which they were first asked.
        comparison: fields of the last event `comparison`.
        samples: for each prompt the answers by step; that of step 0 is the base model's.
        warnings: each once, in the order of their first coming.
        engine, setup: fields of the last events `hello` and `setup`.
    """

    status: RunStatus = field(default_factory=RunStatus)
    training: Series = field(default_factory=dict)
    held_out: Series = field(default_factory=dict)
    answers: list[Answered] = field(default_factory=list)
    comparison: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    samples: dict[str, dict[int, str]] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)  # Any: JSON values
    setup: dict[str, Any] = field(default_factory=dict)  # Any: JSON values

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
            case "eval":
                _put(self.held_out, data)
            case "answers":
                take_answers(self.answers, event)
            case "comparison":
                self.comparison = data
            case "sample" if _is_step(data.get("step")):
                texts = self.samples.setdefault(str(data.get("prompt")), {})
                texts[data["step"]] = str(data.get("text"))
            case "warning" if data.get("message"):
                self.warnings.setdefault(data["message"])

    def _forget_after(self, step: int) -> None:
        """Drop what came after the checkpoint that the run continues from: this model never saw it."""
        self.training = {each: loss for each, loss in self.training.items() if each <= step}
        self.held_out = {each: loss for each, loss in self.held_out.items() if each <= step}
        self.comparison = {}
        self.answers = forget_answers(self.answers, step)
        kept = {prompt: upto(texts, step) for prompt, texts in self.samples.items()}
        self.samples = {prompt: texts for prompt, texts in kept.items() if texts}


def _is_step(step: object) -> bool:
    return isinstance(step, int)


def _put(series: Series, data: dict[str, Any]) -> None:  # Any: JSON values
    step, loss = data.get("step"), data.get("loss")
    if isinstance(step, int) and isinstance(loss, float | int):
        series[step] = float(loss)


def verdict_on(facts: Facts) -> Verdict:
    """Return what came of a run by what it has measured."""
    return judge(Measured(facts.held_out, facts.training, facts.setup, facts.comparison, facts.answers))


def read(run: Run) -> Facts:
    """Return what a run's journal says; that of a run without one says nothing."""
    facts = Facts()
    for event in JournalReader(run.journal_path).read_all():
        facts.fold(event)
    return facts
