"""The files that a command is told, by options or in a spec: how they are read, and what helps where they aren't."""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tunesmith_core import adapter_folders, data_library, files, terminal
from tunesmith_core.command_line import Parser
from tunesmith_core.datafmt.encoding import READ_AS, UTF_8, parse_error
from tunesmith_core.datafmt.reading import likely_encoding
from tunesmith_core.declared import iter_declarations
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.objectives import FROM_LABELS, FROM_PAIRS, FROM_STEPS, LABELS
from tunesmith_core.plain_text import pasted
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import CHOICE_WORDS, SourceSpec

CHOICES = {name: declaration.choices for name, _, _, declaration in iter_declarations(SourceSpec)}
HINTS = {
    "dataset-column-missing": Message("Name the columns, for example: --columns prompt=Question completion=Answer"),
    "chat-template-unclear": Message("Choose a model with another chat template."),
    "dataset-encoding": Message("Name the encoding of the file with --encoding."),
}
"""What helps on a command line, by the code of an error whose own hint names a control of the window."""

EXAMPLE_COLUMNS = {"prompt": "Question", "completion": "Answer"}
COLUMNS_OF = {
    FROM_PAIRS: {"prompt": "Question", "chosen": "Better answer", "rejected": "Worse answer"},
    LABELS: EXAMPLE_COLUMNS | {"label": "Good or bad"},
    FROM_LABELS: {"text": "Text", "class": "Class"},
    FROM_STEPS: {"prompt": "Question", "steps": "Steps", "step_labels": "Right or wrong"},
}
"""Columns that objectives need, where it is not those of the example."""

COLUMN_HINT = Message("Name a column that every row of the files has with --column.")
"""What helps where rows lack the column by which `tunesmith data split` keeps them together."""


def add_options(parser: Parser) -> None:
    """Declare how the files of a command are read."""
    parser.add_argument("--encoding", choices=CHOICES["encoding"], help="text encoding of the files")
    parser.add_argument("--format", choices=CHOICES["format"], help="what a row of the files contains")
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="ROLE=COLUMN",
        help="which column holds what, such as prompt=Question completion=Answer",
    )
    parser.add_argument("--sheet", default="", metavar="NAME", help="sheet of the workbooks among the files")


