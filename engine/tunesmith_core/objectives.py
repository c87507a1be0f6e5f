"""The objectives that this program can train for, told without loading it: each is a file of the engine's `methods`."""

from __future__ import annotations

from pathlib import Path

METHODS = Path(__file__).parent.parent / "tunesmith_engine" / "methods"

PREFERENCES = frozenset({"cpo", "dpo", "orpo", "simpo"})
"""Objectives that learn from pairs: of two answers to a question, which one people like better."""

USED_BY = {
    "dpo_loss": frozenset({"dpo"}),
    "beta": PREFERENCES,
    "label_smoothing": frozenset({"cpo", "dpo", "simpo"}),
    "margin": frozenset({"simpo"}),
    "sft_weight": PREFERENCES,
}
"""Which objectives a setting of the section "objective" is for; every other setting is for all."""

LEARNING_RATE_DIVISORS = {"cpo": 4, "dpo": 4, "orpo": 4, "simpo": 10}
"""By how much the learning rate of an objective is usually smaller than that of SFT: 5e-5, of SimPO 2e-5.

TRL takes 1e-6 for all weights of a model and names about 1e-5 for adapters (its page about DPO), for data sets of tens
of thousands of pairs. The few hundred steps of a run here need the upper end of what is in use, 5e-6 to 5e-5.
"""


def uses(kind: str, path: str) -> bool:
    """Return whether the setting of a dotted path has an effect on runs of an objective."""
    section, _, name = path.partition(".")
    return section != "objective" or kind in USED_BY.get(name, (kind,))


def names() -> tuple[str, ...]:
    """Return the names that `objective.kind` may have."""
    return tuple(sorted(path.stem for path in METHODS.glob("[a-z]*.py")))
