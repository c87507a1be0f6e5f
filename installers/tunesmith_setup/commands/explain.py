"""Name the cause of a failure from any error output: tunesmith explain LOGFILE, or - for what comes in."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from tunesmith_core import explain as engine
from tunesmith_core import terminal
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import EXIT_DONE, UserError
from tunesmith_core.explain import reading
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message, said, use_language


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("log", metavar="LOGFILE", help="file with error output, - for standard input")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    parser.add_argument(
        "--facts",
        metavar="FILE|none|this",
        default="none",
        help="facts about the computer that the log is from: a file of `tunesmith probe --json`, or this computer",
    )
    parser.add_argument("--language", choices=("en", "zh_CN"), help="language of the answer (default: the system's)")


def run(arguments: argparse.Namespace) -> int:
    """Explain a log; an unknown cause is an answer too.

    Raises:
        UserError: when a file can't be read.
    """
    text = engine.decode(_read(arguments.log))
    if arguments.language:
        use_language(arguments.language)
    answer = engine.explain(text, _machine(arguments.facts))
    answer = replace(answer, fix=said(answer.fix))
    if arguments.json:
        terminal.say_json(answer.to_dict())
    else:
        terminal.say(_in_words(answer))
    return EXIT_DONE


def _read(name: str) -> bytes:
    if name == "-":
        return reading.read_bounded(sys.stdin.buffer)
    try:
        return reading.read_file(Path(name))
    except OSError as error:
        raise UserError(
            "file-unreadable",
            "{name}: {reason}.",
            name=name,
            reason=Message(str(error.strerror)),
        ) from error


def _machine(choice: str) -> Machine | None:
    if choice == "none":
        return None
    if choice == "this":
        from tunesmith_setup import probe

        return probe.machine()
    try:
        return Machine.from_dict(json.loads(reading.decode(Path(choice).read_bytes())))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            "file-unreadable",
            "{choice}: {error}.",
            hint="Write the file with: tunesmith probe --json",
            choice=choice,
            error=error,
        ) from error


def _in_words(answer: engine.Explanation) -> str:
    lines: list[str] = [answer.fix]
    if answer.code != engine.UNKNOWN:
        lines = [
            Message("Cause: {title} ({code})", title=Message(CODES[answer.code].title), code=answer.code),
            Message("Evidence: {evidence}", evidence=answer.evidence),
            Message("What helps: {fix}", fix=answer.fix),
        ]
    return "\n".join(map(said, lines))
