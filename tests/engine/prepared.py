"""Data as a run gets it, prepared in this process."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.limits import Portions
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import PreparedData
from tunesmith_engine.data import prepare as write
from tunesmith_engine.data.rows_file import RowsWriter, read_rows
from tunesmith_engine.failures import translate
from tunesmith_engine.plan_check import plan_check
from tunesmith_engine.preparation import Preparation


def prepare(spec: RunSpec, tokenizer: Any) -> PreparedData:  # Any: a transformers tokenizer
    """Write the rows of a spec and read them back."""
    with tempfile.TemporaryDirectory() as name:
        with RowsWriter(Path(name)) as rows:
            prepared = write(spec, tokenizer, rows, Portions())
        answer = json.loads(json.dumps(prepared.to_dict())) | {"prompts": {}}
        return PreparedData.from_rows(read_rows(Path(name)), answer)


def checked(spec: RunSpec) -> dict[str, Any]:  # Any: JSON values
    """Return what a plan check measures, without a child process of its own."""
    with Preparation(spec) as preparation:
        return plan_check(spec, preparation)


def conduct_here(
    kind: Kind,
    spec: Any,
    *,
    on_event: Callable[[Event], object] = lambda _event: None,
    take: Callable[[Path, Any], Any] = lambda _folder, answer: answer,
    **_: object,
) -> Outcome:
    """Do an operation of the engine as its child would, without limits."""
    with tempfile.TemporaryDirectory() as name:
        operation = Operation(Path(name))
        try:
            with Host(operation) as host:
                answer = kind.load_function()(host, kind.spec_from(json.loads(json.dumps(kind.spec_values(spec)))))
        except Exception as error:
            failure = TunesmithError.from_dict(json.loads(json.dumps(translate(error).to_dict())))
            return Outcome(OperationState.FAILED, failure.exit_code, error=failure)
        for event in read_journal(operation.journal_path):
            on_event(event)
        return Outcome(OperationState.FINISHED, 0, take(operation.path, json.loads(json.dumps(answer))))
