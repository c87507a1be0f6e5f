"""What answers are worth by something that others made: a Python file, a pattern, a JSON schema, a task's own scoring.

It runs in a limited process, which stays for the whole run: one for each step would take longer than most steps.
Answers come and scores go through numbered files in the folder of the operation.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.judges import JUDGES
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import Kind, Place
from tunesmith_core.operations.limits import GIB, Limits, Portions
from tunesmith_core.spec_rollouts import PATTERN

POLL_S = 0.002
LONGEST_POLL_S = 0.05
"""A step takes seconds: who waits longer looks more rarely."""

MOST_SHOWN = 60
"""Characters of a value in an error."""

Row = dict[str, Any]  # Any: JSON values
"""An answer: "prompt", "answer", "expected", and "columns", the other columns of its row in the data."""


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """What scores.

    Attributes:
        kind: a key of `judges.JUDGES`.
        source: a file or a pattern, "" where it needs none.
        packages: a folder of packages that it needs, "" for none.
    """

    kind: str
    source: str = ""
    packages: str = ""


def answers_path(folder: Path, number: int) -> Path:
    """Return where the answers of a request stand."""
    return folder / f"answers-{number}.json"


def scores_path(folder: Path, number: int) -> Path:
    """Return where their scores stand once all are known."""
    return folder / f"scores-{number}.json"


def score(host: Host, spec: ScoreSpec) -> NoReturn:
    """Score the answers of one request after another, until a stop.

    Raises:
        UserError: `reward-failed` names file and line where it can't be read, raises or returns something else.
    """
    number = 0
    with host.portions as portions:
        portions.limit_memory(portions.limits.memory_bytes)
        if spec.kind != PATTERN:
            portions.about(Path(spec.source))
        portions.begin(work_of(spec))
        judge = JUDGES[spec.kind](spec.source, spec.packages)
        while True:
            portions.end()
            path = answers_path(host.folder, number)
            wait_for(path)
            found = scored(judge, files.read_json(path), spec, portions)
            files.atomic_write_json(scores_path(host.folder, number), found)
            path.unlink()
            number += 1


def wait_for(path: Path) -> None:
    """Return once a file is there."""
    pause_s = POLL_S
    while not path.exists():
        time.sleep(pause_s)
        pause_s = min(LONGEST_POLL_S, pause_s * 1.1)


def scored(judge: Any, rows: list[Row], spec: ScoreSpec, portions: Portions) -> list[float | None]:  # Any: see JUDGES
    """Return the score of each answer, None for NaN and infinite ones."""
    found: list[float | None] = []
    for row in rows:
        portions.begin(work_of(spec))
        value = _number(judge(row), spec.source)
        found.append(value if math.isfinite(value) else None)
    return found


def work_of(spec: ScoreSpec) -> str:
    """Return what the work on an answer is called where it takes too much."""
    return "pattern" if spec.kind == PATTERN else "reward"


def _number(value: object, source: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TunesmithError(
            "reward-failed",
            "{path}: {name} must return a number, but returned {value} ({kind}).",
            path=source,
            name="reward",
            value=repr(value)[:MOST_SHOWN],
            kind=type(value).__name__,
        )
    return float(value)


SCORE = Kind(
    name="score",
    title="Scoring answers",
    spec=ScoreSpec,
    function="tunesmith_core.operations.kinds.score:score",
    place=Place.SAME,
    grace_s=1.0,
    limits=Limits(memory_bytes=4 * GIB),
)
