"""`tunesmith evaluate`: what a run has learned, as a table; a run in progress is asked for its held-out loss."""

from __future__ import annotations

import dataclasses
import subprocess
from argparse import Namespace
from pathlib import Path

from tunesmith_core import cli_runs, environments, evaluations, terminal
from tunesmith_core.errors import EXIT_DONE, BugError, TunesmithError
from tunesmith_core.messages import Message, said
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.runs import Run

SETUP_MODULE = "tunesmith_setup"


def evaluate(arguments: Namespace) -> int:
    """Measure a run beside its base model, or ask one in progress for its loss."""
    run = Run(Path(arguments.run))
    if run.is_supervised():
        return cli_runs.evaluate(run)
    if arguments.rows < 1:
        raise TunesmithError("usage", "--rows: {rows} is less than 1.", rows=arguments.rows)
    given = vars(arguments)
    spec = EvaluateSpec(**{field.name: given[field.name] for field in dataclasses.fields(EvaluateSpec)})
    if spec.harness and (code := subprocess.call(environments.own_command(SETUP_MODULE, "harness"))):
        return max(code, BugError.exit_code)
    progress = terminal.Progress()
    try:
        outcome = conduct(EVALUATE, spec, on_event=terminal.say_event if arguments.json else progress.show)
    finally:
        progress.close()
    found = outcome.get()
    if not arguments.json:
        rows = [(said(evaluations.METRICS.get(name, name)), *values) for name, *values in evaluations.figures(found)]
        terminal.say(terminal.table(list(map(said, evaluations.HEADER)), rows))
        terminal.say(evaluations.conclusion(found))
        terminal.say(Message("evaluation: {path}", path=found["path"]))
    return EXIT_DONE
