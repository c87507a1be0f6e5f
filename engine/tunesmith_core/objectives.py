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


def names() -> tuple[str, ...]:
    """Return the names that `objective.kind` may have."""
    return tuple(sorted(path.stem for path in METHODS.glob("[a-z]*.py")))
