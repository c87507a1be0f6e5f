"""A disk that is full, read-only or failing for a while costs time and nothing else: the run goes to its end."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from safetensors import SafetensorError

from tests.disk_faults import FaultyDisk, install
from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tunesmith_core.checkpoint_manifest import damage
from tunesmith_core.protocol import Command, JournalReader
from tunesmith_core.runs import Run, RunState
from tunesmith_core.spec import RunSpec
from tunesmith_engine import patience, phases
from tunesmith_engine.host import Host

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]

FAULTS = {
    "full": {"number": errno.ENOSPC, "count": 1},
    "full for long": {"number": errno.ENOSPC, "count": 60},
    "read-only": {"number": errno.EROFS, "count": 25},
    "failing": {"number": errno.EIO, "count": 3},
    "full in the middle of a line": {"number": errno.ENOSPC, "count": 9, "torn": True},
}
QUICK_PLACES = 2
"""In how many places of the run the quick tier tries each fault."""


@pytest.fixture
def short_spec(tiny_spec: MakeSpec) -> RunSpec:
    """Three steps with a checkpoint after each, an evaluation and a sample."""
    return tiny_spec(
        schedule={"max_steps": 3, "gradient_accumulation_steps": 1, "warmup_steps": 1},
        saving={"every_steps": 1, "keep": 2},
        evaluation={"percent": 20.0, "every_steps": 2, "sample_prompts": ["Hi"], "sample_max_tokens": 2},
    )


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.0)


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FaultyDisk]]:
    """Make a faulty disk of a run's folder, safetensors' writer in Rust included."""
    with monkeypatch.context() as patches:

        def make(run: Run, **faults: Any) -> FaultyDisk:
            patches.undo()
            patches.setattr(patience, "FIRST_PAUSE_S", 0.0)
            disk = FaultyDisk(run.path, **faults)
            install(disk, patches)
            patches.setattr(safetensors.torch, "serialize_file", _serializer(disk))
            return disk

        yield make


def _serializer(disk: FaultyDisk) -> Callable[..., Any]:
    plain = safetensors.torch.serialize_file

    def write(tensors: Any, filename: Any, *arguments: Any, **options: Any) -> Any:
        if disk.holds(filename) and disk.refuses("serialize"):
            reason = f"{os.strerror(disk.number)} (os error {disk.number})"
            raise SafetensorError(f"Error while serializing: I/O error: {reason}")
        return plain(tensors, filename, *arguments, **options)

    return write


@pytest.mark.parametrize("named", ["checkpoints/.part/optimizer.safetensors", ""])
def test_a_person_is_told_which_disk_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """The engine names files from its run's folder."""
    monkeypatch.chdir(tmp_path)
    problem = patience.disk_problem(OSError(errno.ENOSPC, "No space left on device", named or None), Path())
    assert problem
    assert problem.message == f"{tmp_path / named}: no space is left on the disk."


def _adapter(run: Run) -> bytes:
    return (run.adapter_path / "adapter_model.safetensors").read_bytes()


def _judge(run: Run, whole: Run) -> None:
    """Assert that nothing is lost or left behind."""
    reader = JournalReader(run.journal_path)
    numbers = [event.seq for event in reader.read_all()]
    assert reader.num_bad_lines == reader.num_unknown == 0
    assert numbers == sorted(set(numbers)), "order"
    assert [event.data["step"] for event in events(run, "step")] == [1, 2, 3]
    assert [event.data["step"] for event in events(run, "checkpoint")] == [1, 2, 3]
    assert step_losses(run) == step_losses(whole)
    assert [len(events(run, kind)) for kind in ("hello", "setup", "eval", "sample", "result")] == [
        len(events(whole, kind)) for kind in ("hello", "setup", "eval", "sample", "result")
    ]
    assert not events(run, "warning", "error")
    assert result_of(run)["status"] == "finished"
    assert result_of(run)["artifacts"] == {"adapter": "adapter"}
    assert _adapter(run) == _adapter(whole)
    assert set(os.listdir(run.adapter_path)) == set(os.listdir(whole.adapter_path))
    checkpoints = sorted(path.name for path in run.checkpoints_path.iterdir() if not path.name.startswith(".trash-"))
    assert checkpoints == ["step-000002", "step-000003"]
    assert not any(damage(run.checkpoints_path / name) for name in checkpoints)
    run.sweep()
    assert not run.tmp_path.exists()
    phases = [event.data["name"] for event in events(run, "phase")]
    assert phases[-1] == "saving"


def _undisturbed(new_run: NewRun, spec: RunSpec, on_disk: Callable[..., FaultyDisk]) -> tuple[Run, int]:
    """Return a run that nothing disturbs, and in how many places its disk could have refused something."""
    whole = new_run(spec)
    disk = on_disk(whole)
    assert train(whole) == 0
    assert len(disk.calls) > 100
    return whole, len(disk.calls)


