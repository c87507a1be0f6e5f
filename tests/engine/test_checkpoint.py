"""Checkpoints under kills, damage, full disks and wrong clocks."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tunesmith_core import files
from tunesmith_core.checkpoint_manifest import read_manifest
from tunesmith_core.errors import EnvironmentProblem, RunFailure
from tunesmith_core.spec import RunSpec
from tunesmith_engine.train import checkpoint
from tunesmith_engine.train.checkpoint import Checkpoints, Snapshot, damage, load

CRASHPOINTS = [
    "ckpt.after-adapter",
    "ckpt.after-optimizer",
    "ckpt.after-random",
    "file.before-rename",
    "file.after-rename",
    "ckpt.after-state",
    "ckpt.after-manifest",
    "folder.before-rename",
    "folder.after-rename",
    "ckpt.after-rename",
    "ckpt.after-trash",
    "ckpt.after-rotate",
]


def _snapshot(step: int, **changes: Any) -> Snapshot:
    weights = {"a": torch.full((8, 8), float(step)), "b": torch.arange(4.0)}
    values = {"adapter": weights, "optimizer": {"a:step": torch.tensor(1.0)}, "random": {"cpu": torch.get_rng_state()}}
    return Snapshot(step, **{**values, "state": {"step": step}, **changes})


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """An empty checkpoint folder that keeps two."""
    return Checkpoints(tmp_path / "checkpoints", 2, RunSpec(name="r"))


def _names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def _no_warning(code: str, message: str) -> None:
    raise AssertionError(f"{code}: {message}")


def test_saved_is_what_was_given(checkpoints: Checkpoints) -> None:
    given = _snapshot(3)
    saved = checkpoints.save(given, {"torch": "2"})
    assert checkpoints.recover(_no_warning) == saved
    loaded, manifest = load(saved)
    assert loaded.step == 3
    assert torch.equal(loaded.adapter["a"], given.adapter["a"])
    assert torch.equal(loaded.random["cpu"], given.random["cpu"])
    assert loaded.state == {"step": 3}
    assert (manifest.spec, manifest.fingerprint) == (RunSpec(name="r"), {"torch": "2"})


def test_rotation_goes_by_step_whatever_the_clock_says(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([5e9, 4e9, 3e9, 2e9])
    for step in (9, 10, 99, 100):
        now = next(clock)
        monkeypatch.setattr(checkpoint.time, "time", lambda now=now: now)
        saved = checkpoints.save(_snapshot(step), {})
        os.utime(saved, (now, now))
    assert _names(checkpoints) == ["step-000099", "step-000100"]
    newest = checkpoints.recover(_no_warning)
    assert newest is not None
    assert newest.name == "step-000100"


@pytest.mark.parametrize("name", ["adapter.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"])
@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_damaged_checkpoint_is_put_aside_and_the_one_before_is_taken(
    checkpoints: Checkpoints, name: str, how: str
) -> None:
    checkpoints.save(_snapshot(1), {})
    victim = checkpoints.save(_snapshot(2), {}) / name
    content = bytearray(victim.read_bytes())
    if how == "missing":
        victim.unlink()
    elif how == "cut":
        victim.write_bytes(content[:-1])
    else:
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    told: list[tuple[str, str]] = []
    newest = checkpoints.recover(lambda code, message: told.append((code, message)))
    assert newest is not None
    assert newest.name == "step-000001"
    assert [code for code, _ in told] == ["checkpoint-damaged"]
    assert name in told[0][1]
    assert [n.startswith("damaged-step-000002-") for n in _names(checkpoints)] == [True, False]


@pytest.mark.parametrize(
    "manifest", ["", "{", "[]", '{"version": 2, "files": {}, "step": 2}', '{"version": 1, "files": {}, "step": 7}']
)
def test_bad_manifest_is_damage(checkpoints: Checkpoints, manifest: str) -> None:
    path = checkpoints.save(_snapshot(2), {})
    (path / "MANIFEST.json").write_text(manifest)
    assert damage(path)
    assert checkpoints.recover(lambda *_: None) is None


def test_damaged_checkpoint_of_the_same_step_is_replaced(checkpoints: Checkpoints) -> None:
    path = checkpoints.save(_snapshot(2), {})
    assert checkpoints.save(_snapshot(2), {}) == path
    assert _names(checkpoints) == ["step-000002"]
    (path / "state.json").unlink()
    checkpoints.save(_snapshot(2), {})
    assert not damage(path)
    assert len(_names(checkpoints)) == 2


def test_weights_that_are_no_numbers_are_never_saved(checkpoints: Checkpoints) -> None:
    with pytest.raises(RunFailure) as caught:
        checkpoints.save(_snapshot(2, adapter={"a": torch.tensor([1.0, float("nan")])}), {})
    assert caught.value.code == "nan-loss"
    assert _names(checkpoints) == []


def test_full_disk_is_seen_before_anything_is_written(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: usage(100, 99, 1))
    with pytest.raises(EnvironmentProblem) as caught:
        checkpoints.save(_snapshot(2), {})
    assert caught.value.code == "disk-full"
    assert _names(checkpoints) == []


def test_too_little_room_is_told_with_the_whole_path_and_never_as_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "free_bytes", lambda _: 100)
    with pytest.raises(EnvironmentProblem) as caught:
        Checkpoints(Path("checkpoints"), 2, RunSpec(name="r")).save(_snapshot(2), {})
    folder = tmp_path / "checkpoints"
    assert caught.value.message == f"{folder}: a checkpoint needs 1 MiB, but only 0 MiB are free."


def test_a_checkpoint_needs_a_fifth_more_room_than_its_numbers(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"a": torch.zeros(5 << 20, dtype=torch.bfloat16)}
    snapshot = _snapshot(2, adapter=large, optimizer={}, random={})
    for free_bytes, has_room in (((12 << 20) - 1, False), (12 << 20, True)):
        monkeypatch.setattr(files, "free_bytes", lambda _, free_bytes=free_bytes: free_bytes)
        if has_room:
            checkpoints.save(snapshot, {})
        else:
            with pytest.raises(EnvironmentProblem, match="a checkpoint needs 12 MiB, but only 11 MiB are free"):
                checkpoints.save(snapshot, {})
    assert _names(checkpoints) == ["step-000002"]


def test_failing_write_leaves_nothing_behind(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints.save(_snapshot(1), {})

    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "fsync_file", fail)
    with pytest.raises(OSError, match="No space"):
        checkpoints.save(_snapshot(2), {})
    assert _names(checkpoints) == ["step-000001"]


def test_write_that_the_disk_garbled_is_found_at_once(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = files.publish_folder

    def garble(staging: Path, final: Path) -> None:
        (staging / "adapter.safetensors").write_bytes(b"garbled")
        publish(staging, final)

    monkeypatch.setattr(files, "publish_folder", garble)
    with pytest.raises(EnvironmentProblem) as caught:
        checkpoints.save(_snapshot(2), {})
    assert caught.value.code == "checkpoint-damaged"
    assert checkpoints.recover(_no_warning) is None


def test_what_is_told_is_on_the_disk(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that another library wrote, and the folder at last, also for a checkpoint that is there already."""
    synced: list[str] = []
    for name in ("fsync_file", "fsync_folder"):
        real = getattr(files, name)
        monkeypatch.setattr(files, name, lambda path, real=real: (synced.append(path.name), real(path)))
    saved = checkpoints.save(_snapshot(2), {})
    weights = ["adapter.safetensors", "optimizer.safetensors", "random.safetensors"]
    assert [name for name in synced if name in weights] == weights
    assert synced[-1] == "checkpoints"
    synced.clear()
    assert checkpoints.save(_snapshot(2), {}) == saved
    assert synced == ["checkpoints"]


