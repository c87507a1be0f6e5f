"""Wherever the engine dies while it publishes an adapter, the earlier one or the new one is there, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import after_step, events, train
from tunesmith_core import files, folder_switch
from tunesmith_core.environments import module_command
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import SUPERVISED, Run
from tunesmith_core.spec import RunSpec

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]

POINTS = [
    (True, "export.before-switch", False),
    (True, "folder.before-switch", False),
    (True, "folder.after-switch", True),
    (False, "folder.between-renames", False),
    (False, "folder.after-switch", True),
]


def _adapter(run: Run) -> bytes:
    return (run.adapter_path / "adapter_model.safetensors").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="no process can be forked here")
@pytest.mark.parametrize(("can_exchange", "point", "is_new"), POINTS)
def test_a_kill_while_an_adapter_is_replaced(
    tiny_spec: MakeSpec, new_run: NewRun, can_exchange: bool, point: str, is_new: bool
) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    earlier = _adapter(run)
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child dies by design
        try:
            os.environ[files.CRASHPOINT_VARIABLE] = point
            if not can_exchange:
                folder_switch._exchange = lambda *_: False
            train(run)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"{point} was never reached"
    run.sweep()
    assert (_adapter(run) == earlier) is not is_new
    assert not run.tmp_path.exists()
    assert train(run) == 0
    assert _adapter(run) != earlier


def test_a_second_engine_by_hand_is_kept_out(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    assert train(run, lambda host: after_step(host, 2, host.on_signal)) == 5
    journal = run.journal_path.read_bytes()
    command = module_command(sys.executable, "tunesmith_engine", "run", "--run-dir", str(run.path))
    environment = {name: value for name, value in os.environ.items() if name not in SUPERVISED}
    with FileLock(run.lock_path):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "run-busy" in done.stderr
    assert run.id in done.stderr
    assert run.journal_path.read_bytes() == journal


@pytest.mark.long
def test_an_engine_by_hand_keeps_others_out_while_it_trains(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    run = new_run(tiny_spec())
    command = module_command(sys.executable, "tunesmith_engine", "run", "--run-dir", str(run.path))
    environment = {name: value for name, value in os.environ.items() if name not in SUPERVISED}
    engine = subprocess.Popen(command, env=environment)
    try:
        while not read_journal(run.journal_path) and engine.poll() is None:
            time.sleep(0.05)
        assert run.is_supervised()
    finally:
        assert engine.wait() == 0
    assert not run.is_supervised()
    assert [event.seq for event in events(run)] == list(range(1, len(events(run)) + 1))


def test_an_engine_by_hand_names_a_folder_that_is_no_run(tmp_path: Path) -> None:
    command = module_command(sys.executable, "tunesmith_engine", "run", "--run-dir", str(tmp_path / "nothing"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "run-not-found" in done.stderr
    assert not (tmp_path / "nothing").exists()
