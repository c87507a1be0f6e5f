"""The command `explain`: a file or a stream in, the cause out, also on a bare Python."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tunesmith_core import settings
from tunesmith_core.machine import Machine
from tunesmith_setup import probe
from tunesmith_setup.__main__ import main

REPOSITORY = Path(__file__).resolve().parents[2]
OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(OOM, encoding="utf-8")
    return path


def answer(capfd: pytest.CaptureFixture[str]) -> dict[str, object]:
    found = json.loads(capfd.readouterr().out)
    assert set(found) == {"code", "confidence", "evidence", "fix", "actions"}
    return dict(found)


def test_a_file_as_json(log: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(log), "--json"]) == 0
    found = answer(capfd)
    assert (found["code"], found["confidence"]) == ("cuda-oom", "high")
    assert found["actions"] == ["lower-memory", "retry"]


def test_the_stream_of_standard_input(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("用户: 错误\n".encode("gbk") + OOM.encode())))
    assert main(["explain", "-", "--json"]) == 0
    assert answer(capfd)["code"] == "cuda-oom"


def test_words_for_a_person(log: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["explain", str(log)]) == 0
    out = capfd.readouterr().out
    assert out.startswith("Cause: The GPU memory is full (cuda-oom)\nEvidence: RuntimeError: CUDA out of memory.")
    assert "What helps: The GPU memory" in out
    monkeypatch.setattr(settings, "language_in_force", lambda: "zh_CN")
    assert main(["explain", str(log)]) == 0
    assert "解决办法：显存" in capfd.readouterr().out
    log.write_text("RuntimeError: the flux is inverted\n")
    assert main(["explain", str(log), "--language", "en"]) == 0
    assert capfd.readouterr().out.startswith("Cause not recognized.")
    log.write_text("all is well\n")
    assert main(["explain", str(log), "--language", "en"]) == 0
    assert capfd.readouterr().out.startswith("No error found in this log.")


def test_facts_of_a_file_and_of_this_computer(
    log: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_text(NO_CUDA)
    assert main(["explain", str(log), "--json"]) == 0
    assert answer(capfd)["code"] == "torch-cpu-build"
    machine = Machine(system="linux", gpus=())
    facts = log.with_name("facts.json")
    facts.write_text(json.dumps(machine.to_dict()), encoding="utf-16")
    assert main(["explain", str(log), "--json", "--facts", str(facts)]) == 0
    assert answer(capfd)["code"] == "driver-missing"
    monkeypatch.setattr(probe, "machine", lambda: machine)
    assert main(["explain", str(log), "--json", "--facts", "this"]) == 0
    assert answer(capfd)["code"] == "driver-missing"


@pytest.mark.parametrize(
    "words", [["missing.log"], ["train.log", "--facts", "missing.json"], ["train.log", "--facts", "bad.json"]]
)
def test_files_that_cannot_be_read(
    log: Path, words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(log.parent)
    Path("bad.json").write_text("[1]")
    assert main(["explain", *words]) == 2
    assert f"{words[-1]}:" in capfd.readouterr().err


def test_a_bare_python_is_enough() -> None:
    roots = [str(REPOSITORY / name) for name in ("installers", "engine", "assets")]
    code = (
        f"import sys; sys.path[:0] = {roots!r}\nfrom tunesmith_setup.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    )
    bare = [sys.executable, "-I", "-S", "-X", "importtime", "-c", code]
    done = subprocess.run([*bare, "explain", "-", "--json"], input=OOM.encode(), capture_output=True, check=True)
    assert json.loads(done.stdout)["code"] == "cuda-oom"
    loaded = done.stderr.decode()
    for heavy in (
        "subprocess",
        "asyncio",
        "urllib.request",
        "tunesmith_setup.probe",
        "tunesmith_setup.installation.install",
    ):
        assert f" {heavy}\n" not in loaded, heavy
