"""Held-out losses of each data file, where several of them are held out in part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core.messages import LISTED, Message, joined

UNKNOWN = "–"
MOST_SHOWN = 20.0
"""Nats beyond which nobody compares perplexities, and e^loss soon has no number."""


MOST_BRIEF = 6


@dataclass(frozen=True, slots=True)
class SourceLoss:
    """How well the held-out rows of a data file are predicted.

    Attributes:
        name: of the file; its path where two files have the same name.
        loss: mean per trained token in nats; None if it is not finite.
    """

    name: str
    loss: float | None

    @property
    def perplexity(self) -> str:
        """The perplexity as text."""
        return perplexity(self.loss)


def perplexity(loss: float | None) -> str:
    """Return the perplexity of a loss in nats as text."""
    if loss is None:
        return UNKNOWN
    return f"{math.exp(loss):.2f}" if loss < MOST_SHOWN else "> 10^8"


def of_event(data: Mapping[str, Any]) -> list[SourceLoss]:  # Any: JSON values
    """Return what an event "eval" tells of each data file, in the order of the files; nothing where there is one."""
    found = data.get("source_losses") or []
    names = shown_names([each["path"] for each in found])
    return [SourceLoss(name, each.get("loss")) for name, each in zip(names, found, strict=True)]


def shown_names(paths: Sequence[str]) -> list[str]:
    """Return how files are called: by their names, and by their paths where two have the same name."""
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


def in_brief(found: Sequence[SourceLoss]) -> Message | None:
    """Return the perplexity of each file in one line, None where nothing is told apart."""
    if not found:
        return None
    each = [Message("{name} {perplexity}", name=one.name, perplexity=one.perplexity) for one in found[:MOST_BRIEF]]
    if more := found[MOST_BRIEF:]:
        each.append(Message("{num} more", num=len(more)))
    return Message("perplexity: {files}", files=joined(each, LISTED))
