"""What a model that scores or sorts says of a text of one's own; `tunesmith_engine.operations` holds what this does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tunesmith_core.devices import answering_on
from tunesmith_core.messages import Message
from tunesmith_core.operations.kind import Kind, RunFolder
from tunesmith_core.operations.kinds.chat import CHECKPOINT_HELP, AnsweringDevice
from tunesmith_core.operations.limits import Limits
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec


@dataclass(frozen=True, slots=True)
class RateSpec:
    """A text and the run whose model rates it.

    Attributes:
        run: its folder.
        text: an answer, a text to be sorted, or a solution with a step on each line.
        prompt: what the answer is to; "" for a text that answers nothing.
        checkpoint: as in `ChatSpec`.
        device: as in `ChatSpec`.
    """

    run: RunFolder
    text: str
    prompt: str = ""
    checkpoint: int = 0
    device: AnsweringDevice = "auto"

    def answering(self) -> RunSpec:
        """Return the settings of the run, on the device that answers. Raises UserError as `Run.load_spec`."""
        return answering_on(Run(Path(self.run)).load_spec(), self.device)


RATE = Kind(
    name="rate",
    title="Rating a text",
    spec=RateSpec,
    function="tunesmith_engine.operations:rate",
    help="let the model of a run that scores answers, sorts texts or checks steps rate a text of your own",
    options={
        "text": Message("the answer or text to rate; of a solution a step on each line"),
        "prompt": Message("what the text answers"),
        "checkpoint": CHECKPOINT_HELP,
        "device": Message("where the model runs; auto takes a GPU if there is one"),
    },
    # A product of large matrices is not interrupted.
    grace_s=10.0,
)
READ_TEXT = Kind(
    name="read-text",
    title="Rating a text",
    spec=RateSpec,
    function="tunesmith_engine.operations:read_text",
    grace_s=1.0,
    limits=Limits(),
)
"""The tokens of the text, as the run has read those of its data."""
