"""The flow of the installation: order, budget, one at a time, window or example."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.setup.conftest import RecordedProgress
from tunesmith_core import environments, files, paths, placement
from tunesmith_core.environments import PROOF
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.machine import Driver, Gpu, Machine
from tunesmith_core.protocol import read_journal
from tunesmith_core.setup_messages import Part, Plan
from tunesmith_setup import __main__ as command_line
from tunesmith_setup import probe
from tunesmith_setup.environments import envs, file_repair, kinds, profiles, proof
from tunesmith_setup.installation import demo, example_model, install
from tunesmith_setup.packages import inventory, system_libraries, uvtool
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter


class SilentUv(Uv):
    """Remembers which downloads were forgotten."""

    forgotten: list[str] = []  # noqa: RUF012

    def forget(self, packages: list[str]) -> None:
        self.forgotten[:] = packages


@pytest.fixture
def steps(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces every part that does something; returns the list of what was done."""
    done: list[str] = []
    monkeypatch.setattr(uvtool, "obtain", lambda _: SilentUv(Path("/nowhere/uv")))
    monkeypatch.setattr(system_libraries, "ensure", lambda _: done.append("system libraries"))
    monkeypatch.setattr(envs, "build", lambda environment, *_: done.append(environment.kind))
    monkeypatch.setattr(probe, "machine", lambda: Machine(system="linux", gpus=()))

    def model(*_: Any) -> Path:
        done.append("model")
        return paths.models_dir() / "tiny"

    monkeypatch.setattr(example_model, "ensure", model)
    monkeypatch.setattr(demo, "run", lambda model, _: done.append(f"demo {model.name}") or 0)
    monkeypatch.setattr(install, "open_window", lambda python: done.append(f"window {python.stem}") or 7)
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return done


def test_the_window_comes_first_and_asks_before_the_large_download(
    steps: list[str], progress: RecordedProgress, home: Path
) -> None:
    assert install.run(None, progress, demo_wanted=False) == 7
    assert steps == ["system libraries", "launcher", "window python"], "nothing that training needs"
    lines = [line.strip().replace(str(home), "HOME") for line in progress.lines]
    assert re.fullmatch(r"Disk space needed: \d+ MiB\. The download is smaller\.", lines.pop(3))
    assert [re.sub(r"\d+\.\d s", "TIME", " ".join(line.split())) for line in lines] == [
        "==> System libraries",
        "done in TIME",
        "Data folder: HOME",
        "==> Libraries of the window",
        "done in TIME",
        "",
        "System libraries TIME",
        "Libraries of the window TIME",
        "Total TIME",
        "Data folder 0 MiB HOME",
        "",
        "The window opens and sets up training with you. It asks before it downloads more.",
    ]


TOTALS = (r"Total {20,}\d+\.\d s", r"Data folder {17,}0 MiB  HOME")


def test_a_person_reads_every_part_its_time_and_the_sum(
    steps: list[str], progress: RecordedProgress, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: 300 * 1024**3)
    phases = ("System libraries", "Launcher environment", "Training environment", "Base model of the example")
    plan = (
        "No NVIDIA GPU: CPU, as requested",
        r"Libraries of the window: \d+ MiB to download, \d+ MiB on disk",
        r"Libraries for training: \d\.\d GiB to download, \d\.\d GiB on disk",
        "Base model of the example: 89 MiB to download, 262 MiB on disk",
        r"Temporary files, removed after the installation: \d+\.\d GiB on disk",
        "Folder: HOME",
        r"Needs at most \d+\.\d GiB, 300\.0 GiB are free",
        r"About \d+ min \d\d s",
    )

    def told(*, demo_wanted: bool) -> list[str]:
        for kept in (progress.lines, progress.timings):
            kept.clear()
        install.run("cpu", progress, demo_wanted=demo_wanted)
        return [line.strip().replace(str(home), "HOME") for line in progress.lines]

    for demo_wanted, names in ((False, phases), (True, (*phases, "Example"))):
        expected = ["==> This computer", f"Python: {re.escape(str(interpreters.choose().executable))}", *plan]
        expected.append(r"done in \d+\.\d s")
        for name in names:
            expected += [f"==> {name}", r"done in \d+\.\d s"]
        expected += ["", *(name + r" +\d+\.\d s" for name in ("This computer", *names)), *TOTALS]
        lines = told(demo_wanted=demo_wanted)
        assert len(lines) == len(expected)
        assert [line for line, pattern in zip(lines, expected, strict=True) if not re.fullmatch(pattern, line)] == []


