"""Commands of the command line that the kinds of operations bring with them."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, get_args, get_type_hints

from tunesmith_core import paths, terminal
from tunesmith_core.errors import EXIT_DONE, TunesmithError
from tunesmith_core.messages import Message, joined
from tunesmith_core.operations.kind import AbsolutePath, Kind, RunFolder
from tunesmith_core.operations.runner import conduct
from tunesmith_core.runs import open_run

RUN_HELP = Message("a run: its name, its id as `tunesmith runs` lists it, its folder, or `latest`")


def add_arguments(parser: ArgumentParser, kind: Kind, without: Collection[str] = ()) -> None:
    """Declare an argument for each field of the spec, text, number or switch: an option where it has a default.

    Args:
        parser: of the command.
        kind: of the operation.
        without: fields that the command leaves out.
    """
    types = get_type_hints(kind.spec)
    for field in _told_fields(kind):
        if field.name in without:
            continue
        value_type = types[field.name]
        choices = get_args(value_type)
        read: Any = str if choices else _READERS.get(value_type, value_type)  # Any: a type or a function
        words = RUN_HELP if value_type is RunFolder else kind.options.get(field.name, "")
        option = f"--{field.name.replace('_', '-')}"
        if field.default is dataclasses.MISSING:
            parser.add_argument(field.name, type=read, metavar=field.name.upper(), help=words)
        elif value_type is bool:
            parser.add_argument(option, action="store_true", help=words)
        else:
            told = joined(filter(None, (words, field.default != "" and f"({field.default})")))
            parser.add_argument(option, type=read, default=field.default, choices=choices or None, help=told)


def _told_fields(kind: Kind) -> list[dataclasses.Field[Any]]:  # Any: types of fields
    """Return the fields that are one text, number or switch; a command says the others in its own way."""
    return [each for each in dataclasses.fields(kind.spec) if each.default_factory is dataclasses.MISSING]


def _absolute(text: str) -> str:
    # A default goes through here too, and "" stands for no path.
    return str(Path(text).expanduser().absolute()) if text else ""


def _run_folder(text: str) -> str:
    return str(open_run(text).path)


def command_of(kind: Kind, spec: Any) -> list[str]:  # Any: of kind.spec
    """Return the words of the command that does an operation; what has its default is left out."""
    types, words = get_type_hints(kind.spec), ["tunesmith", kind.name]
    for field in _told_fields(kind):
        value = getattr(spec, field.name)
        option = f"--{field.name.replace('_', '-')}"
        if field.default is dataclasses.MISSING:
            words.append(_run_name(value) if types[field.name] is RunFolder else str(value))
        elif value is True:
            words.append(option)
        elif value != field.default:
            words += [option, str(value)]
    return words


def _run_name(folder: str) -> str:
    path = Path(folder)
    return path.name if path.parent == paths.runs_dir() else folder


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TunesmithError("usage", "{text} is not valid text in UTF-8.", text=text) from None
    return text


# Any: types of fields
_READERS: dict[Any, Callable[[str], str]] = {AbsolutePath: _absolute, RunFolder: _run_folder, str: _text}


def spec_of(kind: Kind, arguments: Namespace) -> Any:  # Any: of kind.spec
    """Return the spec that the words of a command make."""
    return kind.spec(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(kind.spec)})


def run(kind: Kind, spec: Any, say: Callable[[Any], None], *, as_json: bool) -> int:  # Any: of kind.spec; JSON values
    """Do an operation and say its answer, see `do`.

    Raises:
        TunesmithError: of an operation that failed, or that tells of a failure in its answer.
    """
    answer = do(kind, spec, say, as_json=as_json)
    if isinstance(answer, dict) and "error" in answer:
        raise TunesmithError.from_dict(answer["error"])
    return EXIT_DONE


def do(kind: Kind, spec: Any, say: Callable[[Any], None], *, as_json: bool) -> Any:  # Any: of kind.spec; JSON values
    """Do an operation, show its events, and say and return its answer; or show the events as JSON lines, it among them.

    Raises:
        TunesmithError: of an operation that failed.
    """
    progress = terminal.Progress(to_error=True)
    try:
        outcome = conduct(kind, spec, on_event=terminal.say_event if as_json else progress.show)
    finally:
        progress.close()
    answer: Any = outcome.get()  # Any: JSON values
    if not as_json:
        say(answer)
    return answer
