"""Answers that a local model writes to the prompts of data; `tunesmith_engine.answering` holds what is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.limits import Limits
from tunesmith_core.spec import RunSpec


@dataclass(frozen=True, slots=True)
class AskedSpec:
    """Data whose prompts are read."""

    run: RunSpec

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return {"run": self.run.to_dict()}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> AskedSpec:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return AskedSpec(RunSpec.salvage(values["run"]))


@dataclass(frozen=True, slots=True)
class AnswersSpec:
    """The prompts, the model that answers them, and the file that it writes.

    Attributes:
        run: names model, device and data; nothing is trained.
        target: the JSONL file. One that was stopped is continued.
        most_tokens: of an answer; a longer one is left out.
        keeps_logprobs: whether what the model found likely at each token is kept in the rows.
        overwrite: whether a file that is there is replaced, and one that was stopped begins again.
    """

    run: RunSpec
    target: AbsolutePath
    most_tokens: int = 512
    overwrite: bool = False
    keeps_logprobs: bool = False

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return {
            "run": self.run.to_dict(),
            "target": self.target,
            "most_tokens": self.most_tokens,
            "overwrite": self.overwrite,
            "keeps_logprobs": self.keeps_logprobs,
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> AnswersSpec:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return AnswersSpec(**{**values, "run": RunSpec.salvage(values["run"])})


ANSWERS = Kind(
    name="write-answers",
    title="Writing answers",
    cut_short="The answers written so far are kept. Continue with them later.",
    spec=AnswersSpec,
    function="tunesmith_engine.operations:write_answers",
    # A product of large matrices is not interrupted.
    grace_s=10.0,
)
PROMPTS = Kind(
    name="read-prompts",
    title="Reading the prompts",
    spec=AskedSpec,
    function="tunesmith_engine.operations:read_prompts",
    grace_s=1.0,
    limits=Limits(),
)
