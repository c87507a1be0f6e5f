"""Command line of the installer, doctor and diagnosis: one place where every error becomes words and an exit code.

Standard library only and started on a bare Python, so it works when everything else is broken. Without a command it
installs and opens the window.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys

from tunesmith_core import paths, settings, terminal
from tunesmith_core.command_line import SETUP_COMMANDS, Parser
from tunesmith_core.errors import EXIT_STOPPED, wrap
from tunesmith_core.messages import Message, said, use_language
from tunesmith_setup import interruption, progress

DESCRIPTION = Message(
    """Gets the libraries of Tunesmith's window and opens it; the window sets up training and asks before it
downloads more. Without a display everything is installed and the bundled example trained. The same command continues
after an interruption, and needs no network when nothing is missing."""
)

COMMANDS = SETUP_COMMANDS | {
    "install": Message("install and open the window (the default)"),
    "test": Message("run every check and test"),
}
"""Name and help of each command; the module of the same name in `commands` is imported when it is called."""


def command_of(argv: list[str]) -> str:
    """Return the command that arguments ask for: the first word when it is one, else "install"."""
    return argv[0] if argv and argv[0] in COMMANDS else "install"


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the arguments of a command, with the command's `run` as `command` and unknown arguments as `rest`.

    Raises:
        UserError: `usage`, for an unknown argument.
        SystemExit: after the help.
    """
    name = command_of(argv)
    module = importlib.import_module(f"tunesmith_setup.commands.{name}")
    listing = "\n".join(f"  {command:<12}{said(text)}" for command, text in COMMANDS.items())
    named = argv[:1] == [name]
    parser = Parser(
        prog=f"tunesmith {name}" if named else "bootstrap.py",
        description=inspect.cleandoc(module.__doc__ or "") if named else DESCRIPTION,
        epilog=None if named else Message("commands:\n{listing}", listing=listing),
    )
    parser.set_defaults(command=module.run, rest_allowed=False)
    module.add_arguments(parser)
    arguments, rest = parser.parse_known_args(argv[1:] if named else argv)
    if rest and not arguments.rest_allowed:
        parser.error(said(Message("unknown argument: {argument}", argument=rest[0])))
    arguments.rest = rest
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; no error leaves here as a traceback.

    The journal of an operation says how the command ended, also after an error.
    """
    arguments = argparse.Namespace()
    terminal.prepare()
    paths.make_private()
    use_language(settings.language_in_force())
    try:
        with interruption.heard():
            arguments = parse(sys.argv[1:] if argv is None else argv)
            with progress.chosen(arguments).stopping():
                code = int(arguments.command(arguments))
    except KeyboardInterrupt:
        interrupted = Message("Interrupted. Run the same command to continue. Runs that have started continue.")
        terminal.note()
        terminal.note(interrupted)
        code = EXIT_STOPPED
    except Exception as error:
        if terminal.reader_has_left(error):
            # What changes something may not have come to its end.
            terminal.forget_reader()
            code = EXIT_STOPPED
        else:
            failure = wrap(error)
            progress.chosen(arguments).error(failure)
            code = failure.exit_code
    progress.chosen(arguments).result(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
