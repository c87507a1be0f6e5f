"""Where libraries read what a person brought: what they raise there is said of the file, not of this program.

The border runs by place. Inside `reading` stands nothing but a call of transformers, tokenizers or safetensors with a
model's own files, or of the model that they made of them alone, before anything of ours is attached. Whatever comes
out of such a call was caused by the files, because the same call works with sound ones, or by the library's own code
where the files were found sound before. The same exception from any other place is our mistake and stays one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.model_json import read_object
from tunesmith_engine.failures import translate

NAMING = frozenset(
    {
        "bug",
        "model-files-missing-or-corrupt",
        "tokenizer-missing-dep",
        "transformers-version-mismatch",
        "torch-too-old-for-transformers",
        "trl-peft-api-mismatch",
        "dataset-parse-error",
        "dataset-column-missing",
        "text-encoding-locale",
        "device-mismatch",
        "flash-attn-missing",
        "windows-multiprocessing-spawn",
        "path-non-ascii",
    }
)
"""Codes that an exception of a library may get by its words while it reads a model; others (memory, disk, network, a
GPU) have nothing to do with the files."""

KEPT = frozenset({"tokenizer-missing-dep", "transformers-version-mismatch"})
"""Of these, the ones that say more than that a file is at fault."""

_OF_PYTHON = (AttributeError, TypeError, IndexError, AssertionError)
"""Their words are about the library's code."""

_FIELD = re.compile(r"field '(\w+)'")
_SIZES = re.compile(r"\b(sizes?|shapes?)\b")
_NO_NUMBERS = "meta tensor"
"""In PyTorch's words about a tensor without numbers: transformers makes a model of such ones, then fills those that are
in the files or that it knows how to compute."""


@contextlib.contextmanager
def reading(path: Path, task: str, code: str = "model-files-missing-or-corrupt") -> Iterator[None]:
    """Say what goes wrong meanwhile of a file.

    Args:
        path: the file, or the folder where it can be any of several.
        task: what can't be done, a sentence's end such as "the settings can't be used".
        code: what it means that it can't.

    Raises:
        UserError: with the given code.
        TunesmithError: with its own code for what has nothing to do with the file, such as too little memory.
    """
    try:
        yield
    except (TunesmithError, MemoryError):
        # Who limits this process says at what it ran out.
        raise
    except Exception as error:
        failure = translate(error)
        if failure.code not in NAMING:
            raise failure from error
        raise TunesmithError(
            failure.code if failure.code in KEPT and isinstance(error, ImportError) else code,
            "{path}: {task}: {reason}.",
            path=path,
            task=Message(task),
            reason=_reason(error, path),
            context=failure.context,
        ) from error


def refused(path: Path, template: str, /, **values: str | int | list[int]) -> TunesmithError:
    """Return the error about what a file of a model says."""
    return TunesmithError("model-files-missing-or-corrupt", Message(template, path=path, **values))


def _reason(error: Exception, path: Path) -> str:
    """Return what a library says is wrong, in a few words."""
    if isinstance(error, KeyError) and error.args:
        return _key_reason(error.args[0], path)
    if isinstance(error, _OF_PYTHON):
        return Message("a setting is missing or has a value that this model can't have")
    text = str(error).strip()
    if isinstance(error, RuntimeError) and _NO_NUMBERS in text:
        return Message("a table that it computes itself is empty after a model is loaded")
    if isinstance(error, RuntimeError) and _SIZES.search(text):
        return Message("two of its parts expect tensors of different sizes")
    if field := _FIELD.search(text):
        return Message("the value of {name} is not one that this model can have", name=field[1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Class validation error"):
        lines = [lines[1].partition("Error: ")[2] or lines[1]]
    return shortened(lines[0].rstrip(".:!")) if lines else Message("the reason is not known")


def _key_reason(key: object, path: Path) -> str:
    """Return what a key says that a library has no entry for: a value in config.json, or a setting that is missing."""
    try:
        config = read_object(path / "config.json" if path.is_dir() else path)
    except TunesmithError:
        config = {}
    if name := _name_of(key, config):
        return Message('{name} is "{value}", which this model does not support', name=name, value=shortened(key))
    return Message("the setting {name} is missing", name=shortened(key))


def _name_of(value: object, settings: object) -> str | None:
    """Return the name of the first setting that has a value, at any depth."""
    parts = settings.items() if isinstance(settings, dict) else ()
    for name, each in parts:
        if each == value:
            return shortened(name)
        if inner := _name_of(value, each):
            return inner
    return None
