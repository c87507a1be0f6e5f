"""Set up training inside the Windows Subsystem for Linux, for computers where native Windows can't."""

from __future__ import annotations

import argparse

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_DONE
from tunesmith_core.messages import Message, said
from tunesmith_core.wsl.guest import Guest
from tunesmith_setup.environments import profiles
from tunesmith_setup.installation import wsl_install
from tunesmith_setup.installation.wsl_install import Step
from tunesmith_setup.progress import add_argument, chosen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("action", choices=("status", "install"), help="say what is missing, or do it step by step")
    parser.add_argument("--distribution", metavar="NAME", help="Linux distribution to use (default: the default one)")
    parser.add_argument(
        "--profile", choices=sorted(profiles.PROFILES), help="build of PyTorch (default: chosen for the GPU)"
    )
    parser.add_argument("--yes", action="store_true", help="answer yes to every question")
    add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Say what is missing, or do it."""
    progress = chosen(arguments)
    if arguments.action == "status":
        step = wsl_install.next_step(arguments.distribution)
        progress.line(Message("Next: {step}", step=step.words) if step else ready_words())
        return EXIT_DONE
    consent = agree if arguments.yes else ask
    guest = wsl_install.prepare(arguments.distribution, consent, progress)
    with progress.phase(Message("Training environment inside {distribution}", distribution=guest.distribution)):
        wsl_install.provision(guest, arguments.profile, progress)
    progress.line(ready_words())
    return EXIT_DONE


def ready_words() -> str:
    """Return where training inside stands when the subsystem itself lacks nothing."""
    try:
        guest = Guest.load()
    except Exception:
        return Message("Next: {step}", step=Message("build the training environment inside (tunesmith wsl install)."))
    return Message(
        "Runs can train inside {name}. To do so, choose wsl as system under Hardware.", name=guest.distribution
    )


def agree(_step: Step) -> bool:
    """Agree to every step: the person did so on the command line or in the window."""
    return True


def ask(step: Step) -> bool:
    """Ask the person in the terminal; no answer is a no."""
    question = f"{said(step.words)}\n  {' '.join(step.command)}\n{said(Message('Continue?'))} [y/N] "
    return terminal.ask(question) in ("y", "yes", "j", "ja", "是", "s")
