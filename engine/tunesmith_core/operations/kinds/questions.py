"""Questions and answers that a local model writes about documents; `tunesmith_engine.questions` holds what is done."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.limits import Limits
from tunesmith_core.spec import RunSpec

MOST_QUESTIONS = 20
"""Of a passage; a model repeats itself long before."""


@dataclass(frozen=True, slots=True)
class QuestionsSpec:
    """The documents, the model that asks about them, and the file that it writes.

    Attributes:
        run: names model, device and documents; nothing is trained.
        target: the JSONL file. One that was stopped is continued.
        number: questions of a passage at most.
        seed: another one gives other questions.
        overwrite: whether a file that is there is replaced, and one that was stopped begins again.
    """

    run: RunSpec
    target: AbsolutePath
    number: int = 3
    seed: int = 0
    overwrite: bool = False

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return {
            "run": self.run.to_dict(),
            "target": self.target,
            "number": self.number,
            "seed": self.seed,
            "overwrite": self.overwrite,
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> QuestionsSpec:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return QuestionsSpec(**{**values, "run": RunSpec.salvage(values["run"])})


@dataclass(frozen=True, slots=True)
class PassagesSpec:
    """Documents that are cut into passages.

    Attributes:
        run: names the documents.
        folder: of the model whose tokens are counted.
        most_tokens: of a passage.
    """

    run: RunSpec
    folder: AbsolutePath
    most_tokens: int

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return {"run": self.run.to_dict(), "folder": self.folder, "most_tokens": self.most_tokens}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> PassagesSpec:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return PassagesSpec(**{**values, "run": RunSpec.salvage(values["run"])})


def note_path(target: Path) -> Path:
    """Return the note beside a file of questions that says how far it is; none is there once it is whole."""
    return target.with_name(f".{target.name}.unfinished")


@dataclass(frozen=True, slots=True)
class Begun:
    """How far a file of questions is that was stopped."""

    questions: int
    passages: int
    total: int


def begun(target: Path) -> Begun | None:
    """Return how far a file of questions is; None where none was stopped, or nobody can tell."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note = files.read_json(note_path(target))
        return Begun(int(note["counts"]["rows"]), int(note["next"]), int(note["total"]))
    return None


QUESTIONS = Kind(
    name="write-questions",
    title="Writing questions",
    cut_short="The questions written so far are kept. Continue with them later.",
    spec=QuestionsSpec,
    function="tunesmith_engine.operations:write_questions",
    # A product of large matrices is not interrupted.
    grace_s=10.0,
)
PASSAGES = Kind(
    name="cut-passages",
    title="Reading the documents",
    spec=PassagesSpec,
    function="tunesmith_engine.operations:cut_passages",
    grace_s=1.0,
    limits=Limits(),
)