def test_what_a_killed_writer_left_makes_room(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (".staging-step-000001-0", ".trash-step-000001-0"):
        (checkpoints.folder / name).mkdir(parents=True)
    room = 1 << 30
    monkeypatch.setattr(files, "free_bytes", lambda folder: 0 if list(folder.glob(".*-0")) else room)
    checkpoints.save(_snapshot(2), {})
    # What can't be deleted stands in nobody's way.
    (checkpoints.folder / ".trash-file").write_text("")
    monkeypatch.undo()
    checkpoints.save(_snapshot(3), {})
    assert checkpoints.steps() == [3, 2]


def test_a_failing_disk_is_told_and_not_what_follows_from_it(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(staging: Path, _: Path) -> None:
        shutil.rmtree(staging)
        raise OSError(5, "Input/output error", str(staging))

    monkeypatch.setattr(files, "publish_folder", lose)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoints.save(_snapshot(2), {})
    assert _names(checkpoints) == []


def test_a_checkpoint_notes_its_run_and_base_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2, RunSpec(name="r"), 5.0)
    monkeypatch.setattr(checkpoint.time, "time", lambda: 1234.5)
    assert read_manifest(checkpoints.save(_snapshot(1), {})).base_model == {}
    note = {"config.json": {"num_bytes": 2, "modified_ns": 3, "sampled": "a", "sha256": ""}}
    checkpoints.base_model = SimpleNamespace(  # type: ignore[assignment]
        to_dict=lambda: note, hash_in_background=lambda: hashed.append("begun")
    )
    saved = checkpoints.save(_snapshot(2), {"torch": "2"})
    manifest = files.read_json(saved / "MANIFEST.json")
    assert (manifest["step"], manifest["created_at"], manifest["run"]) == (2, 1234.5, 5.0)
    assert manifest["base_model"] == note
    assert manifest["files"]["state.json"]["bytes"] == (saved / "state.json").stat().st_size
    assert hashed == ["begun"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("saved_on", ["cpu", "cuda"])
def test_random_states_are_those_of_the_devices_in_use(
    device: str, saved_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of a GPU may go on without one, and the reverse."""
    on_gpu = torch.tensor([7], dtype=torch.uint8)
    restored: list[torch.Tensor] = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda _: on_gpu)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, _: restored.append(state))
    states = checkpoint.random_states(torch.device(saved_on))
    assert states.keys() == {"cpu", saved_on}
    expected = torch.rand(3)
    checkpoint.restore_random_states(states, torch.device(device))
    assert torch.equal(torch.rand(3), expected)
    assert restored == [on_gpu] * (device == saved_on == "cuda")


def _weights(step: int) -> dict[str, torch.Tensor]:
    """Return weights that tell of which step they are."""
    generator = torch.Generator().manual_seed(step)
    return {f"w{i}": torch.rand(64, 64, generator=generator) for i in range(4)}


def _fork(work: Callable[[], None]) -> int:
    """Do the work in a child process that has everything imported already, and return its process id."""
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child dies by design
        try:
            work()
        finally:
            os._exit(0)
    return pid


def _recovered_step(folder: Path) -> int:
    """Recover as a run does and prove that the checkpoint is whole and as new as was told."""
    told_path = folder / "told"
    told = [int(line) for line in told_path.read_text().split()] if told_path.exists() else []
    checkpoints = Checkpoints(folder / "checkpoints", 2, RunSpec(name="r"))
    newest = checkpoints.recover(_no_warning)
    step = 0
    if newest is not None:
        snapshot, _ = load(newest)
        step = snapshot.step
        assert all(torch.equal(snapshot.adapter[name], weights) for name, weights in _weights(step).items())
    assert step >= (told[-1] if told else 0)
    if checkpoints.folder.is_dir():
        assert all(path.name.startswith("step-") for path in checkpoints.folder.iterdir())
    return step


@pytest.mark.parametrize("point", CRASHPOINTS)
def test_kill_at_each_stage_loses_no_told_checkpoint(tmp_path: Path, point: str) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", 2, RunSpec(name="r"))
    for step in (1, 2):
        checkpoints.save(_snapshot(step, adapter=_weights(step)), {})
    (tmp_path / "told").write_text("1\n2\n")

    def save_third() -> None:
        os.environ[files.CRASHPOINT_VARIABLE] = point
        checkpoints.save(_snapshot(3, adapter=_weights(3)), {})

    _, status = os.waitpid(_fork(save_third), 0)
    assert os.WIFSIGNALED(status), f"{point} was never reached"
    late = CRASHPOINTS.index(point) >= CRASHPOINTS.index("folder.after-rename")
    assert _recovered_step(tmp_path) == (3 if late else 2)
    checkpoints.save(_snapshot(4), {})
    assert _names(checkpoints)[-1] == "step-000004"
    assert len(_names(checkpoints)) == 2


def _kill_at_random_moments(folder: Path, num_kills: int) -> None:
    chooser = random.Random(1)
    for _ in range(num_kills):
        first = _recovered_step(folder) + 1

        def save_until_killed(first: int = first) -> None:
            checkpoints = Checkpoints(folder / "checkpoints", 2, RunSpec(name="r"))
            for step in range(first, first + 10_000):
                checkpoints.save(_snapshot(step, adapter=_weights(step)), {})
                with (folder / "told").open("a") as told:
                    told.write(f"{step}\n")

        pid = _fork(save_until_killed)
        if chooser.random() < 0.5:
            # However slow the computer is, some of them have saved when they are killed.
            deadline = time.monotonic() + 60
            told = folder / "told"
            while not (told.exists() and f"{first}\n" in told.read_text()) and time.monotonic() < deadline:
                time.sleep(0.01)
        time.sleep(chooser.random() * 0.1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert _recovered_step(folder) > 1


def test_twenty_kills_lose_no_told_checkpoint(tmp_path: Path) -> None:
    _kill_at_random_moments(tmp_path, 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_thousand_kills_lose_no_told_checkpoint(tmp_path: Path) -> None:
    _kill_at_random_moments(tmp_path, 1000)


def test_a_checkpoint_of_another_run_is_put_aside(tmp_path: Path) -> None:
    ours, other = (Checkpoints(tmp_path / str(run), 2, RunSpec(name="r"), run) for run in (5.0, 6.0))
    ours.save(_snapshot(1), {})
    foreign = other.save(_snapshot(2), {})
    foreign.rename(ours.folder / foreign.name)
    told: list[str] = []
    newest = ours.recover(lambda _code, message: told.append(message))
    assert newest is not None
    assert newest.name == "step-000001"
    assert told == ["step-000002: it was saved by another run"]
    unknown = Checkpoints(ours.folder, 2, RunSpec(name="r"))
    assert unknown.recover(_no_warning) == newest, "a run whose header is damaged knows no others"
