"""Packages that only some need get a folder of their own, once, after their size was said."""

from __future__ import annotations

import argparse
import sys

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED
from tunesmith_core.messages import Message, said
from tunesmith_setup.environments import envs, kinds
from tunesmith_setup.installation import install
from tunesmith_setup.packages import uvtool
from tunesmith_setup.progress import Progress, add_argument, chosen, size_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--yes", action="store_true", help="install or repair without asking")
    add_argument(parser)


def run(arguments: argparse.Namespace, environment: envs.Environment, name: str) -> int:
    """Install what is missing after a yes; say nothing when nothing is. With --yes, damaged files are replaced too.

    Args:
        arguments: of the command, which is called like the kind of the environment.
        environment: that gets the packages.
        name: what a person calls them.
    """
    if not arguments.yes and environment.is_complete() and environment.is_current():
        return EXIT_DONE
    progress = chosen(arguments)
    if not arguments.yes and not _agreed(environment, progress, name):
        progress.line(Message("Nothing was installed. Run: tunesmith {command} --yes", command=environment.kind))
        return EXIT_STOPPED
    with kinds.only_one(progress), progress.phase(name):
        install.bring(environment, uvtool.obtain(progress), progress)
    return EXIT_DONE


def _agreed(environment: envs.Environment, progress: Progress, name: str) -> bool:
    """Say what it takes and ask the person; no answer, or no terminal to answer at, is no."""
    sizes = {"download": size_text(environment.missing().download_bytes), "disk": size_text(environment.disk_bytes())}
    progress.line(Message("{name}: {download} to download, {disk} on disk.", name=name, **sizes))
    return sys.stdin.isatty() and terminal.ask(f"{said(Message('Install it?'))} [y/N] ") in ("y", "yes", "是")
