"""How well a model that rates texts does it, before training and after it, row by row."""

from __future__ import annotations

import numpy as np

from tunesmith_core import evaluations
from tunesmith_core.operations.host import Host
from tunesmith_engine.evaluation.difference import Values, difference
from tunesmith_engine.model.inference import untouched_training
from tunesmith_engine.train.assembly import Parts
from tunesmith_engine.train.comparison import interval
from tunesmith_engine.train.loss import Totals

MOST_ROWS = 256

_RIGHT = (
    ("preferred", "reward_accuracy", evaluations.SCORED_HELP),
    ("right_class", "accuracy", evaluations.CLASS_HELP),
    ("right_steps", "step_accuracy", evaluations.STEP_HELP),
)
"""What is called how, by which number of a row, and why."""


def scores(host: Host, parts: Parts) -> tuple[Values, list[Values]]:
    """Measure row by row: the loss, and which pairs are scored or texts are sorted rightly.

    Args:
        host: told how far it is.
        parts: the trained model and its held-out rows.
    """
    name, metric, words = next((each for each in _RIGHT if each[1] in parts.metrics), ("", "", None))
    rows = parts.data.eval[:: max(1, -(-len(parts.data.eval) // MOST_ROWS))]
    path = parts.open_path(1, lambda *_: None)
    place = 1 + parts.metrics.index(metric) if metric else 0
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with untouched_training(parts.model, parts.compute.device):
        for number, row in enumerate(rows):
            host.phase(evaluations.COMPARING, number, len(rows), "rows")
            for with_adapter, numbers in found.items():
                told = path.losses([row], Totals.of([row]), with_adapter).tolist()
                numbers.append((told[0], told[place]))
    (before, was_right), (after, is_right) = (np.array(numbers).T for numbers in found.values())
    losses = {
        "rows": len(rows),
        "help": evaluations.loss_help(parts.spec.objective),
        "before": float(before.mean()),
        "after": float(after.mean()),
        "gain": interval(before - after, np.ones(len(rows))),
        "p": difference(-before, -after)["p"],
    }
    return losses, [{"name": name, "reason": words, **difference(was_right, is_right)}] if metric else []
