"""Whether one model can be the teacher of another: both must mean the same by the number of every token.

Nothing is loaded: the vocabularies are read from the files of the tokenizers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.model_cards import ModelCard, read_model_card
from tunesmith_core.model_folder import base_folder, open_model_folder
from tunesmith_core.objectives import DISTILLATION
from tunesmith_core.spec import RunSpec
from tunesmith_core.tokenizer_files import MOST_BYTES

VOCABULARY = "tokenizer.json"
HINT = Message("Choose a bigger model of the same family as the base model.")


def check_teacher(spec: RunSpec) -> Path:
    """Check that the teacher of a run is there and speaks the language of its base model; return its folder.

    Raises:
        TunesmithError: `teacher-unsuitable` for the base model itself and where a token has another number, and what
            `base_folder` and `open_model_folder` find.
    """
    student, teacher = base_folder(spec.model.path, spec.model.revision), base_folder(spec.teacher.path)
    if student.resolve() == teacher.resolve():
        raise TunesmithError("teacher-unsuitable", "{teacher} is the base model itself.", hint=HINT, teacher=teacher)
    open_model_folder(teacher)
    if difference := vocabulary_difference(student, teacher):
        raise TunesmithError(
            "teacher-unsuitable",
            "{teacher} can't teach {student}: {difference}.",
            hint=HINT,
            teacher=teacher,
            student=student,
            difference=difference,
        )
    return teacher


def size_note(student: ModelCard, teacher: ModelCard) -> Message | None:
    """Return what to know of a teacher that has no more parameters than the model it teaches; None of a bigger one."""
    if teacher.num_parameters > student.num_parameters:
        return None
    return Message(
        "{teacher} is not bigger than the base model. There may be nothing to learn from it.", teacher=teacher.path.name
    )


def teacher_note(spec: RunSpec) -> Message | None:
    """Return what to know of the teacher of a run that can have one, None for nothing. Raises as `check_teacher`."""
    if spec.objective.kind not in DISTILLATION:
        return None
    student = read_model_card(base_folder(spec.model.path, spec.model.revision))
    return size_note(student, read_model_card(check_teacher(spec)))


def vocabulary_difference(one: Path, other: Path) -> Message | None:
    """Return the first difference between the vocabularies of two model folders, None where there is none."""
    paths = [folder / VOCABULARY for folder in (one, other)]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        return Message("without {path} nobody can tell whether their tokens are the same", path=missing[0])
    first, second = map(_vocabulary, paths)
    if first == second:
        return None
    token = min(token for token in first.keys() | second.keys() if first.get(token) != second.get(token))
    return Message(
        "their tokenizers differ, first in the token {token} (number {first} and {second})",
        token=shortened(token),
        first=_shown(first.get(token)),
        second=_shown(second.get(token)),
    )


def _shown(number: int | None) -> str:
    return "–" if number is None else str(number)


def _vocabulary(path: Path) -> dict[str, int]:
    """Return the number of each token in a tokenizer.json; what is none of that is left to who loads it."""
    try:
        values = files.read_foreign_json(path, MOST_BYTES)
        found = _numbered(values["model"].get("vocab") or {})
        return found | {each["content"]: each["id"] for each in values.get("added_tokens") or ()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TunesmithError("teacher-unsuitable", "{path}: the vocabulary can't be read.", path=path) from error


def _numbered(vocabulary: Any) -> dict[str, int]:  # Any: an object of numbers, or a list of tokens with scores
    if isinstance(vocabulary, dict):
        return dict(vocabulary)
    return {token: number for number, (token, _score) in enumerate(vocabulary)}
