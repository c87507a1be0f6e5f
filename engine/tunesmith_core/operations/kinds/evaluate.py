"""Measuring what a run has learned; `tunesmith_engine.operations` holds what it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core.devices import answering_on
from tunesmith_core.messages import Message
from tunesmith_core.operations.kind import AbsolutePath, Kind, RunFolder
from tunesmith_core.operations.kinds.chat import CHECKPOINT_HELP
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec


@dataclass(frozen=True, slots=True)
class EvaluateSpec:
    """What of a run is measured, and on which rows.

    Attributes:
        run: its folder.
        checkpoint: step of a checkpoint; 0 for the finished adapter, or the newest checkpoint where there is none.
        data: a file of rows; "" for the rows that the run holds out.
        rows: that are answered, at most; losses are measured on more.
        matches: a regular expression that good answers match; "" for no such check.
        harness: names of tasks of lm-evaluation-harness, separated by commas.
        harness_tasks: a folder with more of its tasks, "" for none.
        read_as: how `data` is read where it is not as the first file of the run: fields of a SourceSpec.
    """

    run: RunFolder
    checkpoint: int = 0
    data: AbsolutePath = AbsolutePath("")
    rows: int = 50
    matches: str = ""
    harness: str = ""
    harness_tasks: AbsolutePath = AbsolutePath("")
    read_as: dict[str, Any] = field(default_factory=dict, hash=False)  # Any: values of a source

    @property
    def downloads(self) -> bool:
        """Whether data sets may come from the hub."""
        return bool(self.harness)

    def answering(self) -> RunSpec:
        """Return the settings of the run, on the device that answers."""
        return answering_on(Run(Path(self.run)).load_spec(), "auto")


EVALUATE = Kind(
    name="evaluate",
    title="Evaluating",
    cut_short="What has been measured is lost. The next evaluation starts from the beginning.",
    spec=EvaluateSpec,
    function="tunesmith_engine.operations:evaluate",
    help="compare the trained model of a run with the model before it; a run in progress measures its held-out loss",
    options={
        "checkpoint": CHECKPOINT_HELP,
        "data": Message("a file of rows to measure on; without it, the rows that the run holds out"),
        "rows": Message("most rows to answer; the loss is measured on more"),
        "matches": Message("a regular expression; tells how many answers it is found in, (?i) ignores case"),
        "harness": Message(
            "tasks of lm-evaluation-harness, separated by commas; their data comes from the hub, and the first use "
            "downloads the program after asking"
        ),
        "harness_tasks": Message("a folder with tasks of your own for --harness; code that they name is run"),
    },
    # An answer in progress is not interrupted.
    grace_s=30.0,
)
