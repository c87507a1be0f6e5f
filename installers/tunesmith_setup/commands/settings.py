"""Show the settings, or change them with NAME=VALUE.

`NAME=` empties a setting; `NAME=-` reads its value from the standard input, so that an address with a password stands
in no list of processes. What is shown has no passwords. Of the hub's access token, it is told where it is.
"""

from __future__ import annotations

import argparse
import json
import sys

from tunesmith_core import hub_token, terminal
from tunesmith_core import settings as settings_file
from tunesmith_core.errors import EXIT_DONE, UserError
from tunesmith_core.messages import Message, said, use_language
from tunesmith_core.redact import redact
from tunesmith_core.settings import SettingsFile, iter_settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("changes", nargs="*", metavar="NAME=VALUE", help="for example proxy=http://proxy.example:8080")


def run(arguments: argparse.Namespace) -> int:
    """Change and save, or show.

    Raises:
        UserError: `setting-invalid` when a name or value does not fit; nothing is changed then.
    """
    file = SettingsFile()
    if arguments.changes:
        file.change(**dict(change(text) for text in arguments.changes))
        file.save()
        # What is said of it is said in the language that was asked for.
        use_language(settings_file.language_in_force())
    for name, _type, default, declaration in iter_settings():
        value = getattr(file.values, name)
        shown = terminal.cell(redact(value)) if isinstance(value, str) else json.dumps(value)
        mark = "" if value == default else f"  ({said(Message('changed'))})"
        terminal.say(f"{name}={shown}{mark}\n    {said(declaration.meaning)}")
    token = hub_token.found()
    terminal.say(Message("Access token of the model hub: {place}", place=token.place if token else Message("none")))
    return EXIT_DONE


def change(text: str) -> tuple[str, object]:
    """Return name and value of a NAME=VALUE. Raises UserError `usage` when it is none."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UserError(
            "usage", "{name!r} is not NAME=VALUE.", hint="For example: tunesmith settings theme=dark", name=name
        )
    if value == "-":
        value = sys.stdin.readline().strip()
    kinds = {known: kind for known, kind, _default, _declaration in iter_settings()}
    try:
        return name, value if kinds.get(name) is str else json.loads(value)
    except ValueError:
        return name, value
