"""Install lm-evaluation-harness, which `tunesmith evaluate RUN --harness TASKS` runs.

Its packages get a folder of their own. How much is downloaded is said first, and nothing is done without a yes.
"""

from __future__ import annotations

import argparse
import sys

from tunesmith_core import terminal
from tunesmith_core.errors import EXIT_DONE, EXIT_STOPPED
from tunesmith_core.messages import Message, said
from tunesmith_setup.environments import envs, kinds
from tunesmith_setup.installation import install
from tunesmith_setup.packages import uvtool
from tunesmith_setup.probe import interpreters
from tunesmith_setup.progress import Progress, add_argument, chosen, size_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--yes", action="store_true", help="install or repair without asking")
    add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Install what is missing after a yes; say nothing when nothing is. With --yes, damaged files are replaced too."""
    environment = kinds.harness_environment(interpreters.choose())
    if not arguments.yes and environment.is_complete() and environment.is_current():
        return EXIT_DONE
    progress = chosen(arguments)
    if not arguments.yes and not agreed(environment, progress):
        progress.line("Nothing was installed. Run: tunesmith harness --yes")
        return EXIT_STOPPED
    with kinds.only_one(progress), progress.phase("lm-evaluation-harness"):
        install.bring(environment, uvtool.obtain(progress), progress)
    return EXIT_DONE


def agreed(environment: envs.Environment, progress: Progress) -> bool:
    """Say what it takes and ask the person; no answer, or no terminal to answer at, is no."""
    sizes = {"download": size_text(environment.missing().download_bytes), "disk": size_text(environment.disk_bytes())}
    progress.line(Message("lm-evaluation-harness: {download} to download, {disk} on disk.", **sizes))
    return sys.stdin.isatty() and terminal.ask(f"{said(Message('Install it?'))} [y/N] ") in ("y", "yes", "是")
