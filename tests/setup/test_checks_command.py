"""`tunesmith doctor`: words, JSON and events; and the answer that somebody with a full GPU and broken folders gets."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.setup import breaking
from tests.setup.test_checks_host import sparse_cache
from tunesmith_core import paths
from tunesmith_core.environments import LAUNCHER_POINTER, TRAINING_POINTER
from tunesmith_core.machine import Disk, Driver, Gpu, GpuProcess, Machine, Wsl
from tunesmith_core.protocol import read_journal
from tunesmith_setup import checks, probe
from tunesmith_setup.checks.host import Leaks, Memory
from tunesmith_setup.commands import doctor
from tunesmith_setup.packages import inventory
from tunesmith_setup.progress import GIB

HEALTHY = Machine(system="linux", ram_total_bytes=32 * GIB, gpus=(), leaks={}, pythons=None)


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    return doctor.run(parser.parse_args(arguments))


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A computer and a list of checks without a fault."""
    monkeypatch.setattr(probe, "machine", lambda timeout_s: HEALTHY)
    monkeypatch.setattr(checks, "all_checks", lambda full: [Memory(), Leaks()])


@pytest.mark.usefixtures("healthy")
def test_a_healthy_computer_gets_a_short_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    output = capsys.readouterr().out
    assert "ok       Memory of the computer: 32.0 GiB of main memory." in output
    assert "No problems found (2 checks in" in output


@pytest.mark.usefixtures("healthy")
def test_programs_get_json_or_events(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run("--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert 0 <= answer["seconds"] < 600
    assert [finding["id"] for finding in answer["findings"]] == ["memory", "variables"]
    assert answer["machine"]["ram_total_bytes"] == 32 * GIB
    assert run("--operation", str(tmp_path)) == 0
    events = read_journal(tmp_path / "events.jsonl")
    assert [(event.data["id"], event.data["state"]) for event in events if event.type == "check"] == [
        ("memory", "waiting"),
        ("variables", "waiting"),
        ("memory", "checking"),
        ("memory", "ok"),
        ("variables", "checking"),
        ("variables", "ok"),
    ]


def test_faults_are_counted(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(probe, "machine", lambda timeout_s: HEALTHY)
    assert run("--full") == 3
    assert "Problems found: " in capsys.readouterr().out
    monkeypatch.setattr(checks, "all_checks", lambda full: [checks.EnvironmentPython(TRAINING_POINTER)])
    assert run() == 3
    said = capsys.readouterr().out
    assert "Problems found: 1 (" in said
    assert said.rstrip().endswith(". To install what is missing: tunesmith install --training-only")
    pointers = (LAUNCHER_POINTER, TRAINING_POINTER)
    monkeypatch.setattr(checks, "all_checks", lambda full: [checks.EnvironmentPython(each) for each in pointers])
    assert run() == 3
    assert capsys.readouterr().out.rstrip().endswith(". To install what is missing: tunesmith install")
    (home / "envs").mkdir()
    (home / "envs" / LAUNCHER_POINTER).write_text("launcher-1")
    assert run() == 3
    said = capsys.readouterr().out.rstrip()
    assert said.endswith("missing: tunesmith install --training-only\nTo repair the others: tunesmith repair")
    monkeypatch.setattr(checks, "all_checks", lambda full: [checks.EnvironmentPython(LAUNCHER_POINTER)])
    assert run() == 3
    assert capsys.readouterr().out.rstrip().endswith(". To repair them: tunesmith repair")


def crowded_machine() -> Machine:
    """A Windows computer whose only GPU is held by a browser and another training."""
    holders = (GpuProcess(pid=4711, name="chrome.exe"), GpuProcess(pid=815, name="python.exe", used_bytes=5 * GIB))
    rtx = Gpu(
        index=0,
        name="NVIDIA GeForce RTX 4060",
        compute_capability=(8, 9),
        total_bytes=8 * GIB,
        free_bytes=GIB,
        processes=holders,
    )
    return Machine(
        system="windows",
        ram_total_bytes=16 * GIB,
        commit_limit_bytes=40 * GIB,
        commit_used_bytes=20 * GIB,
        gpus=(rtx,),
        driver=Driver(version="560.94", cuda_version=(12, 6)),
        disks=(Disk(path="C:\\", kind="fixed"),),
        vc_runtime=(14, 42),
        long_paths=True,
        wsl=Wsl(state="not-installed"),
        leaks={"CUDA_PATH": "C:\\CUDA\\v11.8"},
        security=(),
        pythons=(),
    )


def test_out_of_memory_though_the_gpu_is_free(
    built_training: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Field report 4: folders with spaces and Chinese, broken environments, full caches, memory held by others.

    One command names each of them with its next step.
    """
    home = tmp_path / "我的 训练 环境"
    shutil.copytree(paths.data_root(), home, symlinks=True)
    monkeypatch.setenv("TUNESMITH_HOME", str(home))
    current = home / "envs" / built_training.name
    for name in ("train-cu124-old", "train-cu128-older"):
        shutil.copytree(current, home / "envs" / name, symlinks=True)
        (inventory.site_folders(home / "envs" / name)[0] / "torch" / "version.py").unlink()
    breaking.foreign_torch(current)
    flash = inventory.site_folders(current)[0] / "flash_attn-2.7.4.dist-info"
    flash.mkdir()
    (flash / "RECORD").write_text("flash_attn-2.7.4.dist-info/RECORD,,\n")
    sparse_cache(4 * GIB)
    monkeypatch.setattr(probe, "machine", lambda timeout_s: crowded_machine())
    assert run("--json") == 3
    answer = json.loads(capsys.readouterr().out)
    findings: dict[str, dict[str, Any]] = {finding["id"]: finding for finding in answer["findings"]}
    told = {name: f"{finding['message']} {finding['evidence']}" for name, finding in findings.items()}
    assert findings["folder"]["code"] == "path-non-ascii"
    assert "我的 训练 环境" in told["folder"]
    assert "2 broken and unused" in told["environments"]
    assert "train-cu124-old" in told["environments"]
    assert "4.0 GiB" in told["caches"]
    assert "Held by: chrome.exe, python.exe (5.0 GiB)" in told["gpu-memory"]
    assert "python.exe (pid 815): 5.0 GiB" in told["gpu-memory"]
    assert "torch/version.py" in told["training-files"]
    assert findings["libraries"]["code"] == "flash-attn-missing"
    assert "CUDA_PATH" in told["variables"]
    for name in ("folder", "environments", "caches", "gpu-memory", "training-files", "libraries"):
        assert findings[name]["fix"]["label"], f"{name} names no next step"
    assert answer["seconds"] < 30


def test_the_order_is_that_of_the_playbook() -> None:
    names = [check.id for check in checks.all_checks()]
    order = ["disk", "folder", "python", "training-files", "driver", "torch", "vc-runtime", "triton", "bitsandbytes"]
    places = [names.index(name) for name in [*order, "libraries", "leftovers"]]
    assert places == sorted(places)
    assert len(set(names)) == len(names)
