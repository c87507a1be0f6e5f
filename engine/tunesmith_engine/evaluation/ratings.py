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


def scores(host: Host, parts: Parts) -> tuple[Values, list[Values]]:
    """Measure a reward model pair by pair: its loss, and in how many pairs the better answer scores higher.

    Args:
        host: told how far it is.
        parts: the trained model and its held-out pairs.
    """
    rows = parts.data.eval[:: max(1, -(-len(parts.data.eval) // MOST_ROWS))]
    path = parts.open_path(1, lambda *_: None)
    place = 1 + parts.metrics.index("reward_accuracy")
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with untouched_training(parts.model, parts.compute.device):
        for number, row in enumerate(rows):
            host.phase(evaluations.COMPARING, number, len(rows), "rows")
            for with_adapter, numbers in found.items():
                told = path.losses([row], Totals(1, 1), with_adapter).tolist()
                numbers.append((told[0], told[place]))
    (before, was_right), (after, is_right) = (np.array(numbers).T for numbers in found.values())
    losses = {
        "rows": len(rows),
        "of_pairs": True,
        "before": float(before.mean()),
        "after": float(after.mean()),
        "gain": interval(before - after, np.ones(len(rows))),
        "p": difference(-before, -after)["p"],
    }
    return losses, [{"name": "preferred", "reason": evaluations.SCORED_HELP, **difference(was_right, is_right)}]
