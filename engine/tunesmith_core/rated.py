"""What a model that scores or sorts has said of a text, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.objectives import HEADS
from tunesmith_core.spec import RunSpec

MOST_CLASSES = 5
"""Of a text that are told, the likeliest first."""


def check_rates(spec: RunSpec) -> None:
    """Check that the model of a run rates texts. Raises UserError `usage`."""
    if spec.objective.kind not in HEADS:
        raise TunesmithError(
            "usage",
            "The model of this run writes texts and rates none.",
            hint="Ask it with: tunesmith ask RUN QUESTION",
        )


def words(answer: Mapping[str, Any]) -> list[Message]:  # Any: JSON values
    """Return what a person should know of the answer of RATE, a sentence each."""
    told = []
    if "score" in answer:
        told.append(Message("Score: {score}", score=f"{answer['score']:.3f}"))
        told.append(
            Message("A score has no unit and no zero. Of two answers to one question, the better one scores higher.")
        )
    if "number" in answer:
        told.append(Message("Predicted number: {number}", number=f"{answer['number']:.4g}"))
    for label, share in answer.get("classes", ())[:MOST_CLASSES]:
        told.append(Message("{label}: {share}", label=label, share=f"{share:.1%}"))
    for place, share in enumerate(answer.get("steps", ()), 1):
        told.append(Message("Step {step} is right with a probability of {share}.", step=place, share=f"{share:.1%}"))
    if answer.get("num_cut"):
        told.append(
            Message(
                "The text is longer than the context length of the run. Tokens at its end that were not read: {num:,}.",
                num=answer["num_cut"],
            )
        )
    return told
