"""What a run's own measurements say: did the model improve on rows that it never saw?"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunesmith_core.agreement import Agreement
from tunesmith_core.answered import Answered, RightAnswers, right_answers
from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_core.messages import Message, joined
from tunesmith_core.next_steps import NextStep
from tunesmith_core.outcome import Interval, Outcome, Verdict
from tunesmith_core.preferences import Numbers, Preferences
from tunesmith_core.reward_verdict import Rewarded, judge_rewards
from tunesmith_core.sorting import Sorting

RISEN = 0.02
"""Share of the lowest loss that a later one must lie above it: less is the noise of one evaluation."""

NOTHING, LITTLE = 0.01, 0.10
"""Up to these shares of the first loss a fall is nothing, or little."""

REPEATED = 0.5
"""Fewer of the training rows are different from each other: a few rows are learned by heart."""

LEAKED = 0.1
"""From this share of the held-out rows on, those that are training rows spoil the measurement."""

DIVERGED, BEYOND_NOISE = 1.1, 2.0
"""So many times its first value, and so many standard errors above it, a training loss at the end tells of a rate that
is too high."""

INDEPENDENT = 0.2
"""Answers depend on their questions by less than this share of the improvement: it is not the questions' doing."""

BY_HEART, GAP, STILL_WRONG = 0.1, 5.0, 0.5
"""A training loss under the first, with a held-out loss over the third and so many times as high."""

MANY_EPOCHS, FEW_ROWS = 5, 200
"""So many times over fewer rows than these, and a model knows them by heart."""

LEAST_ASKED = 3
"""When none of so many questions is answered rightly, a lower loss is no success."""

MEMORIZED = 0.6
"""A training loss below this share of the held-out loss, and of where it began, is one of memorized rows: what a model
learns of all rows alike lowers both losses, and rows of two kinds differ from the first step on."""

SETTLED = 0.01
"""A held-out loss that fell by a smaller share over the later half of a run has stopped improving: as many steps again
bring less than what `NOTHING` means."""

FALLING = 0.03
"""Share by which the last fifth of the training losses lies under the one before it while there is more to learn."""


