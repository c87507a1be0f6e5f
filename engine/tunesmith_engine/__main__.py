"""Engine subcommands: a run or a short operation. The exit code says how it ended.

Nothing heavy is imported here: a run reports its first phase before PyTorch is loaded.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tunesmith_core.files import PRIVATE_UMASK

if TYPE_CHECKING:
    from tunesmith_core.runs import Run

LOCK_PATIENCE_S = 1.0
"""A process that only looks whether a run is going holds its lock for a moment."""


def _run(arguments: argparse.Namespace) -> int:
    from tunesmith_core import terminal
    from tunesmith_core.errors import TunesmithError
    from tunesmith_core.locks import FileLock
    from tunesmith_core.runs import SUPERVISED, Run, enter, open_run

    if SUPERVISED.items() <= os.environ.items():
        return _train(enter(Run(arguments.run_dir)), arguments)
    run = Run(arguments.run_dir.absolute())
    # Started by hand: two writers would mix up the journal, so what holds the lock keeps this one out.
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(FileLock(open_run(str(run.path)).lock_path).waiting(LOCK_PATIENCE_S))
        except TimeoutError:
            error = TunesmithError("run-busy", "Another process is using the run {run}.", run=run.id)
        except TunesmithError as missing:
            error = missing
        else:
            run.sweep()
            return _train(enter(run), arguments)
    terminal.show_error(error)
    return error.exit_code


def _train(run: Run, arguments: argparse.Namespace) -> int:
    from tunesmith_engine.host import Host

    with Host(run) as host:
        for name in ("SIGTERM", "SIGINT"):
            signal.signal(getattr(signal, name), host.on_signal)
        from tunesmith_engine import phases

        return phases.run(host, kernels=not arguments.no_kernels, leave=os._exit)


def _operation(arguments: argparse.Namespace) -> int:
    from tunesmith_core.operations.folder import Operation
    from tunesmith_core.operations.host import die_with_owner, serve
    from tunesmith_core.operations.kind import kind_of
    from tunesmith_engine.failures import translate

    operation = Operation(arguments.folder.absolute())
    die_with_owner(operation)
    limits = kind_of(operation).limits
    if limits:
        _prepare_limited_process()
    return serve(operation, translate, limits)


def _prepare_limited_process() -> None:
    """Set up what holds for a process under limits, before any library is loaded."""
    # It reads data and tokenizers only, and starts four times faster without PyTorch.
    sys.modules["torch"] = None  # type: ignore[assignment]
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"
    # Its own allocators reserve a gigabyte and more at once, which would use up a limit of memory.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tunesmith_engine", description="Tunesmith's training process.")
    commands = parser.add_subparsers(required=True)

    run = commands.add_parser("run", help="train the run of a run folder, or resume it")
    run.set_defaults(function=_run)
    run.add_argument("--run-dir", type=Path, required=True)
    run.add_argument("--no-kernels", action="store_true", help="train with plain PyTorch, whatever the run's settings")
    operation = commands.add_parser("operation", help="do the operation of a folder, see tunesmith_core.operations")
    operation.set_defaults(function=_operation)
    operation.add_argument("folder", type=Path)
    return parser


def _prepare_process() -> None:
    """Set up what holds for the whole process, before any library is loaded."""
    # Libraries make folders and files too: rows of the data and answers of the model are nobody else's business.
    os.umask(PRIVATE_UMASK)
    # Stray prints of libraries go where all other output goes: to the capped log behind standard error.
    os.dup2(2, 1)
    # Threads that spin while they wait fight with other busy programs: a step was measured to take 20 times longer.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    faulthandler.enable()
    # Python's warnings go into the journal, as warnings: in the output they would look like the cause of a later crash.
    logging.captureWarnings(True)


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    arguments = _parser().parse_args(argv)
    return int(arguments.function(arguments))


if __name__ == "__main__":
    _prepare_process()
    sys.exit(main())
