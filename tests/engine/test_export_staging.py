"""An export is whole or not there: after a kill, on a full disk, canceled, and when something is in its place."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.engine.exports import STEP, export, fill_disk, finish, save, trained_run
from tests.engine.test_export_merged import check_equal, sharded
from tunesmith_core import files, trash
from tunesmith_core.errors import TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run
from tunesmith_engine.export import merged_model, staging

pytestmark = pytest.mark.usefixtures("whole_vocabulary", "unproven")

POINTS = ["export.after-file", "export.after-note", "export.before-publish", "folder.before-rename"]
PUBLISHED = "folder.after-rename"
NUM_SHARDS = 3
NUM_KILLS = 50
CHILD = """
import sys
from pathlib import Path
from tests.engine.exports import export
from tunesmith_core.runs import Run
from tunesmith_engine.export import verifying
verifying.SPARE_FACTOR = 1e12  # unproven, as the exports of this file are
export(Run(Path(sys.argv[1])), Path(sys.argv[2]))
"""


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture
def run(home: Path, tiny_model: Path, tmp_path: Path) -> tuple[Run, PeftModel]:
    """A run on a model of three files, and what it has trained."""
    assert home.is_dir()
    return trained_run(sharded(tiny_model, tmp_path, NUM_SHARDS, 2))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where exports go."""
    return tmp_path / "exports" / "merged"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the weight files that were written."""
    names: list[str] = []
    write = merged_model.write_tensors

    def noted(path: Path, *arguments: Any) -> str:
        names.append(path.name.removesuffix(".part"))
        return write(path, *arguments)

    monkeypatch.setattr(merged_model, "write_tensors", noted)
    return names


def die_at(point: str, time_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End an export at a point as a kill does, which cleans nothing up."""
    met = []

    def crashpoint(name: str) -> None:
        met.append(name)
        if met.count(point) == time_:
            raise Killed

    monkeypatch.setattr(files, "crashpoint", crashpoint)
    monkeypatch.setattr(staging.shutil, "rmtree", lambda *_, **__: None)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_export_is_nowhere_and_continues(
    point: str, run: tuple[Run, PeftModel], target: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        die_at(point, 1 if point.startswith("folder") or point.endswith("publish") else 2, patches)
        with pytest.raises(Killed):
            export(run[0], target)
    assert not target.exists()
    before = list(written)
    export(run[0], target)
    check_equal(target, run[1])
    again = [name for name in written[len(before) :] if name in before]
    assert again == ([before[-1]] if point == "export.after-file" else [])
    assert list(target.parent.iterdir()) == [target]


def test_what_a_kill_left_is_not_trusted_blindly(
    run: tuple[Run, PeftModel], target: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        die_at("export.before-publish", 1, patches)
        with pytest.raises(Killed):
            export(run[0], target)
    left = staging.staging_folder(target)
    shard = sorted(left.glob("*.safetensors"))[1]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    (left / "stray.part").write_bytes(b"x")
    export(run[0], target)
    assert written[NUM_SHARDS:] == [shard.name]
    check_equal(target, run[1])
    assert not (target / "stray.part").exists()


def test_another_export_takes_nothing_over(
    run: tuple[Run, PeftModel], target: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        die_at("export.before-publish", 1, patches)
        with pytest.raises(Killed):
            export(run[0], target)
    for parameter in run[1].parameters():
        if parameter.requires_grad:
            parameter.data *= 2
    save(run[0], run[1], STEP + 1)
    assert export(run[0], target)["step"] == STEP + 1
    assert len(written) == 2 * NUM_SHARDS
    check_equal(target, run[1])


def test_the_same_export_is_kept_and_another_is_refused(
    run: tuple[Run, PeftModel], target: Path, written: list[str]
) -> None:
    assert export(run[0], target)["existed"] is False
    assert export(run[0], target)["existed"] is True
    assert len(written) == NUM_SHARDS
    save(run[0], run[1], STEP + 1)
    with pytest.raises(TunesmithError, match="is not this export") as refusal:
        export(run[0], target)
    assert refusal.value.code == "export-target-taken"
    assert export(run[0], target, checkpoint=STEP)["existed"] is True
    (target / "config.json").write_text("{}")
    with pytest.raises(TunesmithError, match=r"config.json changed since"):
        export(run[0], target, checkpoint=STEP)


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_is_in_the_place_stays(is_folder: bool, run: tuple[Run, PeftModel], target: Path) -> None:
    place = target / "note.txt" if is_folder else target
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    with pytest.raises(TunesmithError) as refusal:
        export(run[0], target)
    assert refusal.value.code == "export-target-taken"
    assert place.read_text() == "mine"


def test_a_place_that_is_taken_meanwhile_stays(
    run: tuple[Run, PeftModel], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashpoint(name: str) -> None:
        if name == "export.before-publish":
            target.mkdir()

    monkeypatch.setattr(files, "crashpoint", crashpoint)
    with pytest.raises(TunesmithError) as refusal:
        export(run[0], target)
    assert refusal.value.code == "export-target-taken"
    assert list(target.parent.glob(".*")) == []


def test_two_at_once_do_not_share_a_folder(
    run: tuple[Run, PeftModel], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks: list[Path] = []
    monkeypatch.setattr(FileLock, "acquire", lambda lock: bool(locks.append(lock.path)))
    with pytest.raises(TunesmithError, match="in progress"):
        export(run[0], target)
    assert len(locks) == 1
    assert not target.exists()


def test_a_canceled_export_leaves_nothing(
    run: tuple[Run, PeftModel], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cancel(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(staging.Staging, "finish", cancel)
    with pytest.raises(KeyboardInterrupt):
        export(run[0], target)
    assert list(target.parent.iterdir()) == []


def test_too_little_space_is_told_before_anything_is_written(
    run: tuple[Run, PeftModel], target: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: staging.SPARE_BYTES + 1000)
    with pytest.raises(TunesmithError, match="MiB more") as refusal:
        export(run[0], target)
    assert refusal.value.code == "disk-full"
    assert written == []


def test_a_full_disk_is_named_at_some_writes(run: tuple[Run, PeftModel], target: Path) -> None:
    target.parent.mkdir()
    chooser = random.Random(0)
    assert fill_disk(run[0], target, lambda count: [*sorted(chooser.sample(range(1, count), 7)), count]) > 20


@pytest.mark.long
def test_a_full_disk_is_named_at_every_write(run: tuple[Run, PeftModel], target: Path, capsys: Any) -> None:
    target.parent.mkdir()
    num_calls = fill_disk(run[0], target, lambda count: list(range(1, count + 1)))
    with capsys.disabled():
        sys.stderr.write(f"a full disk at each of {num_calls} writes of an export\n")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_kills_at_random_moments_leave_nothing_that_looks_finished(
    run: tuple[Run, PeftModel], target: Path, capsys: Any
) -> None:
    target.parent.mkdir()
    chooser, ends = random.Random(1), {"killed": 0, "finished": 0}
    # One thread: beside other tests, several only wait for each other.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    for number in range(NUM_KILLS):
        point = chooser.choice([*POINTS, PUBLISHED, ""])
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(run[0].path), str(target)],
            env=environment | {files.CRASHPOINT_VARIABLE: point},
        )
        if not point:
            left = staging.staging_folder(target)
            while child.poll() is None and not (left.exists() and list(left.glob("*.part"))):
                time.sleep(0.001)
            time.sleep(chooser.random() * 0.05)
            child.kill()
        code = child.wait(timeout=1200)
        ends["finished" if code == 0 else "killed"] += 1
        assert code in (0, -signal.SIGKILL), f"kill {number}"
        if target.exists():
            check_equal(target, run[1])
            target.rename(target.with_name(f"kept-{number}"))
    export(run[0], target)
    check_equal(target, run[1])
    with capsys.disabled():
        sys.stderr.write(f"{ends['killed']} of {NUM_KILLS} exports were killed\n")


def test_an_adapter_of_a_checkpoint_is_one_that_peft_loads(run: tuple[Run, PeftModel], target: Path) -> None:
    answer = export(run[0], target, "adapter")
    assert answer["format"] == "adapter"
    base = AutoModelForCausalLM.from_pretrained(run[0].load_spec().model.path, dtype=torch.float32)
    tokens = torch.arange(20, 29)[None]
    with torch.no_grad():
        got, expected = PeftModel.from_pretrained(base, target)(tokens).logits, run[1](tokens).logits
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    card = (target / "README.md").read_text()
    assert f"for {STEP} steps" in card


def test_a_finished_run_exports_its_adapter_without_checkpoints(
    run: tuple[Run, PeftModel], target: Path, tmp_path: Path
) -> None:
    export(run[0], tmp_path / "first", "adapter")
    (tmp_path / "first").rename(run[0].adapter_path)
    finish(run[0])
    (run[0].checkpoints_path / f"step-{STEP:06d}" / "adapter.safetensors").unlink()
    export(run[0], target)
    check_equal(target, run[1])
    export(run[0], target.with_name("adapter"), "adapter")
    name = "adapter_model.safetensors"
    copied, own = load_file(target.with_name("adapter") / name), load_file(run[0].adapter_path / name)
    assert all(torch.equal(copied[each], own[each]) for each in own)


def test_only_the_finished_adapter_is_exported_without_its_base_model(
    run: tuple[Run, PeftModel], target: Path, tmp_path: Path
) -> None:
    export(run[0], tmp_path / "first", "adapter")
    (tmp_path / "first").rename(run[0].adapter_path)
    finish(run[0])
    trash.delete_folder(Path(run[0].load_spec().model.path))
    answer = export(run[0], target, "adapter")
    assert (answer["proof"], answer["licence"]) == (None, "unknown")
    name = "adapter_model.safetensors"
    assert (target / name).read_bytes() == (run[0].adapter_path / name).read_bytes()
    for form, checkpoint in (("merged", 0), ("adapter", STEP)):
        with pytest.raises(TunesmithError) as refusal:
            export(run[0], target.with_name("other"), form, checkpoint=checkpoint)
        assert refusal.value.code == "model-deleted"


@pytest.mark.parametrize("is_live", [True, False])
def test_a_run_that_was_resumed_exports_its_newest_checkpoint(
    is_live: bool, run: tuple[Run, PeftModel], target: Path, tmp_path: Path
) -> None:
    export(run[0], tmp_path / "first", "adapter")
    (tmp_path / "first").rename(run[0].adapter_path)
    journal = JournalWriter(run[0].journal_path)
    journal.write("result", status="stopped", step=STEP, artifacts={"adapter": "adapter"})
    journal.write("hello", resumed_from_step=STEP)
    journal.write("phase", name="training")
    journal.write("step", step=STEP + 3, loss=1.0)
    journal.close()
    for parameter in run[1].parameters():
        if parameter.requires_grad:
            parameter.data *= 2
    save(run[0], run[1], STEP + 1)
    lock = FileLock(run[0].lock_path)
    assert not is_live or lock.acquire()
    assert run[0].status().state.live is is_live
    assert export(run[0], target)["step"] == STEP + 1
    lock.release()
    check_equal(target, run[1])


def test_what_can_not_be_exported_is_told(run: tuple[Run, PeftModel], target: Path) -> None:
    with pytest.raises(TunesmithError, match=r"has no checkpoint of step 5\. It has: 6\.") as refusal:
        export(run[0], target, checkpoint=5)
    assert refusal.value.code == "checkpoint-missing"
    saved = run[0].checkpoints_path / f"step-{STEP:06d}"
    (saved / "adapter.safetensors").write_bytes(b"x")
    with pytest.raises(TunesmithError, match=r"adapter.safetensors was changed") as damaged:
        export(run[0], target)
    assert damaged.value.code == "checkpoint-damaged"
    saved.rename(saved.with_name(".trash-1"))
    with pytest.raises(TunesmithError, match="no adapter and no checkpoint") as nothing:
        export(run[0], target)
    assert nothing.value.code == "nothing-to-export"


def test_another_base_model_is_refused(run: tuple[Run, PeftModel], target: Path) -> None:
    folder = Path(run[0].load_spec().model.path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}))
    with pytest.raises(TunesmithError, match=r"config.json") as refusal:
        export(run[0], target)
    assert refusal.value.code == "base-model-differs"
    assert "try again" in refusal.value.hint
