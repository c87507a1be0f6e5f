"""A real training run inside a distribution of the stub: same run file, same journal, results on this side."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.real_runs import example_model, point_at_training_environment, training_environment
from tests.tiny_model import build_tiny_model
from tests.wsl_stub import add_distribution, install_stub
from tunesmith_core import launch
from tunesmith_core.runs import RunState
from tunesmith_core.spec import RunSpec
from tunesmith_core.wsl.guest import Guest
from tunesmith_setup import __main__ as setup
from tunesmith_setup.installation import wsl_install


def test_a_real_run_inside(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_stub(tmp_path / "system32")
    root = add_distribution(tmp_path / "system32", "Ubuntu-24.04")
    inside = root / "home" / "user" / ".local" / "share" / "tunesmith"
    inside.mkdir(parents=True)
    point_at_training_environment(inside)
    monkeypatch.setenv("PATH", f"{tmp_path / 'system32'}{os.pathsep}{os.environ['PATH']}")
    Guest("Ubuntu-24.04", "python3").save()
    folder = tmp_path / "数据 mit Ä"
    folder.mkdir()
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]
    (folder / "rows.jsonl").write_text((json.dumps({"messages": turns}) + "\n") * 8)
    spec = RunSpec(name="inside")
    spec.model.path = str(build_tiny_model(folder / "model"))
    spec.data.sources[0].path = str(folder / "rows.jsonl")
    spec.hardware.devices, spec.hardware.system = ["cpu"], "wsl"
    spec.schedule.max_steps = 4
    spec.saving.every_steps = 2
    run = launch.start(spec)
    status = launch.wait(run)
    assert status.state is RunState.FINISHED, run.engine_log_path.read_text()
    assert status.step == 4
    assert (run.adapter_path / "adapter_model.safetensors").stat().st_size > 0
    assert launch.has_checkpoint(run)
    assert list((inside / "tmp" / "twins").iterdir()) == []


def test_the_real_installer_sets_training_up_inside(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing has to be fetched: environment and example model lie inside already, as after an interrupted set-up."""
    install_stub(tmp_path / "system32")
    root = add_distribution(tmp_path / "system32", "Ubuntu-24.04")
    monkeypatch.setenv("PATH", f"{tmp_path / 'system32'}{os.pathsep}{os.environ['PATH']}")
    inside = root / "home" / "user" / ".local" / "share" / "tunesmith"
    for there in (training_environment(), example_model()):
        folder = inside / ("envs" if there == training_environment() else "models")
        folder.mkdir(parents=True)
        (folder / there.name).symlink_to(there)
    uv = shutil.which("uv")
    assert uv
    (root / "bin" / "uv").symlink_to(uv)
    monkeypatch.setattr(wsl_install, "has_compiler", lambda _name: True)
    assert setup.main(["wsl", "install", "--yes", "--profile", "cpu"]) == 0, capfd.readouterr()
    assert (inside / "envs" / "train.current").read_text().strip() == training_environment().name
    assert "Runs can train inside Ubuntu-24.04" in capfd.readouterr().out
    assert setup.main(["wsl", "status"]) == 0
    capfd.readouterr()
