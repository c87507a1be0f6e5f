"""How the next token of an answer is chosen; chat, samples and evaluation alike."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from tunesmith_core.errors import TunesmithError

MOST_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings under the names that the field uses; the defaults take the most likely token.

    Attributes:
        max_tokens: of an answer.
        temperature: the logits are divided by it; 0 takes the most likely token.
        top_k: only so many of the most likely tokens can be chosen; 0 for all.
        top_p: only the most likely tokens that together have this probability (Holtzman et al. 2020, arXiv 1904.09751).
        min_p: only tokens with this share of the most likely one's probability (Nguyen et al. 2024, arXiv 2407.01082).
        repetition_penalty: logits of tokens that occurred are divided by it, or multiplied where they are negative
            (Keskar et al. 2019, arXiv 1909.05858).
        seed: the same seed gives the same answer.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the settings as JSON values."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Sampling:  # Any: JSON values
        """Rebuild settings from `to_dict`. Raises UserError `usage`."""
        sampling = Sampling(**values)
        sampling.check()
        return sampling

    def check(self) -> None:
        """Raise UserError `usage` for a setting out of its range; the message names it."""
        ranges: dict[str, tuple[float, float]] = {
            "max_tokens": (1, MOST_TOKENS),
            "temperature": (0, 100),
            "top_k": (0, math.inf),
            "top_p": (0, 1),
            "min_p": (0, 1),
            "repetition_penalty": (0.01, 100),
            "seed": (0, 2**63 - 1),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise TunesmithError(
                    "usage",
                    "{setting}: {value} is not between {least} and {most}.",
                    setting=name,
                    value=value,
                    least=least,
                    most=most,
                )