FEW_PAIRS = 20
"""With fewer held-out pairs a share of them is 100% by chance too often to call it a lot."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run has measured.

    Attributes:
        held_out: losses by step, in nats per trained token or per pair; that of step 0 is the base model's.
        training: losses of the steps.
        setup: fields of the last event `setup`.
        comparison: fields of the last event `comparison`.
        answers: to questions of held-out rows.
        pairs: of runs that learn from pairs, how well these are told apart, by step.
        labels: of runs that learn labels, how well these are predicted, by step.
        teacher: of runs that learn from a bigger model, how often both agree, by step.
        rewards: of runs that learn from rewards, those of the steps; their held-out losses are minus mean rewards.
    """

    held_out: Mapping[int, float]
    training: Mapping[int, float] = field(default_factory=dict)
    setup: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    comparison: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON values
    answers: Sequence[Answered] = ()
    pairs: Mapping[int, Numbers] = field(default_factory=dict)
    labels: Mapping[int, Numbers] = field(default_factory=dict)
    rewards: Mapping[int, Numbers] = field(default_factory=dict)
    teacher: Mapping[int, Numbers] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Number of training rows."""
        return int(self.setup.get("num_train_rows") or 0)

    @property
    def num_held_out_rows(self) -> int | None:
        """Number of held-out rows, None where that was not told."""
        return None if (num := self.setup.get("num_eval_rows")) is None else int(num)

    @property
    def num_distinct_rows(self) -> int:
        """Number of training rows that differ from each other."""
        return int(self.setup.get("num_distinct_rows") or self.num_rows)

    @property
    def num_steps(self) -> int:
        """Number of steps that were taken."""
        return max(self.training, default=0)

    @property
    def epochs(self) -> float:
        """How many times the training rows were seen."""
        return self.num_steps / max(1, int(self.setup.get("steps_per_epoch") or 0) or self.num_steps)

    @property
    def improvement(self) -> Interval | None:
        """By how much the held-out loss fell, over rows."""
        return Interval.of(self.comparison.get("improvement"))

    @property
    def dependence(self) -> Interval | None:
        """By how much an answer is likelier under its own question than under another one."""
        return Interval.of(self.comparison.get("dependence"))

    @property
    def preferences(self) -> Preferences | None:
        """How well held-out pairs are told apart, None for other rows."""
        return Preferences.of(self.pairs)

    @property
    def sorting(self) -> Sorting | None:
        """How well held-out labels are predicted, None for other rows."""
        return Sorting.of(self.labels)

    @property
    def agreement(self) -> Agreement | None:
        """How often the model agrees with its teacher, None where it has none."""
        return Agreement.of(self.teacher)

    @property
    def right(self) -> RightAnswers | None:
        """How many answers were right before and after, None where nobody can tell."""
        return right_answers(self.answers)

    def parts_of_training(self) -> list[float]:
        """Return the mean training losses of five stretches of the run; [] for one of fewer than five steps."""
        losses = self._finite_losses
        if len(losses) < 5:
            return []
        ends = [place * len(losses) // 5 for place in range(6)]
        return [statistics.fmean(losses[start:end]) for start, end in itertools.pairwise(ends)]

    @property
    def noise(self) -> float:
        """Standard error of the difference of two parts of the training, by how losses of steps side by side differ."""
        losses = self._finite_losses
        steps = [(later - loss) ** 2 for loss, later in itertools.pairwise(losses)]
        # The variance of a loss is half of that of a difference; a part is the mean of a fifth of them.
        return math.sqrt(statistics.fmean(steps) * 5 / len(losses)) if steps else 0.0

    @property
    def _finite_losses(self) -> list[float]:
        return [loss for _, loss in sorted(self.training.items()) if math.isfinite(loss)]

    @property
    def memorized(self) -> float | None:
        """The training loss at the end where only that one still fell: the rows are memorized. Else None."""
        parts, losses = self.parts_of_training(), self.held_out
        end = max(losses, default=0)
        half = max((step for step in losses if step <= end / 2), default=end)
        if not parts or half == end or parts[-1] >= MEMORIZED * min(losses[end], self._finite_losses[0]):
            return None
        return None if losses[half] - losses[end] >= SETTLED * losses[half] else parts[-1]


def judge(measured: Measured) -> Verdict:
    """Say what came of a run: first what makes its measurements worthless, then what they say."""
    return next(verdict for verdict in _verdicts(measured) if verdict is not None)


def _verdicts(measured: Measured) -> Iterator[Verdict | None]:
    for rule in (_repeated, _leaked, _by_rewards, _diverged, _unmeasured, _too_few):
        yield rule(measured)
    yield _by_losses(measured)


def _repeated(measured: Measured) -> Verdict | None:
    num, distinct = measured.num_rows, measured.num_distinct_rows
    if num < 2 or distinct >= REPEATED * num:
        return None
    sentence = Message(
        "The model saw a few rows again and again: the {num_rows} training rows hold only {num_distinct} different "
        "ones.",
        num_rows=num,
        num_distinct=distinct,
    )
    advice = Message("Remove repeated rows from the data and add different ones, then train again.")
    return Verdict(Outcome.REPEATED, sentence, advice, next_steps=(NextStep("look-at-rows"),))


def _leaked(measured: Measured) -> Verdict | None:
    num, leaked = (int(measured.setup.get(name) or 0) for name in ("num_eval_rows", "num_leaked_rows"))
    if not leaked or leaked < LEAKED * num:
        return None
    sentence = Message(
        "Nobody knows whether the model improved: {num_leaked} of {num_rows} held-out rows are training rows too, word "
        "for word or nearly.",
        num_leaked=leaked,
        num_rows=num,
    )
    advice = Message("Remove repeated rows, or choose evaluation data that the model is not trained on.")
    return Verdict(Outcome.LEAKED, sentence, advice, next_steps=(NextStep("look-at-rows"),))


def _by_rewards(measured: Measured) -> Verdict | None:
    if not measured.rewards:
        return None
    evidence = []
    if improvement := measured.improvement:
        evidence.append(
            Message(
                "Over {rows} held-out prompts the reward rose by {mean} (95% interval: {low} to {high}).",
                **improvement.values(),
            )
        )
    if right := measured.right:
        evidence.append(_right_answers(right))
    held_out = {step: -loss for step, loss in measured.held_out.items()}
    told = joined(evidence) if evidence else ""
    return judge_rewards(Rewarded(held_out, measured.rewards, measured.num_held_out_rows, measured.improvement, told))


def _right_answers(right: RightAnswers) -> Message:
    return Message(
        "Right answers to {asked} held-out questions: {before} before, {now} after.",
        asked=right.asked,
        before=right.before,
        now=right.now,
    )


def _diverged(measured: Measured) -> Verdict | None:
    parts = measured.parts_of_training()
    if not parts:
        return None
    before, after = (measured.held_out.get(step) for step in (0, max(measured.held_out, default=0)))
    if before is not None and after is not None and after < before:
        return None
    first = parts[0] if before is None else min(parts[0], before)
    if parts[-1] <= DIVERGED * max(first, BY_HEART) or parts[-1] - first <= BEYOND_NOISE * measured.noise:
        return None
    sentence = Message(
        "Training diverged: the training loss rose from {first} to {last}.",
        first=f"{first:.3f}",
        last=f"{parts[-1]:.3f}",
    )
    advice = Message("The learning rate is too high. Train again with a fifth of it.")
    return Verdict(Outcome.DIVERGED, sentence, advice, next_steps=(NextStep("lower-rate"),))


def _unmeasured(measured: Measured) -> Verdict | None:
    if 0 in measured.held_out and len(measured.held_out) > 1:
        return None
    sentence = Message("Nobody knows whether the model improved: no held-out rows were measured before and after.")
    if measured.epochs >= MANY_EPOCHS and measured.num_rows <= FEW_ROWS:
        sentence = Message(
            "The model has probably memorized its rows: it saw {num_rows} rows {epochs} times, and no held-out rows "
            "were measured.",
            num_rows=measured.num_rows,
            epochs=f"{measured.epochs:.3g}",
        )
    advice = Message("Hold out a share of the rows and train again. A falling training loss alone may be memorizing.")
    return Verdict(Outcome.UNMEASURED, sentence, advice, next_steps=(NextStep("hold-out"),))


def _too_few(measured: Measured) -> Verdict | None:
    """Rows are the unit, not tokens: those of one row are likely or unlikely together."""
    num, losses = measured.num_held_out_rows, measured.held_out
    if num is None or num >= FEWEST_ROWS:
        return None
    sentence = Message(
        "Too few held-out rows to tell whether the model improved: over {num_rows} of them the loss went from {before} "
        "to {after}, which may be chance.",
        num_rows=num,
        before=_shown(losses[0]),
        after=_shown(losses[max(losses)]),
    )
    advice = Message("Hold out more rows, at least {least}, and train again.", least=FEWEST_ROWS)
    return Verdict(Outcome.TOO_FEW, sentence, advice, next_steps=(NextStep("hold-out"),))


def _by_losses(measured: Measured) -> Verdict:
    losses = measured.held_out
    best_step = min(losses, key=lambda step: (losses[step], step))
    before, best, last = losses[0], losses[best_step], losses[max(losses)]
    values = {"before": _shown(before), "best": _shown(best), "after": _shown(last), "step": best_step}
    found = _Finding(measured, best_step, values)
    # The loss of pairs may come near 0, where a share of it is next to nothing.
    scale = abs(before) if measured.preferences else best
    # What can't be seen in the figures that are told is told of nobody.
    if last > best + RISEN * scale and values["after"] != values["best"]:
        turned = best_step and values["best"] != values["before"]
        return found.overfitted() if turned else found.worse()
    share = (before - last) / before if before > 0 else 0.0
    if share <= NOTHING or values["before"] == values["after"]:
        return found.nothing()
    rules = (found.independent, found.by_chance, found.by_heart, found.unlearned, found.still_wrong)
    return next(filter(None, (rule() for rule in rules)), None) or found.improved(share > LITTLE)


def _shown(loss: float) -> str:
    return f"{loss:z.3f}"


@dataclass(frozen=True, slots=True)
class _Finding:
    """Words for held-out losses."""

    measured: Measured
    best_step: int
    values: dict[str, object]

    def _verdict(self, outcome: Outcome, sentence: Message, advice: Message, *steps: NextStep) -> Verdict:
        evidence: list[Message] = []
        if pairs := self.measured.preferences:
            told = (pairs.told_apart, pairs.margin, pairs.displacement)
            evidence += [each for each in told if each and each not in sentence]
        if sorting := self.measured.sorting:
            evidence += [each for each in (sorting.told, sorting.details) if each not in sentence]
        if agreement := self.measured.agreement:
            evidence.append(agreement.told)
        if improvement := self.measured.improvement:
            evidence.append(
                Message(
                    "Over {rows} held-out rows the loss fell by {mean} (95% interval: {low} to {high}).",
                    **improvement.values(),
                )
            )
        if right := self.measured.right:
            evidence.append(_right_answers(right))
        return Verdict(outcome, sentence, advice, self.best_step, joined(evidence) if evidence else "", steps)

    def _unless_memorized(self, outcome: Outcome, sentence: Message, advice: Message, *steps: NextStep) -> Verdict:
        """Advise more steps, but not where they would only make the model memorize its rows."""
        if (training := self.measured.memorized) is not None:
            advice = Message(
                "The model is memorizing its rows: the training loss is {training}, but the held-out loss has stopped "
                "improving at {after}. Train on more rows that differ from each other, or for fewer steps.",
                training=f"{training:.3f}",
                **self.values,
            )
            steps = (NextStep("fewer-epochs"), NextStep("look-at-rows"))
        return self._verdict(outcome, sentence, advice, *steps)

    def worse(self) -> Verdict:
        advice = Message("Lower the learning rate, and look at the rows: answers may not belong to their questions.")
        if self.measured.preferences:
            advice = Message("Lower the learning rate, and look at the pairs: better and worse may be swapped.")
            if self.measured.preferences.are_labels:
                advice = Message("Lower the learning rate, and look at the labels: good and bad may be swapped.")
        steps: tuple[NextStep, ...] = (NextStep("lower-rate"), NextStep("look-at-rows"))
        if self.measured.agreement:
            advice = Message(
                "Lower the learning rate, so that the model keeps what it has in common with the bigger one."
            )
            steps = steps[:1]
        sentence = Message("The model got worse: the held-out loss rose from {before} to {after}.", **self.values)
        return self._verdict(Outcome.WORSE, sentence, advice, *steps)

    def overfitted(self) -> Verdict:
        return self._verdict(
            Outcome.OVERFITTED,
            Message(
                "Overfitting since step {step}: the held-out loss fell from {before} to {best} there and has risen to "
                "{after} since.",
                **self.values,
            ),
            Message("Train until step {step} only, or on more rows.", **self.values),
            NextStep("until-step", self.best_step),
            NextStep("look-at-rows"),
        )

    def nothing(self) -> Verdict:
        sentence = Message("No improvement: the held-out loss was {before} and is {after}.", **self.values)
        if self.measured.agreement and float(str(self.values["before"])) == 0:
            sentence = Message("There was nothing to learn: the model said the same as the bigger one before training.")
            advice = Message("Choose a bigger model that answers better than the base model.")
            return self._verdict(Outcome.NOTHING, sentence, advice)
        if self._still_falls():
            advice = Message("The training loss was still falling at the end. Train for more steps.")
            return self._unless_memorized(Outcome.NOTHING, sentence, advice, NextStep("more-steps"))
        advice = Message("Train for more steps or at a higher learning rate, and look at what is learned of the rows.")
        steps = (NextStep("higher-rate"), NextStep("more-steps"), NextStep("look-at-rows"))
        return self._unless_memorized(Outcome.NOTHING, sentence, advice, *steps)

    def _still_falls(self) -> bool:
        parts = self.measured.parts_of_training()
        return bool(parts) and parts[-1] < parts[-2] * (1 - FALLING)

    def independent(self) -> Verdict | None:
        gain, dependence = self.measured.improvement, self.measured.dependence
        if gain is None or dependence is None or dependence.low > 0:
            return None
        if dependence.high > INDEPENDENT * gain.mean:
            return None
        sentence = Message(
            "No improvement that depends on the question: the held-out loss fell from {before} to {after}, but an "
            "answer is as likely under another row's question.",
            **self.values,
        )
        advice = Message(
            "Look at the rows: answers may not belong to their questions. If they do, lower the learning rate or train "
            "for more steps."
        )
        steps = (NextStep("look-at-rows"), NextStep("lower-rate"), NextStep("more-steps"))
        return self._verdict(Outcome.INDEPENDENT, sentence, advice, *steps)

    def by_chance(self) -> Verdict | None:
        gain = self.measured.improvement
        if gain is None or gain.low > 0:
            return None
        sentence = Message(
            "No improvement that is certain: the held-out loss fell from {before} to {after}, which may be chance.",
            **self.values,
        )
        advice = Message("Train for more steps, and hold out more rows to measure it.")
        return self._unless_memorized(Outcome.NOTHING, sentence, advice, NextStep("more-steps"), NextStep("hold-out"))

    def unlearned(self) -> Verdict | None:
        """What a run is for may not have been learned although its loss fell."""
        return self.not_preferred() or self.not_sorted()

    def not_preferred(self) -> Verdict | None:
        """A loss with a share of the SFT loss falls by learning to write the better answers alone."""
        pairs = self.measured.preferences
        if pairs is None or pairs.are_learned:
            return None
        fallen = Message(
            "The preferences were not learned, although the held-out loss fell from {before} to {after}.", **self.values
        )
        advice = Message(
            "Look at the pairs: better and worse may be swapped. If they are right, train for more steps or at a "
            "higher learning rate."
        )
        if pairs.are_labels:
            advice = Message(
                "Look at the labels: good and bad may be swapped. If they are right, train for more steps or at a "
                "higher learning rate."
            )
        steps = (NextStep("look-at-rows"), NextStep("more-steps"), NextStep("higher-rate"))
        return self._verdict(Outcome.NOTHING, joined([fallen, pairs.told_apart]), advice, *steps)

    def not_sorted(self) -> Verdict | None:
        """A loss falls by being less sure of what is wrong, too."""
        sorting = self.measured.sorting
        if sorting is None or sorting.is_learned:
            return None
        fallen = Message(
            "No more of the labels are predicted rightly, although the held-out loss fell from {before} to {after}.",
            **self.values,
        )
        advice = Message("Train for more steps, and look at the labels of the rows.")
        steps = (NextStep("more-steps"), NextStep("look-at-rows"))
        return self._verdict(Outcome.NOTHING, joined([fallen, sorting.told]), advice, *steps)

    def still_wrong(self) -> Verdict | None:
        right = self.measured.right
        # Of two answers the better one need not be the only right one.
        if self.measured.preferences or right is None or right.now or right.asked < LEAST_ASKED:
            return None
        sentence = Message(
            "No answer is right yet: the held-out loss fell from {before} to {after}, but none of {asked} held-out "
            "questions was answered rightly.",
            asked=right.asked,
            **self.values,
        )
        if self._still_falls():
            advice = Message("The training loss was still falling at the end. Train for more steps.")
        else:
            advice = Message(
                "It has learned what answers look like, not what they say. It can't know facts that are in none of the "
                "training rows: check that yours contain them, add more rows, or train a larger model."
            )
        steps = (NextStep("more-steps"), NextStep("look-at-rows"))
        return self._unless_memorized(Outcome.STILL_WRONG, sentence, advice, *steps)

    def by_heart(self) -> Verdict | None:
        parts, last = self.measured.parts_of_training(), self.measured.held_out[max(self.measured.held_out)]
        is_known = bool(parts) and parts[-1] < BY_HEART
        if not is_known or last < STILL_WRONG or last < GAP * parts[-1]:
            return None
        sentence = Message(
            "Overfitting: the training loss is {training}, so the rows are known by heart, but the held-out loss is "
            "{after}.",
            training=f"{parts[-1]:.3f}",
            **self.values,
        )
        if self.measured.epochs >= MANY_EPOCHS:
            sentence = Message(
                "Overfitting: after {epochs} times over {num_rows} rows the training loss is {training}, but the "
                "held-out loss is {after}.",
                epochs=f"{self.measured.epochs:.3g}",
                num_rows=self.measured.num_rows,
                training=f"{parts[-1]:.3f}",
                **self.values,
            )
        advice = Message("Train on more rows, or for fewer epochs.")
        return self._verdict(Outcome.OVERFITTED, sentence, advice, NextStep("fewer-epochs"), NextStep("look-at-rows"))

    def _try_it(self) -> Message:
        if self.measured.sorting:
            return Message("Try it on texts that are not among the rows before you rely on it.")
        if (pairs := self.measured.preferences) and pairs.are_scores:
            return Message("Score answers that are not among the rows before you rely on it.")
        return Message("Ask it something that is not among the rows before you rely on it.")

    def improved(self, is_much: bool) -> Verdict:
        pairs, sorting = self.measured.preferences, self.measured.sorting
        num = self.measured.num_held_out_rows
        if pairs and num is not None and num < FEW_PAIRS:
            few = Message("Improved, but {num} held-out rows are too few to say by how much.", num=num)
            advice = Message("Hold out more rows, at least {least}, to know how much better it is.", least=FEW_PAIRS)
            return self._verdict(Outcome.LITTLE, joined([few, pairs.told_apart]), advice, NextStep("hold-out"))
        told = pairs.told_apart if pairs else sorting.told if sorting else None
        if is_much:
            by_loss = Message("Improved a lot: the held-out loss fell from {before} to {after}.", **self.values)
            return self._verdict(
                Outcome.MUCH,
                joined([Message("Improved a lot."), told]) if told else by_loss,
                self._try_it(),
            )
        if self._still_falls():
            advice = Message("The training loss was still falling at the end. Train for more steps.")
        else:
            advice = Message("More epochs or more rows may improve it further.")
        sentence = Message("Improved a little: the held-out loss fell from {before} to {after}.", **self.values)
        if told:
            sentence = joined([Message("Improved a little."), told])
        return self._unless_memorized(Outcome.LITTLE, sentence, advice, NextStep("more-steps"))
