"""Problems of a task, to learn from by rewards; the package reasoning-gym makes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import environments, reward_tasks
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, joined
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath, Kind

USUAL_NUM, USUAL_HELD_OUT = 500, 100
MOST_PROBLEMS = 100_000


@dataclass(frozen=True, slots=True)
class ProblemsSpec:
    """Which problems are made.

    Attributes:
        task: a key of `reward_tasks.TASKS`.
        target: the JSONL file for training; the held-out problems stand beside it.
        number, held_out: how many of each.
        level: how hard they are, 1 to 3.
        seed: another one gives other problems.
        overwrite: whether files that are there are replaced.
    """

    task: str
    target: AbsolutePath
    number: int = USUAL_NUM
    held_out: int = USUAL_HELD_OUT
    level: int = 1
    seed: int = 0
    overwrite: bool = False


def make(host: Host, spec: ProblemsSpec) -> dict[str, Any]:  # Any: JSON values
    """Write the files and return their paths ("train", "held_out"), how many problems are in them, and what to know.

    Raises:
        UserError: `usage` for settings out of range or files that are there, `dataset-empty`.
        EnvironmentProblem: `environment-missing` or `environment-damaged`.
    """
    del host
    check(spec)
    packages = str(environments.rewards_packages())
    target = Path(spec.target)
    made = reward_tasks.problems(packages, spec.task, spec.level, spec.seed, spec.number + spec.held_out)
    num_train, num_held_out = reward_tasks.write(target, made, spec.number, spec.held_out)
    note = reward_tasks.fewer_note(spec.level, spec.number + spec.held_out, num_train, num_held_out)
    beside = str(reward_tasks.held_out_path(target)) if num_held_out else ""
    return {
        "train": str(target),
        "held_out": beside,
        "num_train": num_train,
        "num_held_out": num_held_out,
        "notes": [note] if note else [],
    }


def check(spec: ProblemsSpec) -> None:
    """Check the settings. Raises UserError `usage`, also for a file that is there."""
    if spec.task not in reward_tasks.TASKS:
        listed = joined(
            [Message("{name}: {details}", name=name, details=words) for name, words in reward_tasks.TASKS.items()], "\n"
        )
        raise TunesmithError(
            "usage", "There is no task {task}. The tasks are:\n{listed}", task=spec.task, listed=listed
        )
    if spec.level not in reward_tasks.LEVELS:
        raise TunesmithError("usage", "The level must be 1, 2 or 3.")
    if not 1 <= spec.number <= MOST_PROBLEMS or not 0 <= spec.held_out <= MOST_PROBLEMS:
        raise TunesmithError("usage", "The number of problems must be 1 to {most:,}.", most=MOST_PROBLEMS)
    for path in (Path(spec.target), reward_tasks.held_out_path(Path(spec.target))):
        if path.exists() and not spec.overwrite:
            raise TunesmithError("usage", "{path} exists already. Choose another name, or --overwrite.", path=path)


PROBLEMS = Kind(
    name="problems",
    title="Making problems",
    spec=ProblemsSpec,
    function="tunesmith_core.operations.kinds.problems:make",
    help="write problems of a task to learn from by rewards; a wrong name lists the tasks",
    options={
        "task": Message("a task, such as chain_sum"),
        "target": Message("the file to write"),
        "number": Message("problems to train on"),
        "held_out": Message("problems to hold out, in a file beside it"),
        "level": Message("how hard they are: 1, 2 or 3"),
        "seed": Message("another one gives other problems"),
        "overwrite": Message("replace files that are there"),
    },
)