def _sweep(
    new_run: NewRun, whole: Run, on_disk: Callable[..., FaultyDisk], places: Sequence[int], **faults: Any
) -> str:
    """Run with the fault at each of some places, and return the counts in words."""
    num_refused = num_pauses = 0
    for place in places:
        run = new_run(whole.load_spec())
        disk = on_disk(run, first=place, **faults)
        assert train(run) == 0, (place, disk.calls[place - 1], result_of(run))
        disk.first = 0
        assert run.status().state is RunState.FINISHED
        try:
            _judge(run, whole)
        except AssertionError as error:
            raise AssertionError(f"fault at call {place}: {disk.calls[place - 1]}: {error}") from error
        num_refused += disk.num_refused
        num_pauses += "paused" in [event.data["name"] for event in events(run, "phase")]
    assert num_refused >= len(places)
    # What is over at the second attempt is no pause.
    assert num_pauses > len(places) // 4 or faults["count"] < 20
    return f"{len(places)} places, {num_refused} calls refused, {num_pauses} runs paused, 0 steps lost"


def test_a_fault_of_the_disk_loses_no_step(
    new_run: NewRun, short_spec: RunSpec, on_disk: Callable[..., FaultyDisk]
) -> None:
    whole, num_calls = _undisturbed(new_run, short_spec, on_disk)
    stride = num_calls // QUICK_PLACES
    for number, fault in enumerate(FAULTS.values()):
        _sweep(new_run, whole, on_disk, range(1 + number * 7, num_calls, stride), **fault)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_each_call_loses_no_step(
    new_run: NewRun, short_spec: RunSpec, on_disk: Callable[..., FaultyDisk], fault: str, capsys: Any
) -> None:
    whole, num_calls = _undisturbed(new_run, short_spec, on_disk)
    counts = _sweep(new_run, whole, on_disk, range(1, num_calls + 1), **FAULTS[fault])
    with capsys.disabled():
        sys.stdout.write(f"\n{fault}: {counts}\n")


@pytest.mark.parametrize("mode", ["save", "discard"])
def test_a_stop_ends_a_pause_and_says_what_is_unsaved(
    tiny_spec: MakeSpec, new_run: NewRun, on_disk: Callable[..., FaultyDisk], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    run = new_run(tiny_spec(saving={"every_steps": 1}))
    disk = on_disk(run, number=errno.EROFS)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 60.0)
    wait = patience._wait

    def stop_meanwhile(host: Host, seconds: float) -> None:
        host._receive(Command("1", "stop", {"mode": mode}))
        wait(host, seconds)

    def fill() -> None:
        disk.first, disk.count = len(disk.calls) + 1, 1 << 30

    monkeypatch.setattr(patience, "_wait", stop_meanwhile)
    with Host(run) as host:
        after_step(host, 3, fill)
        assert phases.run(host) == (6 if mode == "save" else 5)
        # The last attempt, when the journal is closed, succeeds.
        disk.first = 0
    status = run.status()
    assert status.state is (RunState.FAILED if mode == "save" else RunState.STOPPED)
    assert (result_of(run)["step"], result_of(run)["artifacts"]) == (3, {})
    assert [event.data["step"] for event in events(run, "step")] == [1, 2, 3]
    assert run.status().last_checkpoint_step == 2
    told = status.error or {"code": None, "message": "", "hint": ""}
    assert (told["code"] == result_of(run)["code"] == "permission-or-antivirus") == (mode == "save")
    assert told["message"].endswith(": Read-only file system. Steps after 2 were not saved.") == (mode == "save")
    assert told["hint"].endswith("then resume the run.") == (mode == "save")
    assert train(run) == 0
    assert events(run, "hello")[-1].data["resumed_from_step"] == 2


@pytest.mark.parametrize("call", range(1, 9, 2))
def test_a_folder_that_is_renamed_while_safetensors_writes_costs_nothing(
    short_spec: RunSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """Its writer names the file that it makes beside the target from the root on."""
    plain, num_calls = safetensors.torch.serialize_file, 0

    def write(*arguments: Any, **options: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == call:
            raise SafetensorError("Error while serializing: I/O error: No such file or directory (os error 2)")
        return plain(*arguments, **options)

    monkeypatch.setattr(safetensors.torch, "serialize_file", write)
    run = new_run(short_spec)
    assert train(run) == 0, result_of(run)
    assert len(step_losses(run)) == 3
    assert events(run, "pause") == []
    assert [path.name for path in run.checkpoints_path.iterdir() if damage(path)] == []
    assert not list(run.path.rglob("*.tmp*"))


def test_a_file_that_stays_missing_ends_the_run(
    short_spec: RunSpec, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_arguments: Any, **_options: Any) -> Any:
        raise SafetensorError("Error while serializing: I/O error: No such file or directory (os error 2)")

    monkeypatch.setattr(safetensors.torch, "serialize_file", write)
    run = new_run(short_spec)
    assert train(run) != 0
