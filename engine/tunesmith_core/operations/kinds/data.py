"""What can be done with data before a run: check it, and write a repaired, split, mixed or converted copy."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Self

from tunesmith_core.operations.kind import AbsolutePath, Kind
from tunesmith_core.operations.kinds.rows import EditedRows
from tunesmith_core.operations.limits import Limits
from tunesmith_core.spec import RunSpec

WRITTEN = (".jsonl", ".csv", ".parquet")
"""What the name of a file of rows that is written may end in."""


class _OfRun:
    """A dataclass whose field `run` says which data is meant, as JSON values."""

    run: RunSpec

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        names = [each.name for each in dataclasses.fields(self) if each.name != "run"]  # type: ignore[arg-type]
        return {"run": self.run.to_dict(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:  # Any: JSON values
        """Rebuild a spec from `to_dict`; a run that names no model yet has data all the same."""
        return cls(**{**values, "run": RunSpec.salvage(values["run"])})


class _OfEditedRun(_OfRun):
    """With `edited`: what a person has changed in the rows."""

    edited: EditedRows

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the spec as JSON values."""
        return {**super().to_dict(), "edited": dataclasses.asdict(self.edited)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:  # Any: JSON values
        """Rebuild a spec from `to_dict`."""
        return super().from_dict({**values, "edited": EditedRows(**values["edited"])})


@dataclass(frozen=True)
class CheckDataSpec(_OfEditedRun):
    """The sources and the evaluation file of a run, and the folder of its model.

    Attributes:
        folder: "" for none; what needs a tokenizer is left out then.
        edited: what a person has changed in the rows.
    """

    run: RunSpec
    folder: str = ""
    edited: EditedRows = field(default_factory=EditedRows)


@dataclass(frozen=True)
class SaveDataSpec(_OfEditedRun):
    """A repaired copy of a run's training data.

    Attributes:
        folder: of the model, "" for none.
        target: the file that is written, JSONL or, of a CSV file, CSV of the same columns by its name.
        actions: what is done about the rows that a rule finds; a rule that is left out gets its own default.
        edited: what a person has changed in the rows.
    """

    run: RunSpec
    folder: str
    target: AbsolutePath
    actions: dict[str, str] = field(default_factory=dict)
    edited: EditedRows = field(default_factory=EditedRows)


@dataclass(frozen=True)
class SplitDataSpec(_OfRun):
    """The rows of a run's sources in two files; equal rows stay on one side.

    Attributes:
        train, evaluation: the files that are written, JSONL, CSV or Parquet by their names.
        percent: share of the rows that are held out; 0 where `count` says how many.
        count: how many are held out.
        column: rows with the same value there stay on one side; "" for none.
        seed: which of them.
        overwrite: whether a file that is there is replaced.
    """

    run: RunSpec
    train: AbsolutePath
    evaluation: AbsolutePath
    percent: float = 0.0
    count: int = 0
    column: str = ""
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class MixDataSpec(_OfRun):
    """Rows of several sources in one file, in random order.

    Attributes:
        target: the file that is written, JSONL, CSV or Parquet by its name.
        weights: of the sources, in their order; empty takes every row of each.
        caps: most rows of each, 0 for any number; empty for no caps.
        count: rows of the mixture; 0 for as many as the weights allow without repeating a row.
        seed: which rows, and their order.
        overwrite: whether a file that is there is replaced.
    """

    run: RunSpec
    target: AbsolutePath
    weights: list[float] = field(default_factory=list)
    caps: list[int] = field(default_factory=list)
    count: int = 0
    seed: int = 0
    overwrite: bool = False


@dataclass(frozen=True)
class ConvertDataSpec(_OfRun):
    """The rows of a run's sources in one file of another kind.

    Attributes:
        target: the file that is written, JSONL, CSV or Parquet by its name.
        as_messages: whether each row becomes a chat of messages; else its columns stay as they are.
        overwrite: whether a file that is there is replaced.
    """

    run: RunSpec
    target: AbsolutePath
    as_messages: bool = False
    overwrite: bool = False


CHECK_DATA = Kind(
    name="check-data",
    title="Checking the data",
    spec=CheckDataSpec,
    function="tunesmith_engine.operations:check_data",
    grace_s=1.0,
    limits=Limits(),
)
SAVE_DATA = Kind(
    name="save-data",
    title="Saving a repaired copy of the data",
    cut_short="The copy is not saved.",
    spec=SaveDataSpec,
    function="tunesmith_engine.operations:save_data",
    limits=Limits(),
)
SPLIT_DATA = Kind(
    name="split-data",
    title="Splitting the data",
    spec=SplitDataSpec,
    function="tunesmith_engine.operations:split_data",
    limits=Limits(),
)
MIX_DATA = Kind(
    name="mix-data",
    title="Mixing the data",
    spec=MixDataSpec,
    function="tunesmith_engine.operations:mix_data",
    limits=Limits(),
)
CONVERT_DATA = Kind(
    name="convert-data",
    title="Converting the data",
    spec=ConvertDataSpec,
    function="tunesmith_engine.operations:convert_data",
    limits=Limits(),
)
