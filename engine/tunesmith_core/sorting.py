"""How well held-out texts or steps are sorted into classes, or numbers predicted, before training and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tunesmith_core.messages import Message

OF_CLASSES = ("accuracy", "macro_f1", "calibration_error")
OF_NUMBERS = ("rmse", "correlation")
OF_STEPS = ("step_accuracy", *OF_CLASSES[1:])
ALL = tuple(dict.fromkeys((*OF_CLASSES, *OF_NUMBERS, *OF_STEPS)))
"""What evaluations tell beside the loss."""

CLASS_LOSS_HELP = Message(
    "The loss is the cross-entropy of the right class in nats: 0.7 less makes it twice as likely, on average."
)
STEP_LOSS_HELP = Message(
    "The loss is the cross-entropy of right and wrong in nats per step: 0.7 less makes the right verdict twice as "
    "likely, on average. Guessing costs 0.69."
)
NUMBER_LOSS_HELP = Message("The loss is the mean of the squared differences between predicted and right numbers.")

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Sorting:
    """Numbers of held-out texts: those of the untrained head and those at the end."""

    before: Numbers
    after: Numbers

    @staticmethod
    def of(series: Mapping[int, Numbers]) -> Sorting | None:
        """Return those of the first and last evaluation; None where the first or any number is missing."""
        found = [series.get(0, {}), series[max(series)] if series else {}]
        kinds = [set(each) for each in (OF_CLASSES, OF_NUMBERS, OF_STEPS)]
        return Sorting(*found) if all(each.keys() in kinds for each in found) else None

    @property
    def is_learned(self) -> bool:
        """Whether more is right than before, or all of it."""
        if "rmse" in self.after:
            return self.after["rmse"] < self.before["rmse"]
        share = "step_accuracy" if "step_accuracy" in self.after else "accuracy"
        return self.after[share] == 1 or any(self.after[name] > self.before[name] for name in (share, "macro_f1"))

    @property
    def told(self) -> Message:
        """How many texts are sorted rightly, or how close numbers are."""
        if "rmse" in self.after:
            return Message(
                "Held-out numbers are off by {after} on average (RMSE; before training: {before}).",
                after=f"{self.after['rmse']:.3g}",
                before=f"{self.before['rmse']:.3g}",
            )
        if "step_accuracy" in self.after:
            return Message(
                "{after} of the steps in held-out solutions are judged rightly (before training: {before}).",
                after=f"{self.after['step_accuracy']:.0%}",
                before=f"{self.before['step_accuracy']:.0%}",
            )
        return Message(
            "{after} of the held-out texts are sorted into the right class (before training: {before}).",
            after=f"{self.after['accuracy']:.0%}",
            before=f"{self.before['accuracy']:.0%}",
        )

    @property
    def details(self) -> Message:
        """What the share of right ones leaves out."""
        if "rmse" in self.after:
            return Message(
                "The correlation with the right numbers is {value}.", value=f"{self.after['correlation']:.2f}"
            )
        return Message(
            "Macro F1, in which every class counts the same, is {f1}. The model's confidence is off by {gap} on "
            "average (calibration error).",
            f1=f"{self.after['macro_f1']:.2f}",
            gap=f"{self.after['calibration_error']:.0%}",
        )


def of_event(data: Mapping[str, Any]) -> dict[str, float]:  # Any: JSON values
    """Return what an event "eval" tells of classes or numbers."""
    return {name: float(data[name]) for name in ALL if isinstance(data.get(name), float | int)}


def shown(numbers: Numbers) -> list[str]:
    """Return the numbers of an evaluation as texts, in the order of their names."""
    if "rmse" in numbers:
        return [f"{numbers['rmse']:.3g}", f"{numbers.get('correlation', 0.0):.2f}"]
    first = "step_accuracy" if "step_accuracy" in numbers else "accuracy"
    return [f"{numbers[first]:.0%}", *(f"{numbers.get(name, 0.0):.2f}" for name in OF_CLASSES[1:])]
