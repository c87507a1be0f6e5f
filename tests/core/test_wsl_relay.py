"""What travels between the run folder on Windows and its twin on the Linux disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.disk_faults import FaultyDisk, install
from tests.wsl_stub import add_distribution, install_stub
from tunesmith_core import paths
from tunesmith_core.protocol import JournalWriter, post_command, read_journal
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.wsl import relay


@pytest.fixture
def drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let wslpath answer here; return the folder that it maps drive C to."""
    install_stub(tmp_path / "system32")
    root = add_distribution(tmp_path / "system32", "Ubuntu")
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return root / "mnt" / "c"


@pytest.fixture
def pair(drives: Path, make_spec: Callable[..., RunSpec], tmp_path: Path) -> tuple[Run, Run]:
    """A run folder and its twin; the second of its name, as after an earlier run."""
    spec = make_spec("a")
    create_run(spec)
    host = create_run(spec)
    return host, relay.make_twin(host)


def save(run: Run, step: int) -> None:
    folder = run.checkpoints_path / f"step-{step:06d}"
    folder.mkdir(parents=True)
    (folder / "MANIFEST.json").write_text(str(step))


def test_a_twin_has_the_same_name_and_reachable_files(drives: Path, pair: tuple[Run, Run]) -> None:
    host, twin = pair
    assert twin.id == host.id == "a-02"
    assert twin.load_spec().data.sources[0].path == f"{drives}{host.load_spec().data.sources[0].path}"
    assert not twin.journal_path.exists()


def test_evaluation_data_are_mapped_too(drives: Path, make_spec: Callable[..., RunSpec]) -> None:
    spec = make_spec("a")
    spec.evaluation.path = r"C:\data\held out.jsonl"
    spec.model.path = "org/model"
    models = paths.models_dir()
    mapped = relay.guest_spec(spec, models)
    assert mapped.evaluation.path == f"{drives}/data/held out.jsonl"
    assert mapped.model.path == "org/model"
    (models / "org--model").mkdir(parents=True)
    assert relay.guest_spec(spec, models).model.path == str(models / "org--model")


def test_a_resumed_run_brings_journal_and_checkpoints(drives: Path, make_spec: Callable[..., RunSpec]) -> None:
    host = create_run(make_spec("a"))
    journal = JournalWriter(host.journal_path)
    journal.write("hello")
    journal.close()
    save(host, 2)
    twin = relay.make_twin(host)
    assert twin.created_at == host.created_at, "the engine knows the checkpoints of a run by it"
    assert [event.type for event in read_journal(twin.journal_path)] == ["hello"]
    assert (twin.checkpoints_path / "step-000002" / "MANIFEST.json").read_text() == "2"


