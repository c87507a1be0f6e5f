"""A check of data inside this process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.data import CheckDataSpec
from tunesmith_core.operations.kinds.rows import EditedRows
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.operations import check_data

Row = dict[str, Any]


def write_lines(path: Path, rows: Iterable[Row | str | bytes]) -> Path:
    """Write rows as JSON Lines; texts and bytes as they are."""
    lines = (row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else as_line(row) for row in rows)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def as_line(row: Row) -> bytes:
    """Return a row as JSON."""
    return json.dumps(row, ensure_ascii=False).encode()


def chat(question: str, answer: str, *more: Row) -> Row:
    """Return a row of one question and its answer."""
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}, *more]}


def good(number: int) -> Row:
    """Return a sound row, different for each number."""
    return chat(f"How do I open file {number} of the project today?", f"Choose it in list {number * 7} and press open.")


def spec_of(*paths: Path, evaluation: Path | None = None, **data: Any) -> RunSpec:
    """Return the spec of a run on these files."""
    spec = RunSpec()
    spec.data.sources = [SourceSpec(path=str(path)) for path in paths]
    for name, value in data.items():
        setattr(spec.data, name, value)
    spec.evaluation.path = str(evaluation or "")
    return spec


def host_in(folder: Path) -> Host:
    """Return a host with a folder of its own."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "control").mkdir(exist_ok=True)
    return Host(Operation(folder))


def check(folder: Path, spec: RunSpec, model: str = "", edited: EditedRows | None = None) -> dict[str, Any]:
    """Check the data of a run and return the answer."""
    with host_in(folder / "operation") as host:
        return check_data(host, CheckDataSpec(spec, model, edited or EditedRows()))


def problems_of(answer: dict[str, Any]) -> dict[str, list[tuple[int, int | None]]]:
    """Return line and column of each problem by its rule."""
    return {each["rule"]: [(row["line"], row["column"]) for row in each["rows"]] for each in answer["problems"]}
