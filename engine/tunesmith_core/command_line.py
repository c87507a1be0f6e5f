"""A parser of command lines that speaks the language of the person and raises our own errors."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import NoReturn

from tunesmith_core import terminal
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, said

# argparse looks up its own words, such as "usage: ", by this name; gettext has none of them without a folder of ours.
argparse._ = said  # type: ignore[attr-defined]


SETUP_COMMANDS = {
    "install": "install Tunesmith, or continue an interrupted installation",
    "probe": "show what is known about this computer",
    "doctor": "check this computer and the installation",
    "repair": "repair what the checks find",
    "rollback": "switch back to the previous training environment",
    "snapshots": "list the installed environments, or show how two differ",
    "uninstall": "remove what Tunesmith wrote, and runs and models only when named",
    "start": "open the window, after getting its libraries the first time",
    "program": "install the program's own files for this user, check or remove them",
    "wsl": "set up training inside the Windows Subsystem for Linux",
    "rewards": "install reasoning-gym and jsonschema for tasks and rewards, after asking",
    "harness": "install lm-evaluation-harness for public tasks, after asking",
    "settings": "show the settings, such as mirror and proxy, or change them",
    "explain": "name the cause of a failure from its output",
}
"""Commands of the installer and doctor; they get their arguments untouched."""


def finite(text: str) -> float:
    """Return a number. Raises ArgumentTypeError for what is none, as nan and inf are none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(Message("{text} is not a number", text=text))
    return value


class Help(argparse.RawDescriptionHelpFormatter):
    """Says every help text in the language in force."""

    def add_text(self, text: str | None) -> None:
        """Add a description or an epilog."""
        super().add_text(said(text) if text else text)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return said(action.help) if action.help else action.help


class Parser(argparse.ArgumentParser):
    """A parser whose help is said in any language and whose errors are ours."""

    def __init__(
        self, *, prog: str, description: str | None = None, epilog: str | None = None, add_help: bool = True
    ) -> None:
        """Take what argparse takes; commands below this one get parsers of this class."""
        super().__init__(prog, description=description, epilog=epilog, add_help=add_help, formatter_class=Help)
        self.set_defaults(parser=self)

    def _print_message(self, message: str, file: object = None) -> None:  # noqa: ARG002
        """Write the help or the version."""
        terminal.say(message.rstrip("\n"))

    def parse_args(  # type: ignore[override]  # argparse has overloads of the same
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Read the words of a command line; one word too many is told by the command that it was written to."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            found.parser.error(argparse._("unrecognized arguments: %s") % " ".join(rest))  # type: ignore[attr-defined]
        return found

    def error(self, message: str) -> NoReturn:
        """Raise UserError `usage`."""
        message = message.removesuffix(".")
        raise TunesmithError(
            "usage",
            "{upper}{message}.",
            hint=self._next_step(),
            upper=message[:1].upper(),
            message=message[1:],
        )

    def _next_step(self) -> Message:
        """Say how the command is written with what it needs, and where its options are told."""
        needed = [action for action in self._actions if action.required]
        if not needed:
            return Message("To see what can be written here: {command} --help", command=self.prog)
        formatter = self._get_formatter()
        formatter.add_usage(None, needed, [], prefix="")
        example = " ".join(formatter.format_help().split())
        words = {"example": example, "command": self.prog}
        return Message("Write it like this: {example}. All options: {command} --help", **words)
