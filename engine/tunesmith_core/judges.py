"""What scores an answer in the limited process of `operations.kinds.score`: a judge takes a row and returns a number.

A row holds "prompt", "answer" and "expected", and in "columns" the other columns of its row in the data.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from types import MappingProxyType
from typing import Any

from tunesmith_core import spec_rollouts as rewards
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase
from tunesmith_core.operations.kinds.match import compiled
from tunesmith_core.reward_tasks import ENTRY, TASK, gym

Row = Mapping[str, Any]  # Any: JSON values
Judge = Callable[[Row], object]

FUNCTION = "reward"
GIVEN = ("prompt", "answer", "expected")
"""What the function is called with, in this order; columns of other names follow by name."""

ANSWER_TAG = re.compile(r".*<answer>(.*?)</answer>", re.DOTALL)
FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


def own_file(path: str, packages: str = "") -> Judge:
    """Return the function `reward` of a person's Python file.

    Raises:
        UserError: `reward-failed` with file and line.
    """
    del packages
    try:
        function = runpy.run_path(path).get(FUNCTION)
    except OSError as error:
        raise _failed(Message("{path}: {reason}.", path=path, reason=Message(str(error.strerror)))) from error
    except Exception as error:
        raise _failed(_told(error, path)) from error
    if not callable(function):
        raise _failed(
            Message("{path}: there is no function {name}(prompt, answer, expected).", path=path, name=FUNCTION)
        )
    names, takes_all = _further_names(function)

    def judge(row: Row) -> object:
        columns = row["columns"]
        missing = [name for name, is_needed in names.items() if is_needed and name not in columns]
        if missing:
            raise _failed(
                Message(
                    '{path}: {name} asks for "{column}", but the data has no such column.',
                    path=path,
                    name=FUNCTION,
                    column=missing[0],
                )
            )
        given = {name: value for name, value in columns.items() if takes_all or name in names}
        try:
            return function(*(row[name] for name in GIVEN), **given)
        except Exception as error:
            raise _failed(_told(error, path)) from error

    return judge


def _further_names(function: Callable[..., object]) -> tuple[dict[str, bool], bool]:
    """Return the parameters behind the first three, whether each is needed, and whether it takes any others."""
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    named = [each for each in parameters if each.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    positional = [each for each in named if each.kind is kinds.POSITIONAL_OR_KEYWORD]
    further = {each.name: each.default is kinds.empty for each in named if each not in positional[: len(GIVEN)]}
    return further, any(each.kind is kinds.VAR_KEYWORD for each in parameters)


def pattern(source: str, packages: str = "") -> Judge:
    """Return whether a regular expression is found. Raises UserError `usage` for one that can't be read."""
    del packages
    expression = compiled(source)
    return lambda row: float(expression.search(row["answer"]) is not None)


def schema(path: str, packages: str) -> Judge:
    """Return whether an answer is JSON that a schema allows.

    Raises:
        UserError: `reward-failed` with file and line.
        EnvironmentProblem: `environment-damaged` without the library.
    """
    text, values = read_schema(path)
    sys.path.append(packages)
    try:
        library = importlib.import_module("jsonschema")
        known = importlib.import_module("jsonschema_specifications").REGISTRY
    except ImportError as error:
        raise _damaged(error) from error
    kind = library.validators.validator_for(values, default=library.Draft202012Validator)
    try:
        kind.check_schema(values)
    except library.SchemaError as error:
        raise _failed(
            Message(
                "{path}, line {line}: {problem}.",
                path=path,
                line=line_of(text, list(error.absolute_path)),
                problem=str(error.message),
            )
        ) from error
    # With these, a reference to another schema is not looked for on the internet.
    validator = kind(values, registry=known)

    def judge(row: Row) -> float:
        try:
            return float(validator.is_valid(json_in(row["answer"])))
        except (ValueError, RecursionError):
            return 0.0
        except Exception as error:
            # Such as a reference to another schema.
            raise _failed(Message("{path}: {problem}.", path=path, problem=phrase(error))) from error

    return judge