class FilesParser(Parser):
    """A parser of a command whose files and runs may stand behind `--columns`, too."""

    def parse_known_args(  # type: ignore[override]  # argparse has overloads of the same
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Read the words of a command line."""
        return super().parse_known_args(_files_first(list(args or ())), namespace)


def _files_first(words: list[str]) -> list[str]:
    """Return a command line without files behind `--columns`, which would take them for columns."""
    if "--columns" not in words:
        return words
    first = words.index("--columns") + 1
    end = next((place for place in range(first, len(words)) if words[place].startswith("-")), len(words))
    first_file = next((place for place in range(first, end) if "=" not in words[place]), end)
    if first_file == first:
        # No column at all, which is told as an error.
        return words
    num_files = next((place for place, word in enumerate(words) if word.startswith("-")), 0)
    return words[:num_files] + words[first_file:end] + words[num_files:first_file] + words[end:]


def with_hints(command: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Return a command whose errors about files name its options."""

    def run(arguments: Namespace) -> int:
        try:
            return command(arguments)
        except TunesmithError as error:
            column = getattr(arguments, "column", "")
            is_of_split = column and error.message.values.get("column") == column
            by_code = hint_of(error.message) or HINTS.get(error.code, error.hint)
            error.hint = COLUMN_HINT if is_of_split else by_code
            raise

    return run


def hint_of(message: str) -> Message | None:
    """Return which option reads a file that an error is about, with its value; None where none helps."""
    if guess := _guess_of(message):
        named = pasted([f"{role}={column}" for role, column in guess.items()])
        return Message("Name the columns, for example: --columns {columns}", columns=named)
    if sheets := _sheets_of(message):
        names = ", ".join(f'"{name}"' for name in sheets)
        return Message("Write --sheet NAME, where NAME is one of these: {names}", names=names)
    if encoding := _values_of(message).get("likely"):
        return Message("Name the encoding of the file: --encoding {encoding}", encoding=encoding)
    return None


def _values_of(message: str) -> Mapping[str, Any]:  # Any: JSON values
    return message.values if isinstance(message, Message) else {}


def _guess_of(message: str) -> dict[str, str]:
    guess: dict[str, str] = json.loads(_values_of(message).get("guess") or "{}")
    return guess


def _sheets_of(message: str) -> list[str]:
    """Return the sheets of a workbook that has not the one that was named."""
    sheets: list[str] = json.loads(_values_of(message).get("sheets") or "[]")
    return sheets


def read_spec(path: Path) -> RunSpec:
    """Return a spec from its file, whose data files are read as `tunesmith data` reads them.

    What an adapter to start from decides is its own where the file says nothing of it.

    Raises:
        UserError: `spec-invalid`.
    """
    spec = RunSpec.load(path)
    given = files.read_json(path).get("adapter", {})
    adapter_folders.take_settings(spec, frozenset(given))
    for source in spec.data.sources:
        if source.encoding == UTF_8:
            source.encoding = likely(Path(source.path))
    return spec


def with_spec_hints(command: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Return a command whose errors about files name what to write into its spec."""

    def run(arguments: Namespace) -> int:
        try:
            return command(arguments)
        except TunesmithError as error:
            error.hint = _spec_hint(error, arguments.spec) or error.hint
            raise

    return run


def _spec_hint(error: TunesmithError, path: Path) -> Message | None:
    sheets = _sheets_of(error.message)
    if error.code not in HINTS and not sheets:
        return None
    if error.code == "chat-template-unclear":
        return HINTS[error.code]
    spec = RunSpec.load(path)
    sources = spec.data.sources
    number = next((number for number, each in enumerate(sources) if error.message.startswith(each.path)), 0)
    needed = next((each for kinds, each in COLUMNS_OF.items() if spec.objective.kind in kinds), EXAMPLE_COLUMNS)
    columns = _guess_of(error.message) or needed
    field, value = "columns", json.dumps(columns, ensure_ascii=False)
    if error.code == "dataset-encoding":
        named = (action.removeprefix(READ_AS) for action in error.actions if action.startswith(READ_AS))
        field, value = "encoding", json.dumps(next(named, "windows-1252"))
    if sheets:
        field, value = "sheet", json.dumps(sheets[0], ensure_ascii=False)
    return Message(
        "Write into the spec: {field}, for example {value}", field=f"data.sources[{number}].{field}", value=value
    )


def chosen(arguments: Namespace) -> dict[str, Any]:  # Any: values of a source
    """Return the fields of a source that were chosen by options. Raises UserError `usage` for a column without a role.
    """
    values: dict[str, Any] = {  # Any: values of a source
        "encoding": arguments.encoding,
        "format": arguments.format,
        "columns": dict(map(_column, arguments.columns)),
        "sheet": arguments.sheet,
    }
    return {name: value for name, value in values.items() if value}


def run_of(arguments: Namespace) -> RunSpec:
    """Return a run with the files that were named; a name that is no file is a data set of the library.

    Raises:
        UserError: `usage` for a column without a role; `dataset-parse-error` for a file that is not there.
    """
    values = chosen(arguments)
    run = RunSpec()
    run.data.sources = []
    for name in arguments.files:
        path = Path(name).expanduser().absolute()
        known = None if path.exists() else next((each for each in data_library.sets() if each.name == name), None)
        if known is None:
            check_exists(path)
        encoding = arguments.encoding or likely(path)
        sources = known.sources if known else [SourceSpec(path=str(path), encoding=encoding)]
        run.data.sources += [dataclasses.replace(source, **values) for source in sources]
    return run


def check_exists(path: Path) -> None:
    """Refuse a file that is not there, before anything begins. Raises UserError `dataset-parse-error`."""
    if not path.exists():
        raise parse_error(path, "the file can't be read: {reason}.", reason=Message("No such file or directory"))


def _column(text: str) -> tuple[str, str]:
    role, sign, column = text.partition("=")
    if not (role and sign and column):
        raise TunesmithError("usage", "{text} is not ROLE=COLUMN.", hint=HINTS["dataset-column-missing"], text=text)
    return role, column


def likely(path: Path) -> str:
    """Return the encoding of a file for which none was chosen, and say so when it is not the usual one."""
    encoding = likely_encoding(path)
    if encoding != UTF_8:
        words = Message(CHOICE_WORDS[encoding])
        terminal.note(Message("{path} is not UTF-8. It is read as {encoding}.", path=path, encoding=words))
    return encoding
