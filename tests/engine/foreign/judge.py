"""Judges mutants in a process of its own: `python -m tests.engine.foreign.judge PLACE KIND SEED NUMBER...`.

One line of JSON a mutant says what was wrong with how it ended. A crash or a hang costs the process, not the sweep: the
caller starts another one behind the mutant that did it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIMIT_CPU_S = 10.0
MEMORY_BYTES = 6 << 30
COMMANDS = (["plan", "--json"], ["check", "--json"], ["train", "--json"])
ENDS = (2, 3, 4)
STEPS = 2
"""After these a run is stopped and saved, whatever its spec says."""

STOPPED = 5
LONGEST_MESSAGE = 6000
"""A path of thousands of letters may stand in it once."""


def prepare_process(place: Path) -> list[Any]:
    """Keep this process from the network, from code of models and from starting engines; return what it is told."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.environ |= {"TUNESMITH_HOME": str(place / "home"), "HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "hf")}
    import torch

    from tests.engine.prepared import conduct_here
    from tunesmith_core import cli_specs, environments, launch, settings, terminal
    from tunesmith_engine import phases, preparation
    from tunesmith_engine.failures import translate
    from tunesmith_engine.host import Host
    from tunesmith_engine.operations import check

    torch.set_num_threads(1)
    settings.language_in_force = lambda: "en"

    _cut_off()

    class Answer:
        def __init__(self, spec: Any) -> None:
            self._spec = spec

        def get(self) -> Any:
            try:
                return check(None, self._spec)
            except Exception as error:
                raise translate(error) from error

    cli_specs.conduct = lambda _kind, spec: Answer(spec)
    environments.training_python = lambda: Path(sys.executable)
    # The limits of the child that prepares data have tests of their own.
    preparation.conduct = conduct_here

    def train(run: Any) -> None:
        with Host(run) as host:
            write = host.event

            def watched(kind: str, /, **data: Any) -> None:
                write(kind, **data)
                if kind == "step" and data["step"] >= STEPS:
                    host.on_signal()

            host.event = watched  # type: ignore[method-assign]
            phases.run(host)

    launch._start_supervisor = train
    told: list[Any] = []
    terminal.show_error = told.append
    return told


def _cut_off() -> None:
    """Keep this process from the network and from code of models."""
    import socket

    import transformers.dynamic_module_utils as dynamic

    def forbidden(*_: object, **__: object) -> Any:
        raise SystemExit("reached for the network, or for code of a model")

    socket.socket.connect = forbidden  # type: ignore[method-assign]
    socket.getaddrinfo = forbidden
    for name in ("get_class_from_dynamic_module", "get_cached_module_file", "get_class_in_module"):
        setattr(dynamic, name, forbidden)
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("transformers") and name in vars(module):
                setattr(module, name, forbidden)


def faults(spec_path: Path, told: list[Any], names: list[str], expected: str) -> Iterator[str]:
    """Yield what is wrong with how commands end on a spec.

    Args:
        spec_path: the spec.
        told: receives the errors that are shown.
        names: one of them has to be in the message.
        expected: see `model_mutations`.
    """
    from tunesmith_core import cli

    ended: dict[str, int] = {}
    for words in COMMANDS:
        told.clear()
        command = words[0]
        started_s = time.process_time()
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                code = cli.main([*words, "--", str(spec_path)])
        except BaseException as error:
            yield f"{command} raises {type(error).__name__}: {error}"
            continue
        code = 0 if code == STOPPED else code
        ended[command] = code
        seconds = time.process_time() - started_s
        if code == 0:
            continue
        if seconds > LIMIT_CPU_S:
            yield f"{command} took {seconds:.0f} s"
        if len(told) != 1:
            yield f"{command} ended with {code} and {len(told)} errors"
            continue
        error = told[0]
        if error.code == "bug" or code not in ENDS:
            yield f"{command} {error.code}, exit {code}: {error.message}"
        elif not error.hint.strip():
            yield f"{command} {error.code}: no next step"
        elif not any(name in error.message for name in names):
            yield f"{command} {error.code} names nothing: {error.message[:300]}"
        elif len(error.message) > LONGEST_MESSAGE:
            yield f"{command} {error.code} says {len(error.message)} letters"
        else:
            ended[f"{command}: {error.code}: {error.message[:200]}"] = code
    codes = {ended.get(command) for command in ("check", "train")}
    if expected == "refused" and 0 in codes:
        yield "was not refused"
    if expected == "trains" and codes != {0}:
        yield f"was refused: {ended}"


def judge_model(place: Path, seed: int, number: int, told: list[Any]) -> dict[str, Any]:
    """Make a mutant of a model and judge it."""
    from tests.engine.foreign.model_mutations import mutate

    folder = place / f"model-{number}"
    what, expected = mutate(place / "originals", folder, number, seed)
    spec = json.loads((place / "spec.json").read_text())
    spec["model"] = {"path": str(folder)}
    path = place / f"spec-{number}.json"
    path.write_text(json.dumps(spec))
    found = list(faults(path, told, [str(folder), str(place / "rows.jsonl")], expected))
    for leaf in folder.rglob("*"):
        leaf.is_symlink() or leaf.chmod(0o700)
    shutil.rmtree(folder)
    path.unlink()
    return {"number": number, "what": what, "faults": found}


def judge_spec(place: Path, seed: int, number: int, told: list[Any]) -> dict[str, Any]:
    """Make a mutant of a spec and judge it."""
    from tests.engine.foreign.spec_mutations import mutate

    path = place / f"spec-{number}.json"
    what, names, expected = mutate(place / "spec.json", path, number, seed)
    names += [str(Path.home()) for name in names if name == "~"]
    found = list(faults(path, told, [str(path), "the file can't be read", "Column mapping", *names], expected))
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return {"number": number, "what": what, "faults": found}


def main() -> None:
    """Judge the mutants of the numbers given."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    place, kind, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    told = prepare_process(place)
    judge = judge_model if kind == "model" else judge_spec
    for number in map(int, sys.argv[4:]):
        answers.write(json.dumps({"begins": number}) + "\n")
        answers.write(json.dumps(judge(place, seed, number, told)) + "\n")


if __name__ == "__main__":
    main()