def json_in(answer: str) -> Any:  # Any: JSON values
    """Return what an answer says as JSON, also inside of a code block. Raises ValueError where it is none."""
    fenced = FENCE.match(answer)
    return json.loads(fenced.group(1) if fenced else answer)


def read_schema(path: str) -> tuple[str, Any]:  # Any: JSON values
    """Return the text of a file and the schema in it.

    Raises:
        UserError: `reward-failed` with file and line.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:  # noqa: PTH123 - as a text, what is wrong with it is named
            text = file.read()
        values = json.loads(text)
    except OSError as error:
        raise _failed(Message("{path}: {reason}.", path=path, reason=Message(str(error.strerror)))) from error
    except json.JSONDecodeError as error:
        problem = Message("{path}, line {line}: {problem}.", path=path, line=error.lineno, problem=error.msg)
        raise _failed(problem) from error
    except (ValueError, RecursionError) as error:
        raise _failed(Message("{path}: {problem}.", path=path, problem=phrase(error))) from error
    if not isinstance(values, dict | bool):
        raise _failed(Message("{path}: a JSON schema is an object.", path=path))
    return text, values


def line_of(text: str, keys: list[str | int]) -> int:
    """Return the line, from 1, in which a value inside of JSON begins: that of its key where it has one.

    Args:
        text: valid JSON.
        keys: where the value is, from the outside in.
    """
    place = found = _begin(text, 0)
    for key in keys:
        is_object, count = text[place] == "{", 0
        place = _begin(text, place + 1)
        while True:
            found, name = place, count
            if is_object:
                name, place = scanstring(text, place + 1)
                place = _begin(text, _begin(text, place) + 1)
            if name == key:
                break
            _, place = json.JSONDecoder().raw_decode(text, place)
            place, count = _begin(text, _begin(text, place) + 1), count + 1
    return text.count("\n", 0, found) + 1


def _begin(text: str, place: int) -> int:
    while text[place].isspace():
        place += 1
    return place


def task(source: str, packages: str) -> Judge:
    """Return what the tasks of reasoning-gym say themselves, each about the problem of the row.

    Raises:
        EnvironmentProblem: `environment-damaged` without the library.
    """
    del source
    library = gym(packages)

    def judge(row: Row) -> object:
        name, entry = (row["columns"].get(column) for column in (TASK, ENTRY))
        try:
            rate = library.get_score_answer_fn(name)
            entry = json.loads(entry)
        except (ValueError, TypeError) as error:
            words = Message(
                "The data has no problems of a task, which its columns {task} and {entry} would name.",
                task=TASK,
                entry=ENTRY,
            )
            raise _failed(words) from error
        said = ANSWER_TAG.match(row["answer"])
        try:
            return float(rate(answer=said.group(1).strip() if said else row["answer"].strip(), entry=entry))
        except Exception:
            # What the model wrote can be anything, and some tasks calculate with it.
            return 0.0

    return judge


JUDGES: Mapping[str, Callable[[str, str], Judge]] = MappingProxyType(
    {rewards.PYTHON: own_file, rewards.PATTERN: pattern, rewards.SCHEMA: schema, rewards.TASK: task}
)
"""Judges of the kinds of rewards that run in the limited process, made of a file or pattern and a folder of packages.
"""


def _told(error: Exception, path: str) -> Message:
    """Say what went wrong at which line of the person's file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
    problem = f"{type(error).__name__}: {phrase(error)}"
    if line is None:
        return Message("{path}: {problem}.", path=path, problem=problem)
    return Message("{path}, line {line}: {problem}.", path=path, line=line, problem=problem)


def _failed(words: Message) -> TunesmithError:
    return TunesmithError("reward-failed", words)


def _damaged(error: ImportError) -> TunesmithError:
    return TunesmithError(
        "environment-damaged",
        "The packages for tasks and JSON schemas can't be used: {problem}.",
        hint=Message("Run: tunesmith rewards --yes"),
        problem=phrase(error),
    )
