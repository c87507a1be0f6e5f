"""The command `tunesmith`: a table of commands, one place where every error becomes words and an exit code.

Exit codes: 0 done, 1 our bug, 2 bad input, 3 environment, 4 the run failed, 5 stopped by the person.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import tunesmith_core
from tunesmith_core import (
    cli_chat,
    cli_data,
    cli_evaluate,
    cli_models,
    cli_operations,
    cli_runs,
    cli_sources,
    cli_specs,
    cli_votes,
    environments,
    files,
    paths,
    presets,
    settings,
    terminal,
)
from tunesmith_core.command_line import SETUP_COMMANDS, Parser
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED, BugError, TunesmithError, wrap
from tunesmith_core.messages import Message, use_language
from tunesmith_core.operations.command import RUN_HELP, spec_of
from tunesmith_core.operations.command import add_arguments as add_kind_arguments
from tunesmith_core.operations.command import run as run_kind
from tunesmith_core.operations.kind import Kind, all_kinds
from tunesmith_core.operations.kinds.chat import ASK, AnsweringDevice
from tunesmith_core.operations.kinds.evaluate import EVALUATE
from tunesmith_core.operations.kinds.export import EXPORT
from tunesmith_core.plain_text import visible
from tunesmith_core.redact import redact

Command = Callable[[argparse.Namespace], int]

OWN_COMMANDS: dict[str, Command] = {EVALUATE.name: cli_evaluate.evaluate, EXPORT.name: cli_operations.export}
"""Of operations whose command does more than the operation."""

WINDOW_MODULE = "tunesmith_gui"
SETUP_MODULE = "tunesmith_setup"


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="tunesmith",
        description="Fine-tune language models on your own computer. Without a command, the window opens.",
        epilog="Exit codes: 0 done, 1 a bug of Tunesmith, 2 bad input, 3 environment, 4 the run failed, 5 stopped.",
    )
    parser.add_argument("--version", action="version", version=f"Tunesmith {tunesmith_core.__version__}")
    parser.set_defaults(command=open_window)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=cli_sources.FilesParser)

    def add(name: str, command: Command, help_text: str, *, json: bool = False, epilog: str = "") -> Parser:
        sub = commands.add_parser(name, prog=f"tunesmith {name}", help=help_text, description=help_text, epilog=epilog)
        sub.set_defaults(command=command)
        if json:
            sub.add_argument("--json", action="store_true", help="print JSON for programs")
        return sub

    def add_for_spec(name: str, command: Command, help_text: str) -> Parser:
        sub = add(
            *(name, cli_sources.with_spec_hints(command), help_text),
            json=True,
            epilog='The smallest SPEC.json: {"version": 2, "model": {"path": "FOLDER"}, "data": {"sources": [{"path": '
            '"FILE"}]}}\nTo learn from preference pairs, add "objective": {"kind": "dpo"}. Objectives: classify, cpo, '
            "dpo, gkd, grpo, kd, kto, orpo, prm, reward, rloo, sft, simpo.\nWhatever a spec leaves out has its "
            "default. The Train page of the window saves whole specs.",
        )
        sub.add_argument("spec", type=Path, metavar="SPEC.json", help="file with the settings of a run")
        return sub

    train = add_for_spec("train", cli_runs.train, "start a run and follow it")
    train.add_argument("--detach", action="store_true", help="return as soon as the run has started")
    train.add_argument("--no-kernels", action="store_true", help="train with plain PyTorch, without fused kernels")
    add_for_spec("plan", cli_specs.plan, "estimate memory, steps and disk")
    add_for_spec("check", cli_specs.check, "check a spec and measure one real step")
    preview = add_for_spec("preview", cli_specs.preview, "show how rows become trained tokens")
    preview.add_argument("--rows", type=int, default=5, metavar="N", help="number of rows to show (5)")
    preview.add_argument("--tokens", action="store_true", help="also list each token of these rows")
    add_for_spec("words", cli_specs.words, "suggest words of the data that could become tokens of their own")
    _add_run_commands(add)
    add_kind_arguments(add("ask", cli_chat.ask, "ask the trained model of a run", json=True), ASK)
    add_kind_arguments(
        add("chat", cli_chat.chat, "chat with the trained model of a run", json=True), ASK, without={"question"}
    )
    cli_models.add_commands(add("models", open_window, "search, download, list, verify and remove models"))
    cli_data.add_commands(add("data", open_window, "check, show, convert, split and mix data"))
    _add_presets(add)
    for kind in all_kinds().values():
        if kind.help:
            command = OWN_COMMANDS.get(kind.name) or partial(_operation, kind)
            sub = add(kind.name, command, kind.help, json=True)
            add_kind_arguments(sub, kind)
            if kind is EVALUATE:
                cli_sources.add_options(sub)
            if kind is EXPORT:
                _add_upload(sub)
    add("version", version, "print the version")
    for name, help_text in SETUP_COMMANDS.items():
        commands.add_parser(name, prog=f"tunesmith {name}", help=help_text, description=help_text, add_help=False)
    return parser


def _add_presets(add: Callable[..., Parser]) -> None:
    """Declare the list of presets."""
    add("presets", cli_specs.list_presets, "list the presets", json=True).add_argument(
        "--method", choices=presets.METHODS, default="sft", help="what they set for an objective, documents or full"
    )


def _add_upload(sub: Parser) -> None:
    """Declare where an export goes besides."""
    sub.add_argument(
        "--push", default="", metavar="OWNER/NAME", help="also upload it to the model hub, as a private repository"
    )
    sub.add_argument("--public", action="store_true", help="let everybody see what --push uploads")


def _add_run_commands(add: Callable[..., Parser]) -> None:
    """Declare what can be done with runs that exist."""

    def add_for_run(name: str, command: Command, help_text: str, *, json: bool = False) -> Parser:
        sub = add(name, command, help_text, json=json)
        sub.add_argument("run", metavar="RUN", help=RUN_HELP)
        return sub

    add("runs", cli_runs.runs, "list all runs", json=True)
    add_for_run("show", cli_runs.show, "show the state of a run", json=True)
    add_for_run("follow", cli_runs.follow, "follow a run in progress", json=True)
    add_for_run("stop", cli_runs.stop, "stop a run after this step and save").add_argument(
        "--discard", action="store_true", help="do not save"
    )
    add_for_run("resume", cli_runs.resume, "continue an ended run", json=True).add_argument(
        "--detach", action="store_true", help="return as soon as the run has started"
    )
    add_for_run("sample", cli_runs.sample, "ask the model being trained").add_argument("prompt", metavar="PROMPT")
    add_for_run("checkpoint", cli_runs.checkpoint, "save a run in progress now")
    add_for_run("report", cli_runs.report, "write a page about a run and what came of it", json=True).add_argument(
        "--to", type=Path, metavar="FILE", help="the HTML or PDF file to write (report.html in the run's folder)"
    )
    vote = add_for_run("vote", cli_votes.vote, "compare answers of a run without knowing whose they are", json=True)
    vote.add_argument("--checkpoint", type=int, default=0, metavar="STEP", help="the weights to judge (the newest)")
    vote.add_argument("--against", type=int, default=0, metavar="STEP", help="a checkpoint instead of the base model")
    vote.add_argument("--held-out", action="store_true", help="ask the held-out questions of the run")
    vote.add_argument("--device", choices=get_args(AnsweringDevice), default="auto", help="what answers (auto)")
    vote.add_argument("--result", action="store_true", help="only show how the votes stand")
    vote.add_argument("--pairs", type=Path, metavar="FILE", help="also write the votes as preference pairs")
    vote.add_argument(
        "--spec", type=Path, metavar="SPEC.json", help="also write the settings of a run that learns from the votes"
    )
    add_for_run("spec", cli_runs.spec, "print the settings of a run")
    add_for_run("delete", cli_runs.delete, "move a run with its checkpoints and adapter to the trash").add_argument(
        "--force", action="store_true", help="also take a folder that is not one of Tunesmith's own runs"
    )
    add("restore", cli_runs.restore, "bring a deleted run or model back").add_argument(
        "item", metavar="ITEM", help="name or id of a run or model, as `tunesmith trash` lists it"
    )
    add("trash", cli_runs.show_trash, "list deleted runs and models", json=True).add_argument(
        "--empty", action="store_true", help="delete them for good"
    )


def _operation(kind: Kind, arguments: argparse.Namespace) -> int:
    say = cli_operations.SAY.get(kind.name, terminal.say_json)
    return run_kind(kind, spec_of(kind, arguments), say, as_json=arguments.json)


def run_setup(argv: Sequence[str]) -> int:
    """Run a command of the installer with the Python that runs this process and return its exit code."""
    code = subprocess.call(environments.own_command(SETUP_MODULE, *argv))
    # A signal's negative number is no exit code.
    return code if code >= 0 else BugError.exit_code


def version(_arguments: argparse.Namespace) -> int:
    """Print the version."""
    terminal.say(Message("Tunesmith {version}", version=tunesmith_core.__version__))
    return EXIT_DONE


def open_window(_arguments: argparse.Namespace) -> int:
    """Open the window and return when it is closed."""
    python = environments.window_python()
    if not has_display():
        raise TunesmithError("display-missing", "Neither DISPLAY nor WAYLAND_DISPLAY is set.")
    code = subprocess.call(environments.module_command(python, WINDOW_MODULE))
    # A signal's negative number is no exit code.
    return code if code >= 0 else BugError.exit_code


def has_display() -> bool:
    """Return whether a window can be shown; a chosen Qt platform such as offscreen counts as one."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    return sys.platform in ("win32", "darwin") or any(os.environ.get(name) for name in names)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; no error leaves here as a traceback."""
    terminal.prepare()
    paths.make_private()
    use_language(settings.language_in_force())
    try:
        words = sys.argv[1:] if argv is None else argv
        if words and words[0] in SETUP_COMMANDS:
            return run_setup(words)
        arguments = make_parser().parse_args(words)
        command: Command = arguments.command
        return command(arguments)
    except KeyboardInterrupt:
        terminal.note("Interrupted.")
        return EXIT_STOPPED
    except Exception as error:
        if terminal.reader_has_left(error):
            terminal.forget_reader()
            return EXIT_DONE
        problem = wrap(error)
        if isinstance(problem, BugError):
            problem = _with_report(problem)
        terminal.show_error(problem)
        return problem.exit_code


def _with_report(bug: TunesmithError) -> TunesmithError:
    """Write what is known about a bug into the logs and name the file."""
    path = paths.logs_dir() / f"bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        files.private_folder(path.parent)
        report = f"Tunesmith {tunesmith_core.__version__}\n{bug.message}\n{bug.context}\n"
        files.atomic_write_text(path, visible(redact(report)))
    except OSError as error:
        return TunesmithError(
            "bug", "{message}\nThe report could not be written: {error}.", message=bug.message, error=error
        )
    return TunesmithError("bug", "{message}\nThe report is in {path}.", message=bug.message, path=path)
