"""What a person's own Python file gives for answers, in a limited process."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, phrase
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import Kind, Place
from tunesmith_core.operations.limits import GIB, Limits

FUNCTION = "reward"
MOST_SHOWN = 60
"""Characters of a value in an error."""


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """A Python file, and what its function is called with: prompts, answers and expected answers, one list each."""

    path: str
    prompts: list[str]
    answers: list[str]
    expected: list[str]


def score(host: Host, spec: ScoreSpec) -> list[float]:
    """Return what the function `reward` of a file gives for each answer; not a number is told as it is.

    Raises:
        UserError: `reward-failed` names file and line where it can't be read, raises or returns something else.
    """
    with host.portions as portions:
        portions.limit_memory(portions.limits.memory_bytes)
        portions.about(Path(spec.path))
        portions.begin("reward")
        function = _function(spec.path)
        found = []
        for prompt, answer, expected in zip(spec.prompts, spec.answers, spec.expected, strict=True):
            portions.begin("reward")
            found.append(_called(function, spec.path, prompt, answer, expected))
        return found


def _function(path: str) -> Callable[[str, str, str], object]:
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
    return cast("Callable[[str, str, str], object]", function)


def _called(
    function: Callable[[str, str, str], object], path: str, prompt: str, answer: str, expected: str
) -> float:
    try:
        value = function(prompt, answer, expected)
    except Exception as error:
        raise _failed(_told(error, path)) from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = type(value).__name__
        raise _failed(
            Message(
                "{path}: {name} must return a number, but returned {value} ({kind}).",
                path=path,
                name=FUNCTION,
                value=repr(value)[:MOST_SHOWN],
                kind=kind,
            )
        )
    return float(value)


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


SCORE = Kind(
    name="score",
    title="Scoring answers",
    spec=ScoreSpec,
    function="tunesmith_core.operations.kinds.score:score",
    place=Place.SAME,
    limits=Limits(memory_bytes=4 * GIB),
)