def test_the_window_of_a_complete_installation_opens_without_a_word_on_downloads(
    steps: list[str], progress: RecordedProgress, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(envs.Environment, "required_bytes", lambda _: 0)
    (home / "envs").mkdir()
    (home / "envs" / environments.TRAINING_POINTER).write_text("train")
    assert install.run(None, progress, demo_wanted=False) == 7
    assert steps == ["system libraries", "launcher", "window python"]
    assert "Disk space needed" not in progress.text
    assert "downloads" not in progress.text


def test_a_profile_that_was_named_is_installed_before_the_window_opens(
    steps: list[str], progress: RecordedProgress, home: Path
) -> None:
    assert install.run("cpu", progress, demo_wanted=False) == 7
    assert steps == ["system libraries", "launcher", "train-cpu", "model", "window python"]
    assert "No NVIDIA GPU: CPU" in progress.text
    assert f"Folder: {home}" in progress.text
    assert progress.lines[-1].startswith("Data folder")
    assert "torch" in SilentUv.forgotten
    assert "numpy" not in SilentUv.forgotten


def test_the_example_runs_where_it_is_wanted(steps: list[str], progress: RecordedProgress) -> None:
    assert install.run("cu124", progress, demo_wanted=True) == 0
    assert steps == ["system libraries", "launcher", "train-cu124", "model", "demo tiny"]


def test_a_driver_that_must_be_renewed_stops_until_the_person_decides(
    steps: list[str], progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(index=0, name="NVIDIA GeForce GTX 1080", compute_capability=(6, 1))
    old = Machine(system="linux", gpus=(gpu,), driver=Driver(version="470.82.01"))
    monkeypatch.setattr(probe, "machine", lambda: old)
    with pytest.raises(EnvironmentProblem, match=r"GTX 1080, driver 470: CUDA 12\.4 needs driver 525\.60") as caught:
        install.run(None, progress, demo_wanted=True)
    assert caught.value.code == "driver-too-old"
    assert caught.value.hint.endswith("--profile cpu")
    assert steps == []
    assert install.run("cpu", progress, demo_wanted=True) == 0
    assert "train-cpu" in steps
    monkeypatch.setattr(probe, "machine", lambda: replace(old, driver=Driver(version="552.44")))
    assert install.run(None, progress, demo_wanted=True) == 0
    assert "warning: No Triton kernels for GTX 1080" in progress.text


def test_the_example_runs_where_there_is_no_display(
    steps: list[str], progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY")
    install.run(None, progress, demo_wanted=False)
    assert steps[-1] == "demo tiny"
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert install.has_display()


def test_missing_libraries_stop_the_window_but_not_the_example(
    steps: list[str], progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(_: RecordedProgress) -> None:
        raise EnvironmentProblem("system-library-missing", "Missing: libEGL.so.1.", hint="Run: sudo apt-get install x")

    monkeypatch.setattr(system_libraries, "ensure", ensure)
    for profile in (None, "cpu"):
        with pytest.raises(EnvironmentProblem, match=r"libEGL\.so\.1"):
            install.run(profile, progress, demo_wanted=False)
    assert steps == []
    assert install.run(None, progress, demo_wanted=True) == 0
    assert "For the window: Run: sudo apt-get install x" in progress.text


def test_a_full_disk_is_told_first(
    steps: list[str], home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: 3 * 1024**3)
    with pytest.raises(EnvironmentProblem, match=r"are needed, 3\.0 GiB are free") as caught:
        install.run(None, progress, demo_wanted=True)
    assert caught.value.code == "disk-full"
    assert steps == []
    assert re.search(r"Libraries for training: 3\.[01] GiB to download, 5\.[567] GiB on disk", progress.text)
    assert list(home.iterdir()) == [], "nothing is written before the plan was shown"


def test_just_enough_room_is_enough() -> None:
    plan = Plan((Part("all", 1, 5),), "/data", 5, 1, "cpu", "CPU")
    install.check_room(plan)
    with pytest.raises(EnvironmentProblem, match=r"^/data: 0 MiB are needed, 0 MiB are free\.$"):
        install.check_room(replace(plan, free_bytes=4))


def test_where_environments_go_is_decided_before_anything_is_written(
    steps: list[str], home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(root: Path, tell: object) -> None:
        assert tell == progress.note
        steps.append(f"folder {root.name}")

    monkeypatch.setattr(placement, "record_work_folder", record)
    install.run(None, progress, demo_wanted=False)
    install.run("cpu", progress, demo_wanted=True)
    first = ["folder home", "system libraries", "launcher"]
    assert steps == [*first, "window python", *first, "train-cpu", "model", "demo tiny"]


def test_the_plan_is_shown_and_nothing_is_written(
    steps: list[str], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["install", "--plan", "--profile", "cu124", "--operation", str(tmp_path)]) == 0
    events = read_journal(tmp_path / "events.jsonl")
    (plan,) = (event.data for event in events if event.type == "plan")
    assert events[-1].data == {"status": "finished", "exit_code": 0, "answer": None}
    parts = {part["name"]: (part["download_bytes"], part["disk_bytes"]) for part in plan["parts"]}
    assert list(parts) == [
        "Libraries of the window",
        "Libraries for training",
        "Base model of the example",
        "Temporary files, removed after the installation",
    ]
    assert 3e9 < parts["Libraries for training"][0] < 3.5e9 < 5e9 < parts["Libraries for training"][1]
    assert parts["Temporary files, removed after the installation"][0] == 0
    assert (plan["profile"], plan["folder"]) == ("cu124", str(home))
    assert plan["seconds"] > 300
    assert command_line.main(["install", "--plan", "--json", "--training-only", "--profile", "cu124"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [part["name"] for part in told["parts"]] == list(parts)[1:]
    assert steps == []
    assert list(home.iterdir()) == []


def test_the_window_can_have_training_installed_alone(steps: list[str], tmp_path: Path) -> None:
    assert command_line.main(["install", "--training-only", "--profile", "cpu", "--operation", str(tmp_path)]) == 0
    assert steps == ["train-cpu", "model"]
    phases = [event.data["name"] for event in read_journal(tmp_path / "events.jsonl") if "state" in event.data]
    assert list(dict.fromkeys(phases)) == ["This computer", "Training environment", "Base model of the example"]


def seal(environment: envs.Environment, **contents: str) -> None:
    """Make a complete environment of tiny files."""
    python = environments.environment_python(environment.folder)
    site = environment.folder / "lib" / "python3.11" / "site-packages"
    for path in (python, *(site / f"{name}.py" for name in contents)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents.get(path.stem, "#!/bin/sh\n"))
    inventory.seal(environment.folder, {"name": environment.name})


def test_what_is_complete_needs_no_room(
    home: Path, interpreter: Interpreter, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "machine", lambda: Machine(system="linux", gpus=()))
    parts = install.wanted(None, progress, training_only=True)
    fresh = parts.plan()
    parts_s = [part.download_bytes / 10_000_000 + part.disk_bytes / 100_000_000 for part in fresh.parts]
    assert fresh.seconds == round(sum(parts_s) + 60), "a minute for the proof"
    assert fresh.disk_bytes > 0
    seal(parts.training)
    assert parts.plan().seconds == round(example_model.INSTALLED_BYTES / 1e8 + 9.29 + 1.96 + 60)
    files.atomic_write_json(parts.training.folder / PROOF, {"state": "ok"})
    (paths.models_dir() / example_model.NAME).mkdir(parents=True)
    plan = parts.plan()
    assert (plan.disk_bytes, plan.seconds) == (0, 0)
    assert [part.disk_bytes for part in plan.parts] == [0, 0]


def test_damaged_files_are_mended_where_they_can_be(
    home: Path, interpreter: Interpreter, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[bool] = []
    monkeypatch.setattr(envs, "build", lambda environment, *_: built.append(environment.is_complete()))
    training = kinds.training_environment(interpreter, profiles.PROFILES["cpu"])
    seal(training, module="x = 1\n")
    uv = SilentUv(Path("/nowhere/uv"))
    install.bring(training, uv, progress)
    assert "damaged" not in progress.text
    site = training.folder / "lib" / "python3.11" / "site-packages"
    (site / "stray.pth").write_text("import os\n")
    install.bring(training, uv, progress)
    assert "files are damaged, missing or unknown (1)" in progress.text
    assert not (site / "stray.pth").exists()
    (site / "module.py").unlink()
    with monkeypatch.context() as context:
        context.setattr(envs, "has_live_run", lambda: True)
        context.setattr(file_repair.FileRepair, "run", lambda self: [self])
        with pytest.raises(EnvironmentProblem, match="a run is using it"):
            install.bring(training, uv, progress)
        context.setattr(envs, "has_live_run", lambda: False)
        install.bring(training, uv, progress)
    assert built == [True, True, False], "what can't be mended is built again"


def test_a_proof_can_be_asked_for(
    home: Path, interpreter: Interpreter, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "prove", lambda folder, device, _: {"folder": folder.name, "device": device})
    training = kinds.training_environment(interpreter, profiles.PROFILES["cu124"])
    assert install.prove(training, progress) == {"folder": training.name, "device": "cuda"}
    launcher = kinds.launcher_environment(interpreter)
    assert install.prove(launcher, progress)["device"] == "auto"


def test_a_data_root_that_can_not_be_made_is_refused(
    home: Path, tmp_path: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path / "file" / "root"))
    with pytest.raises(EnvironmentProblem, match="can't be written") as caught:
        install.prepare_folder(progress)
    assert caught.value.code == "permission-or-antivirus"
    assert "TUNESMITH_HOME" in caught.value.hint


def test_a_profile_without_a_lock_is_refused(
    home: Path, tmp_path: Path, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "LOCKS", tmp_path)
    with pytest.raises(EnvironmentProblem, match="cu128 is not available"):
        kinds.training_environment(interpreter, profiles.PROFILES["cu128"])


def test_every_profile_has_locks_for_every_supported_python() -> None:
    for minor in (11, 12, 13):
        python = Interpreter(Path("python"), (3, minor))
        assert kinds.launcher_environment(python).locks[0].is_file()
        for profile in profiles.PROFILES.values():
            assert kinds.training_environment(python, profile).locks[0].is_file()


def test_two_installers_work_one_after_the_other(
    home: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    waiting, freed = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        waiting.set()
        freed.wait(10)

    monkeypatch.setattr(install.time, "sleep", sleep)

    def second() -> None:
        with kinds.only_one(progress):
            order.append("second")

    with kinds.only_one(RecordedProgress()):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    freed.set()
    thread.join(10)
    assert "Waiting for it to finish" in progress.text
    assert order == ["first", "second"]


def test_the_window_is_started_by_the_launchers_python(tmp_path: Path) -> None:
    started = tmp_path / "started"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" > {started}\nexit 3\n')
    python.chmod(0o755)
    assert install.open_window(python) == 3
    assert started.read_text().split() == environments.module_command(python, "tunesmith_gui")[1:]
