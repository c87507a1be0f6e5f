"""`tunesmith evaluate`: what a run has learned, as a table; a run in progress is asked for its held-out loss."""

from __future__ import annotations

import subprocess
from argparse import Namespace
from pathlib import Path

from tunesmith_core import cli_runs, cli_sources, environments, evaluations, terminal
from tunesmith_core.datafmt.encoding import UTF_8
from tunesmith_core.errors import BugError, TunesmithError
from tunesmith_core.messages import Message, said
from tunesmith_core.operations.command import run as run_kind
from tunesmith_core.operations.command import spec_of
from tunesmith_core.operations.kinds.evaluate import EVALUATE
from tunesmith_core.operations.kinds.match import MATCH, MatchSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.runs import Run

SETUP_MODULE = "tunesmith_setup"
OPTIONS_WITHOUT_FILE = Message("--encoding, --format, --columns and --sheet say how a file of rows is read.")


def evaluate(arguments: Namespace) -> int:
    """Measure a run beside its base model, or ask one in progress for its loss."""
    run = Run(Path(arguments.run))
    if run.is_supervised():
        return cli_runs.evaluate(run)
    if arguments.rows < 1:
        raise TunesmithError("usage", "--rows: {rows} is less than 1.", rows=arguments.rows)
    if arguments.matches:
        conduct(MATCH, MatchSpec(arguments.matches, [])).get()
    arguments.read_as = cli_sources.chosen(arguments)
    if not arguments.data:
        if arguments.read_as:
            raise TunesmithError("usage", OPTIONS_WITHOUT_FILE, hint=Message("Name the file: --data FILE"))
        return _measure(arguments)
    path = Path(arguments.data)
    cli_sources.check_exists(path)
    encoding = arguments.encoding or cli_sources.likely(path)
    if encoding != UTF_8:
        arguments.read_as["encoding"] = encoding
    return cli_sources.with_hints(_measure)(arguments)


def _measure(arguments: Namespace) -> int:
    spec = spec_of(EVALUATE, arguments)
    if spec.harness and (code := subprocess.call(environments.own_command(SETUP_MODULE, "harness"))):
        return max(code, BugError.exit_code)
    return run_kind(EVALUATE, spec, _say, as_json=arguments.json)


def _say(found: evaluations.Values) -> None:
    figures = evaluations.figures(found)
    rows = [(said(evaluations.METRICS.get(name, name)), *map(said, values)) for name, *values in figures]
    terminal.say(terminal.table(list(map(said, evaluations.HEADER)), rows))
    terminal.say(evaluations.conclusion(found))
    for note in evaluations.notes(found):
        terminal.say(note)
    terminal.say(Message("evaluation: {path}", path=found["path"]))
