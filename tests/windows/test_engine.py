"""Training by a Windows Python through the command line: supervisor, job, stop and resume, with Linux's losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_model import build_tiny_model, write_chats
from tests.windows.conftest import PATIENCE_S
from tests.windows.rig import Rig
from tunesmith_core import files, launch, protocol
from tunesmith_core.operations.folder import Operation
from tunesmith_core.protocol import read_journal
from tunesmith_core.runs import RunState, open_run
from tunesmith_core.spec import RunSpec
from tunesmith_setup.packages.uvtool import Uv

NUM_STEPS = 80
LOCK = "cpu-win-py311.txt"

DRIVE = r"""
import json, sys
from pathlib import Path
sys.path[:0] = sys.argv[1].split(";")
from tunesmith_core import launch
from tunesmith_core.runs import RunState
from tunesmith_core.spec import RunSpec

run = launch.start(RunSpec.load(Path(sys.argv[2])))
stopped = []
def stop_after_two(event):
    if event.type == "step" and event.data["step"] == 2 and not stopped:
        stopped.append(launch.stop(run))
first = launch.wait(run, stop_after_two)
assert first.state is RunState.STOPPED, first
assert first.last_checkpoint_step == first.step < int(sys.argv[3]), first
launch.resume(run)
status = launch.wait(run, offset=run.journal_path.stat().st_size)
assert status.state is RunState.FINISHED, status
assert not run.is_supervised()
print(run.id)
"""


@pytest.fixture(scope="module")
def python(rig: Rig, uv: Uv) -> str:
    """The Python of a training environment of Windows."""
    return rig.environment("train", LOCK, uv)


def make_spec(folder: Path, place: str, separator: str) -> RunSpec:
    """Return a short run on the tiny model, whose files are known by `place` to the system that trains."""
    spec = RunSpec(name="windows")
    spec.model.path, spec.data.sources[0].path = f"{place}{separator}model", f"{place}{separator}chats.jsonl"
    spec.hardware.devices = ["cpu"]
    spec.schedule.max_steps = NUM_STEPS
    assert (folder / "model").is_dir()
    return spec


def losses(folder: Path) -> list[float]:
    events: list[Any] = protocol.read_journal(folder / "events.jsonl")
    by_step = {event.data["step"]: event.data["loss"] for event in events if event.type == "step"}
    return [by_step[step] for step in sorted(by_step)]


def test_a_run_is_stopped_resumed_and_learns_as_on_linux(
    rig: Rig, python: str, windows_tmp: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.real_runs import point_at_training_environment

    build_tiny_model(windows_tmp / "model")
    write_chats(windows_tmp / "chats.jsonl", 40)
    point_at_training_environment(home)
    on_linux = launch.start(make_spec(windows_tmp, str(windows_tmp), "/"))
    assert launch.wait(on_linux).state is RunState.FINISHED

    place = rig.windows_path(windows_tmp)
    (windows_tmp / "spec.json").write_text(json.dumps(make_spec(windows_tmp, place, "\\").to_dict()))
    (windows_tmp / "envs").mkdir()
    (windows_tmp / "envs" / "train.current").write_text("C:\\envs\\train\n")
    (windows_tmp / "drive.py").write_text(DRIVE)
    roots = rig.windows_path(Path(protocol.__file__).parents[1])
    code, output = rig.python(
        f"{place}\\drive.py",
        roots,
        f"{place}\\spec.json",
        str(NUM_STEPS),
        timeout_s=PATIENCE_S,
        TUNESMITH_HOME=place,
        TUNESMITH_WORK=place,
        KMP_AFFINITY="disabled",
    )
    assert code == 0, output[-5000:] + logs(windows_tmp)
    monkeypatch.setenv("TUNESMITH_HOME", str(windows_tmp))
    on_windows = open_run(output.split()[-1])
    assert losses(on_windows.path) == pytest.approx(losses(on_linux.path), abs=5e-4)
    assert len(losses(on_windows.path)) == NUM_STEPS
    assert (on_windows.path / "adapter" / "adapter_model.safetensors").is_file()


def logs(home: Path) -> str:
    """Return the last words of the runs of a data root."""
    return "\n".join(path.read_text(errors="replace")[-5000:] for path in home.glob("runs/*/*.log"))


def test_the_proof_of_an_environment_holds(rig: Rig, python: str, windows_tmp: Path) -> None:
    """Every step: libraries, products, a kernel under Triton's interpreter, 4-bit weights, a LoRA step."""
    start = rig.windows_path(Path(protocol.__file__).with_name("start.py"))
    operation = Operation(windows_tmp / "proof")
    operation.path.mkdir()
    files.atomic_write_json(operation.path / "operation.json", {"kind": "selftest"})
    files.atomic_write_json(operation.spec_path, {"device": "cpu"})
    words = ["tunesmith_engine", "operation", rig.windows_path(operation.path)]
    code, output = rig.python(
        "-I", "-X", "utf8", start, *words, python=python, timeout_s=PATIENCE_S, KMP_AFFINITY="disabled"
    )
    assert code == 0, output[-5000:]
    proof = read_journal(operation.journal_path)[-1].data["answer"]
    states = {step["name"]: step["state"] for step in proof["steps"]}
    assert states.pop("gpu") == "skipped"
    assert set(states.values()) == {"ok"}, proof
    kernel = next(step for step in proof["steps"] if step["name"] == "triton_kernel")
    assert kernel["details"]["interpreted"]
    assert kernel["details"]["version"].startswith("3.2.0")