def test_a_line_comes_after_the_files_that_it_announces(pair: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    host, twin = pair
    pump = relay.JournalPump(twin, host)
    pump.pump()
    journal = JournalWriter(twin.journal_path)
    journal.write("step", step=1)
    save(twin, 1)
    journal.write("checkpoint", step=1)
    seen: list[list[str]] = []
    bring_back = relay.bring_back

    def watch(source: Run, target: Run) -> None:
        seen.append([event.type for event in read_journal(host.journal_path)])
        bring_back(source, target)

    monkeypatch.setattr(relay, "bring_back", watch)
    pump.pump()
    pump.close()
    journal.close()
    assert seen == [["step"]]
    assert [event.type for event in read_journal(host.journal_path)] == ["step", "checkpoint"]
    assert (host.checkpoints_path / "step-000001" / "MANIFEST.json").exists()


def test_half_a_line_waits_for_its_end(pair: tuple[Run, Run]) -> None:
    host, twin = pair
    pump = relay.JournalPump(twin, host)
    journal = JournalWriter(twin.journal_path)
    journal.write("step", step=1)
    journal.close()
    line = twin.journal_path.read_bytes()
    twin.journal_path.write_bytes(line[:10])
    pump.pump()
    assert host.journal_path.read_bytes() == b""
    twin.journal_path.write_bytes(line)
    pump.pump()
    pump.close()
    assert host.journal_path.read_bytes() == line


@pytest.mark.parametrize("torn", [False, True])
def test_a_disk_of_windows_that_is_full_for_a_while_loses_no_line(
    pair: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    host, twin = pair
    place, num_calls = 0, 1
    while place < num_calls:
        place += 1
        for run in pair:
            shutil.rmtree(run.checkpoints_path, ignore_errors=True)
            run.journal_path.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            disk = FaultyDisk(host.path, 0, 3, torn=torn)
            install(disk, patch)
            pump = relay.JournalPump(twin, host)
            disk.first = len(disk.calls) + place
            write_three_lines(twin)
            for _ in range(4):
                with contextlib.suppress(OSError):
                    pump.pump()
            pump.close()
            num_calls = len(disk.calls) - disk.first + place
        assert disk.num_refused == 3 or place > num_calls - 3
        assert host.journal_path.read_bytes() == twin.journal_path.read_bytes(), f"call {place}"
        assert (host.checkpoints_path / "step-000001" / "MANIFEST.json").read_text() == "1"
    assert num_calls > 10


def write_three_lines(twin: Run) -> None:
    save(twin, 1)
    journal = JournalWriter(twin.journal_path)
    for event in ("step", "checkpoint", "step"):
        journal.write(event, step=1)
    journal.close()


@pytest.fixture
def ended(pair: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch) -> relay.Relay:
    """A relay whose engine has ended."""
    host, twin = pair
    monkeypatch.setattr(relay.Relay, "__init__", lambda _self: None)
    monkeypatch.setattr(relay.os, "killpg", lambda *_: None)
    monkeypatch.setattr(relay, "POLL_S", 0.01)
    made = relay.Relay()  # type: ignore[call-arg] # see above
    made.host, made.twin, made._asked_to_end = host, twin, threading.Event()
    made._pump = relay.JournalPump(twin, host)
    made._engine = SimpleNamespace(poll=lambda: 0, returncode=3, pid=0)
    return made


def test_what_was_trained_is_passed_on_once_there_is_room(ended: relay.Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    write_three_lines(ended.twin)
    refused = [OSError(errno.ENOSPC, "full")] * 3
    bring_back = relay.bring_back

    def refuse(twin: Run, host: Run) -> None:
        if refused:
            raise refused.pop()
        bring_back(twin, host)

    monkeypatch.setattr(relay, "bring_back", refuse)
    assert ended.run() == 3
    assert [event.type for event in read_journal(ended.host.journal_path)] == ["step", "checkpoint", "step"]
    assert (ended.host.checkpoints_path / "step-000001").is_dir()
    assert not ended.twin.path.exists()


def test_what_can_not_be_passed_on_stays_in_the_twin(ended: relay.Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    write_three_lines(ended.twin)

    def refuse(_twin: Run, _host: Run) -> None:
        ended.ask_to_end()
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(relay, "bring_back", refuse)
    assert ended.run() == 3
    assert (ended.twin.checkpoints_path / "step-000001").is_dir()


def test_results_replace_what_the_engine_gave_up(pair: tuple[Run, Run]) -> None:
    host, twin = pair
    save(host, 1)
    save(twin, 2)
    (twin.checkpoints_path / "step-000002" / "shards").mkdir()
    (twin.checkpoints_path / "step-000002" / "shards" / "1").touch()
    twin.adapter_path.mkdir()
    (twin.adapter_path / "adapter_model.safetensors").write_bytes(b"new")
    host.adapter_path.mkdir()
    (host.adapter_path / "old").touch()
    relay.bring_back(twin, host)
    relay.bring_back(twin, host)
    assert [path.name for path in host.checkpoints_path.iterdir()] == ["step-000002"]
    assert (host.checkpoints_path / "step-000002" / "shards" / "1").exists()
    assert [path.name for path in host.adapter_path.iterdir()] == ["adapter_model.safetensors"]


def test_commands_and_the_heartbeat_travel(pair: tuple[Run, Run]) -> None:
    host, twin = pair
    post_command(host.control_path, "checkpoint")
    relay.pass_commands(host, twin)
    assert len(list(twin.control_path.iterdir())) == 1
    assert list(host.control_path.iterdir()) == []
    relay.pass_heartbeat(twin, host)
    assert not host.heartbeat_path.exists()
    twin.heartbeat_path.touch()
    relay.pass_heartbeat(twin, host)
    assert host.heartbeat_path.exists()


def test_a_heartbeat_that_stopped_is_not_passed_on(pair: tuple[Run, Run]) -> None:
    host, twin = pair
    twin.heartbeat_path.touch()
    os.utime(twin.heartbeat_path, (0, 0))
    relay.pass_heartbeat(twin, host)
    assert not host.heartbeat_path.exists()
