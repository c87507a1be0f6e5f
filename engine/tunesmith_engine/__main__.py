"""Engine subcommands. Results are files, never standard output; the exit code says what kind of end it was.

Nothing heavy is imported here: a run reports its first phase before PyTorch is loaded.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import EXIT_DONE, BugError, TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.bench.command import add_arguments as add_bench_arguments

_results_descriptor = 1
"""Standard output as it was before all output went to standard error."""


def _run(arguments: argparse.Namespace) -> int:
    from tunesmith_core.runs import Run
    from tunesmith_engine.host import Host

    with Host(Run(arguments.run_dir.absolute())) as host:
        for name in ("SIGTERM", "SIGINT"):
            signal.signal(getattr(signal, name), host.on_signal)
        from tunesmith_engine import phases

        return phases.run(host, kernels=not arguments.no_kernels)


def _preview(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: JSON values
    from tunesmith_engine.data.preview import preview
    from tunesmith_engine.model.load import load_tokenizer, model_folder

    spec = RunSpec.load(arguments.spec)
    return preview(spec, load_tokenizer(model_folder(spec.model)), arguments.rows)


def _plan_check(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: JSON values
    from tunesmith_engine.plan_check import plan_check

    return plan_check(RunSpec.load(arguments.spec))


def _import_gguf(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: JSON values
    from tunesmith_engine.gguf_import import import_gguf

    return import_gguf(arguments.source, arguments.target)


def _probe(_: argparse.Namespace) -> dict[str, Any]:  # Any: JSON values
    from tunesmith_engine.probe import probe

    return probe()


def _selftest(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: JSON values
    from tunesmith_engine.selftest import selftest

    return selftest(arguments.device, arguments.out)


def _prove_kernels(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: JSON values
    import torch

    from tunesmith_engine.proof.prove import prove_here, sizes_from

    prove_here(sizes_from(arguments.sizes), torch.device(arguments.device), arguments.kernels, arguments.journal)
    return {}


def _bench(arguments: argparse.Namespace) -> dict[str, Any]:  # Any: JSON values
    from tunesmith_engine.bench.command import bench

    return bench(arguments, lambda text: os.write(_results_descriptor, text.encode()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tunesmith_engine", description="Tunesmith's training process.")
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="train the run of a run folder, or go on with it")
    run.add_argument("--run-dir", type=Path, required=True)
    run.add_argument("--no-kernels", action="store_true", help="train with plain PyTorch, whatever the run's settings")

    def add(name: str, function: Callable[[argparse.Namespace], dict[str, Any]], help_text: str) -> Any:
        command = commands.add_parser(name, help=help_text)
        command.set_defaults(function=function)
        command.add_argument("--out", type=Path, help="file for the result or the error, as JSON")
        return command

    preview = add("preview", _preview, "show how rows become trained tokens")
    preview.add_argument("--spec", type=Path, required=True)
    preview.add_argument("--rows", type=int, default=5)
    plan_check = add("plan-check", _plan_check, "train one real step on the longest batch and measure the memory")
    plan_check.add_argument("--spec", type=Path, required=True)
    import_gguf = add("import-gguf", _import_gguf, "convert a GGUF file into a model folder")
    import_gguf.add_argument("source", type=Path)
    import_gguf.add_argument("target", type=Path)
    add("probe", _probe, "say what the libraries see of this machine")
    selftest = add("selftest", _selftest, "prove that this environment trains on this machine")
    selftest.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    prove_kernels = add("prove-kernels", _prove_kernels, "compare kernels with their PyTorch twins; asked for by a run")
    prove_kernels.add_argument("--sizes", required=True)
    prove_kernels.add_argument("--device", required=True)
    prove_kernels.add_argument("--journal", type=Path, required=True)
    prove_kernels.add_argument("kernels", nargs="+")
    add_bench_arguments(add("bench", _bench, "time training steps on random rows"))
    return parser


def _write_result(arguments: argparse.Namespace) -> int:
    """Run a subcommand and write what it returns, or its error, to --out. Returns the exit code."""
    from tunesmith_engine.failures import translate

    code, result, failure = EXIT_DONE, {}, None
    try:
        result = arguments.function(arguments)
        # A selftest returns all its steps together with the error of the one that failed.
        failure = TunesmithError.from_dict(result["error"]) if "error" in result else None
    except Exception as error:
        failure = translate(error)
    if failure is not None:
        code, result = failure.exit_code, result | {"error": failure.to_dict()}
        _explain(failure)
    if arguments.out:
        files.atomic_write_json(arguments.out, result)
    return code


def _explain(failure: TunesmithError) -> None:
    sys.stderr.write(f"{failure.code}: {failure.message}\n{failure.hint}\n")
    if isinstance(failure, BugError) and failure.context:
        sys.stderr.write(failure.context)


def _prepare_process() -> None:
    """Set up what holds for the whole process, before any library is loaded."""
    global _results_descriptor
    _results_descriptor = os.dup(1)
    # Stray prints of libraries go where all other output goes: to the capped log behind standard error.
    os.dup2(2, 1)
    # Threads that spin while they wait fight with other busy programs: a step was measured to take 20 times longer.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    faulthandler.enable()


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    arguments = _parser().parse_args(argv)
    return _run(arguments) if arguments.command == "run" else _write_result(arguments)


if __name__ == "__main__":
    _prepare_process()
    sys.exit(main())
