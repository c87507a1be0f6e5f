"""A real engine that stalls for ever: `python stalling_engine.py PLACE CALL WAY run --run-dir RUN`.

It stalls at a call of a place, counted from 1, and says so by a file `stalled` in the run's folder.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.abc
import importlib.machinery
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "engine"))

IMPORT = "import"
PLACES = {
    "device": "tunesmith_engine.device:choose_compute",
    "tokenizer": "tunesmith_engine.train.assembly:load_tokenizer",
    "data": "tunesmith_engine.preparation:Preparation.data",
    "weights": "tunesmith_engine.methods:Method.load",
    "proof": "tunesmith_engine.train.fused_path:check_kernels",
    "trial": "tunesmith_engine.train.loop:Loop.try_out",
    "gradients": "tunesmith_engine.train.fused_path:FusedPath.add_gradients",
    "update": "tunesmith_engine.train.optim:Updater.update",
    "evaluation": "tunesmith_engine.train.fused_path:FusedPath.losses",
    "sample": "tunesmith_engine.train.loop:generate",
    "checkpoint": "tunesmith_engine.train.checkpoint:Checkpoints._write",
    "export": "tunesmith_engine.methods:Method.save",
}
"""Functions by the part of a run that they do, beside the import of PyTorch."""


def nap() -> NoReturn:
    """Sleep, as something that waits."""
    while True:
        time.sleep(0.05)


def spin() -> NoReturn:
    """Compute in Python."""
    while True:
        pass


def compute(library: ctypes.CDLL) -> NoReturn:
    """Stay in native code, deaf to signals."""
    if sys.platform == "win32":
        while True:
            library.Sleep(60_000)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP})
    while True:
        library.sleep(60)


LIBRARY = "kernel32" if sys.platform == "win32" else None
WAYS: dict[str, Callable[[], NoReturn]] = {
    "naps": nap,
    "spins": spin,
    "computes": lambda: compute(ctypes.CDLL(LIBRARY)),
    "blocks": lambda: compute(ctypes.PyDLL(LIBRARY)),
}
"""Ways to stall: "computes" lets other threads run, as PyTorch's operations do; "blocks" does not."""


def stall_at(place: str, call: int, stall: Callable[[], NoReturn]) -> None:
    """Make a function stall at one of its calls."""
    module_name, _, path = PLACES[place].partition(":")
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    work, num_calls = getattr(owner, name), 0

    def stalling(*arguments: Any, **options: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        return stall() if num_calls == call else work(*arguments, **options)

    setattr(owner, name, stalling)


class StallingFinder(importlib.abc.MetaPathFinder):
    """Stalls when PyTorch is looked for."""

    def __init__(self, stall: Callable[[], NoReturn]) -> None:
        self._stall = stall

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return None for all else."""
        del path, target
        return self._stall() if fullname == "torch" else None


def main() -> int:
    """Stall, or run the engine to its end when the place is not met."""
    place, call, way, *arguments = sys.argv[1:]

    def stall() -> NoReturn:
        Path(arguments[-1], "stalled").touch()
        WAYS[way]()

    if place == IMPORT:
        sys.meta_path.insert(0, StallingFinder(stall))
    else:
        stall_at(place, int(call), stall)
    from tunesmith_engine.__main__ import main as engine

    return engine(arguments)


if __name__ == "__main__":
    sys.exit(main())
