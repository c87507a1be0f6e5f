"""The files that `tunesmith data` is told: how they are read, by options or as their bytes say."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core import data_library, terminal
from tunesmith_core.command_line import Parser
from tunesmith_core.datafmt.encoding import UTF_8
from tunesmith_core.datafmt.reading import likely_encoding
from tunesmith_core.declared import iter_declarations
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import CHOICE_WORDS, SourceSpec

CHOICES = {name: declaration.choices for name, _, _, declaration in iter_declarations(SourceSpec)}
HINTS = {
    "dataset-column-missing": Message("Name the columns, for example: --columns prompt=Question completion=Answer"),
    "chat-template-unclear": Message("Choose a model with another chat template."),
    "dataset-encoding": Message("Name the encoding of the file with --encoding."),
}
"""What helps on a command line, by the code of an error whose own hint names a control of the window."""

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


def with_hints(command: Callable[[Namespace], int]) -> Callable[[Namespace], int]:
    """Return a command whose errors about files name its options."""

    def run(arguments: Namespace) -> int:
        try:
            return command(arguments)
        except TunesmithError as error:
            column = getattr(arguments, "column", "")
            is_of_split = column and error.message.values.get("column") == column
            error.hint = COLUMN_HINT if is_of_split else HINTS.get(error.code, error.hint)
            raise

    return run


def run_of(arguments: Namespace) -> RunSpec:
    """Return a run with the files that were named; a name that is no file is a data set of the library.

    Raises:
        UserError: `usage` for a column without a role.
    """
    chosen: dict[str, Any] = {  # Any: values of a source
        "encoding": arguments.encoding,
        "format": arguments.format,
        "columns": dict(map(_column, arguments.columns)),
        "sheet": arguments.sheet,
    }
    chosen = {name: value for name, value in chosen.items() if value}
    run = RunSpec()
    run.data.sources = []
    for name in arguments.files:
        path = Path(name).expanduser().absolute()
        known = None if path.exists() else next((each for each in data_library.sets() if each.name == name), None)
        sources = known.sources if known else [SourceSpec(path=str(path), encoding=_encoding(path, arguments))]
        run.data.sources += [dataclasses.replace(source, **chosen) for source in sources]
    return run


def _column(text: str) -> tuple[str, str]:
    role, sign, column = text.partition("=")
    if not (role and sign and column):
        raise TunesmithError("usage", "{text} is not ROLE=COLUMN.", hint=HINTS["dataset-column-missing"], text=text)
    return role, column


def _encoding(path: Path, arguments: Namespace) -> str:
    """Return the encoding of a file for which none was chosen, and say so when it is not the usual one."""
    encoding = UTF_8 if arguments.encoding else likely_encoding(path)
    if encoding != UTF_8:
        words = Message(CHOICE_WORDS[encoding])
        terminal.note(Message("{path} is not UTF-8. It is read as {encoding}.", path=path, encoding=words))
    return encoding
