"""The proof in a child process: its record, the name of the cause, and what happens when it dies or hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.setup.conftest import RecordedProgress, script
from tunesmith_core import paths
from tunesmith_core.environments import PROOF, environment_python
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.machine import Driver, Machine
from tunesmith_setup.environments import proof

ENGINE = Path(proof.conduct.__code__.co_filename).parents[2]
STEPS = (
    f"sys.path.insert(0, {str(ENGINE)!r})"
    + """
import json, time
from pathlib import Path
from tunesmith_core.protocol import JournalWriter
folder = Path(args[-1])
journal = JournalWriter(folder / "events.jsonl")
def step(name, state, required=True, **more):
    return {"name": name, "title": f"Do {name}", "required": required, "state": state, **more}
def tell(*steps, **more):
    for each in steps:
        journal.write("check", **each)
    if more:
        device = json.loads((folder / "spec.json").read_text())["device"]
        answer = {"version": 1, "device": device, "steps": steps, **more}
        if "error" in more:
            journal.write("error", **more["error"])
        journal.write("result", status="failed" if "error" in more else "finished", exit_code=0, answer=answer)
imports = step("imports", "ok", seconds=1.5, details={"versions": {"torch": "2.6.0"}})
"""
)
GOOD = """
gpu = step("gpu", "ok", details={"gpus": [{"name": "RTX 3060"}]})
error = {"code": "triton-not-installed", "kind": "EnvironmentProblem", "message": "No module named 'triton'"}
triton = step("triton_kernel", "failed", required=False, error=error)
four_bit = step("four_bit", "skipped", details={"reason": "nothing to do"})
tell(imports, gpu, triton, four_bit, state="ok", fused_kernels=False, seconds=3.5)
"""

Environment = Callable[[str], Path]


@pytest.fixture
def environment(home: Path, tmp_path: Path) -> Environment:
    """Make an environment whose Python is a script that plays the selftest."""

    def make(body: str) -> Path:
        folder = tmp_path / "environment"
        script(environment_python(folder), STEPS + body)
        return folder

    return make


def test_a_proof_is_shown_and_kept(
    environment: Environment, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "this_machine", lambda: Machine(system="linux", driver=Driver(version="552.44")))
    folder = environment(GOOD)
    assert proof.read(folder) is None
    assert not proof.is_proven(folder)
    record = proof.prove(folder, "cuda", progress)
    assert proof.is_proven(folder)
    assert proof.read(folder) == record
    assert (record["state"], record["device"], record["seconds"], record["error"]) == ("ok", "cuda", 3.5, None)
    assert record["version"] == 1
    assert abs(time.time() - record["proven_at"]) < 60
    assert record["versions"] == {"torch": "2.6.0"}
    assert record["gpus"] == [{"name": "RTX 3060"}]
    assert record["driver"] == "552.44"
    assert record["fused_kernels"] is False
    assert [(step["id"], step["name"], step["ok"]) for step in record["steps"]] == [
        ("imports", "Do imports", True),
        ("gpu", "Do gpu", True),
        ("triton_kernel", "Do triton_kernel", False),
        ("four_bit", "Do four_bit", True),
    ]
    first, second, third, _ = record["steps"]
    assert (first["state"], first["seconds"], first["details"]) == ("ok", 1.5, {"versions": {"torch": "2.6.0"}})
    assert second.keys() == {"id", "name", "ok", "state", "details"}
    assert third["error"]["code"] == "triton-not-installed"
    assert [line.strip() for line in progress.lines] == [
        "ok       Do imports",
        "ok       Do gpu",
        "warning  Do triton_kernel: No module named 'triton' [triton-not-installed]",
        "ok       Do four_bit: nothing to do",
    ]
    assert not list((paths.tmp_dir() / "operations").glob("*"))


FAILED = """
error = {"code": "torch-cpu-build", "kind": "EnvironmentProblem", "message": "built without CUDA", "hint": "Repair."}
tell(imports, step("gpu", "failed", error=error), step("rest", "waiting"), state="failed", error=error)
sys.exit(3)
"""


def test_a_failed_step_raises_its_cause(environment: Environment, progress: RecordedProgress) -> None:
    folder = environment(FAILED)
    with pytest.raises(EnvironmentProblem, match="built without CUDA") as caught:
        proof.prove(folder, "cuda", progress)
    assert caught.value.code == "torch-cpu-build"
    record = proof.read(folder)
    assert record is not None
    assert (record["state"], record["error"]["code"]) == ("failed", "torch-cpu-build")
    assert not proof.is_proven(folder)
    assert "failed   Do gpu: built without CUDA [torch-cpu-build]" in progress.text


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            "tell(imports, step('gpu', 'checking')); os.kill(os.getpid(), 9)",
            "engine-crashed",
            "-9, at this step: Do gpu",
        ),
        (
            "sys.exit('RuntimeError: CUDA error: no kernel image is available for execution on the device')",
            "no-kernel-image-for-arch",
            "exit code 1, at this step: Start",
        ),
        ("tell(imports)", "engine-crashed", "exit code 0"),
    ],
)
def test_a_proof_that_dies_is_explained_by_its_last_words(
    environment: Environment, progress: RecordedProgress, body: str, code: str, message: str
) -> None:
    folder = environment(body)
    with pytest.raises(EnvironmentProblem, match=message) as caught:
        proof.prove(folder, "cuda", progress)
    assert caught.value.code == code
    record: dict[str, Any] | None = proof.read(folder)
    assert record is not None
    assert record["state"] == "failed"


def test_a_proof_that_hangs_is_unknown_and_not_broken(environment: Environment, progress: RecordedProgress) -> None:
    folder = environment("tell(imports, step('gpu', 'checking')); time.sleep(600)")
    with pytest.raises(TunesmithError, match="took too long") as caught:
        proof.prove(folder, "cuda", progress, limit_s=3.0)
    assert caught.value.code == "engine-hung"
    assert "continues with the test" in caught.value.hint
    record = proof.read(folder)
    assert record is not None
    assert record["state"] == "unknown"


def test_a_record_that_is_none_counts_as_none(tmp_path: Path) -> None:
    for text in ("", "[1]", '{"state": "failed"}'):
        (tmp_path / PROOF).write_text(text)
        assert not proof.is_proven(tmp_path)
