"""Tasks of lm-evaluation-harness, for the base model and the trained one, row by row.

Its packages stand in a folder of their own behind those of the training environment. Taken are figures of rows between
0 and 1 of which more is better, such as accuracy; others, such as perplexity, can't stand in the same table.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunesmith_core import environments
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.evaluate import EvaluateSpec
from tunesmith_engine.evaluation.difference import Values, difference
from tunesmith_engine.model.other_weights import before_run

Scores = dict[tuple[str, str], list[float]]
"""Of each row, by task and figure."""


def measured(host: Host, spec: EvaluateSpec, model: Any, tokenizer: Any) -> list[Values]:  # Any: PEFT's, transformers'
    """Run tasks without the adapter and with it, and return their figures. Changes how the tokenizer pads.

    Raises:
        EnvironmentProblem: `environment-missing` or `environment-damaged` without the packages, `hub-offline` where
            data can't be downloaded.
        UserError: `usage` for a task that there is not, or that can't be run.
    """
    packages = str(environments.harness_packages())
    if packages not in sys.path:
        sys.path.append(packages)
    if spec.harness_tasks and not Path(spec.harness_tasks).is_dir():
        raise TunesmithError("usage", "The folder {path} does not exist.", path=spec.harness_tasks)
    tasks = [name.strip() for name in spec.harness.split(",") if name.strip()]
    host.phase("evaluating", 0, 2, "models")
    with _explained(tasks):
        manager = importlib.import_module("lm_eval.tasks").TaskManager(include_path=spec.harness_tasks or None)
        wrapped = importlib.import_module("lm_eval.models.huggingface").HFLM(
            pretrained=model, tokenizer=tokenizer, batch_size=1
        )
        ask = importlib.import_module("lm_eval").simple_evaluate
        settings = {"tasks": tasks, "task_manager": manager, "limit": spec.rows, "bootstrap_iters": 0}
        with before_run(model):
            before = scores(ask(wrapped, **settings))
        host.phase("evaluating", 1, 2, "models")
        after = scores(ask(wrapped, **settings))
    reason = Message("a task of lm-evaluation-harness")
    found = [
        {"name": f"{task}: {figure}", "reason": reason, **difference(before[task, figure], after[task, figure])}
        for task, figure in before
    ]
    if not found:
        host.warning("usage", Message("{tasks} gave no figure that can be compared.", tasks=", ".join(tasks)))
    return found


def scores(result: dict[str, Any]) -> Scores:  # Any: what lm_eval gives
    """Return the figures of each row that can be compared, in the order of the rows."""
    found: Scores = {}
    for task, rows in result["samples"].items():
        better = result["higher_is_better"].get(task) or {}
        for row in sorted(rows, key=lambda row: row["doc_id"]):
            for figure in row["metrics"]:
                name = figure if row["filter"] == "none" else f"{figure} ({row['filter']})"
                if better.get(figure) and isinstance(row[figure], (int, float)):
                    found.setdefault((task, name), []).append(float(row[figure]))
    return {key: values for key, values in found.items() if all(0 <= value <= 1 for value in values)}


@contextlib.contextmanager
def _explained(tasks: list[str]) -> Iterator[None]:
    """Say what is wrong with tasks; faults of the computer pass."""
    names = ", ".join(tasks)
    try:
        yield
    except KeyError as error:
        raise TunesmithError(
            "usage",
            "{tasks}: {problem}.",
            hint="Name tasks as lm-evaluation-harness lists them. --harness-tasks FOLDER adds tasks of your own.",
            tasks=names,
            problem=phrase(error.args[0] if error.args else error),
        ) from error
    except OSError as error:
        raise TunesmithError(
            "hub-offline",
            "The data of {tasks} can't be read: {problem}.",
            hint="Connect to the internet, or use --harness-tasks FOLDER with a task whose data is on this computer.",
            tasks=names,
            problem=phrase(error),
        ) from error
    except ImportError as error:
        raise TunesmithError(
            "environment-damaged",
            "{tasks} can't be run: {problem}.",
            hint="Run: tunesmith harness --yes. A task that needs more packages than these can't be run.",
            tasks=names,
            problem=phrase(error),
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise TunesmithError(
            "usage", "{tasks} can't be run: {problem}.", tasks=names, problem=phrase(error)
        ) from error
