"""The service between pages and installer: order of commands, what is learned, cancelling, closing, files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.environment.conftest import Installer
from tunesmith_core import environments, paths
from tunesmith_core.machine import Machine
from tunesmith_gui.environment import installed as installed_environment
from tunesmith_gui.environment.places import look_at, move_to
from tunesmith_gui.environment.setup_activity import Activity, Command, Stage
from tunesmith_gui.environment.setup_service import SetupService
from tunesmith_setup.__main__ import parse

RESULT = {"type": "result", "status": "finished", "exit_code": 0}
GOOD = {"type": "check", "id": "disk", "title": "Disk", "state": "ok", "message": "fine"}
BAD = {"type": "check", "id": "network", "title": "Network", "state": "failed", "message": "no way out"}


def settled(qtbot: QtBot, service: SetupService) -> None:
    """Waits until nothing goes on."""
    qtbot.waitUntil(lambda: service._task is None and not service._waiting, timeout=15_000)


def test_a_look_reads_files_asks_the_computer_and_checks(
    qtbot: QtBot, installer: Installer, service: SetupService
) -> None:
    installer.say("doctor", GOOD, BAD, {"type": "result", "status": "finished", "exit_code": 3}, exit=3)
    with qtbot.waitSignal(service.changed, timeout=15_000):
        service.look()
    settled(qtbot, service)
    assert installer.asked == ["probe", "doctor"]
    model = service.model
    assert model.machine is not None
    assert [check.state for check in model.checks.values()] == ["ok", "failed"]
    assert model.offline, "the check of the network says so"
    qtbot.waitUntil(lambda: model.installed is not None, timeout=15_000)
    assert model.installed is not None
    assert model.installed.problem is not None


def test_what_changes_something_goes_first_and_is_checked_afterwards(
    qtbot: QtBot, installer: Installer, service: SetupService
) -> None:
    installer.say("doctor", GOOD, hang=True)
    installer.say("repair", GOOD, RESULT)
    ended: list[Activity] = []
    service.ended.connect(ended.append)
    service.check()
    qtbot.waitUntil(lambda: bool(service.model.checks), timeout=15_000)
    service.plan()
    installer.say("doctor", GOOD, RESULT)
    service.repair("disk", "Free disk space")
    settled(qtbot, service)
    assert installer.asked == ["doctor", "repair --yes --check disk", "doctor"]
    assert [(each.command, each.stage) for each in ended] == [
        (Command.CHECK, Stage.CANCELLED),
        (Command.REPAIR, Stage.DONE),
        (Command.CHECK, Stage.DONE),
    ]


def test_nothing_starts_while_something_is_changed(qtbot: QtBot, installer: Installer, service: SetupService) -> None:
    installer.say("install", GOOD, hang=True)
    service.install("cu124")
    qtbot.waitUntil(lambda: service.model.changing and bool(service.model.checks), timeout=15_000)
    service.check()
    service.roll_back()
    assert service._waiting == []
    service.cancel()
    assert service.model.activity is not None
    assert service.model.activity.cancelling
    settled(qtbot, service)
    assert installer.asked == ["install --training-only --profile cu124", "doctor"]


def test_an_unreachable_index_is_remembered_until_a_command_gets_through(
    qtbot: QtBot, installer: Installer, service: SetupService
) -> None:
    error = {"type": "error", "code": "hub-offline", "kind": "EnvironmentProblem", "message": "no network"}
    installer.say("install", error, {"type": "result", "status": "failed", "exit_code": 3}, exit=3)
    service.install()
    settled(qtbot, service)
    assert service.model.offline
    assert service.model.activity is not None
    assert service.model.activity.error is not None, "no check has taken its place"
    assert installer.asked == ["install --training-only"]
    installer.say("doctor", GOOD, RESULT)
    service.check()
    settled(qtbot, service)
    assert not service.model.offline


def test_an_answer_that_is_no_machine_is_a_problem_of_the_probe(
    qtbot: QtBot, installer: Installer, service: SetupService
) -> None:
    installer.say("probe", {"type": "result", "status": "finished", "answer": [1, 2]})
    service.probe()
    settled(qtbot, service)
    assert service.model.machine is None
    assert service.model.machine_problem is not None
    answer = Machine(system="linux").to_dict()
    installer.say("probe", {"type": "result", "status": "finished", "answer": answer}, stderr="a warning")
    service.probe()
    settled(qtbot, service)
    assert service.model.machine_problem is None
    assert service.model.machine == Machine(system="linux")


def test_every_order_has_its_command_line(qtbot: QtBot, installer: Installer, service: SetupService) -> None:
    for order in (service.plan, service.roll_back, service.set_up_wsl, lambda: service.check(full=True)):
        order()
        settled(qtbot, service)
    asked = [line for line in installer.asked if line != "doctor"]
    assert asked == [
        "install --plan --training-only",
        "rollback",
        "wsl install --yes",
        "doctor --full",
    ]
    service.install("cpu")
    service.repair("disk")
    for line in (*asked, *installer.asked, "install --training-only --profile cpu"):
        assert parse(line.split()).rest == [], "the real installer knows these arguments"
    settled(qtbot, service)


def test_a_closing_window_ends_the_command_and_starts_no_other(
    qtbot: QtBot, installer: Installer, service: SetupService
) -> None:
    installer.say("doctor", GOOD, hang=True, ignore_end=True)
    service.check()
    service.plan()
    qtbot.waitUntil(lambda: bool(service.model.checks), timeout=15_000)
    service.shutdown()
    service.check()
    assert service._task is None
    assert installer.asked == ["doctor"]


def test_files_of_an_environment_are_read_as_far_as_they_can_be(home: Path) -> None:
    assert installed_environment.read_installed().problem is not None
    folder = home / "envs" / "train-cu124-x"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    (home / "envs" / "train.current").write_text("train-cu124-x\n")
    (home / "envs" / "train.previous").write_text("train-cu124-x\n")
    assert installed_environment.read_installed().profile == ""
    (folder / "tunesmith-environment.json").write_text('{"kind": "train-cu124", "built_at": 5.5}')
    proof = {
        "proven_at": 7,
        "versions": {"torch": "2.6"},
        "gpus": [{"name": "RTX"}, {"name": "GTX"}],
        "steps": [{"name": "Import", "ok": True, "seconds": 1.5}, {"id": "gpu", "ok": False}, {"state": "skipped"}, 3],
    }
    (folder / "proof.json").write_text(json.dumps(proof))
    found = installed_environment.read_installed()
    assert (found.profile, found.built_at, found.previous) == ("cu124", 5.5, "train-cu124-x")
    assert found.proof is not None
    assert (found.proof.gpu, found.proof.proven_at) == ("RTX, GTX", 7)
    assert found.proof.steps == (("Import", True, 1.5), ("gpu", False, None))
    (folder / "proof.json").write_text("[]")
    assert installed_environment.read_installed().proof is None


def test_room_is_added_up_by_parts(home: Path) -> None:
    assert installed_environment.read_disk() == ()
    for name, size in (("runs/a/x", 5), ("cache/tc/k", 3), ("cache/uv/w", 7), ("models/m/w", 11)):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_bytes(bytes(size))
    found = {use.key: (use.num_bytes, use.can_free) for use in installed_environment.read_disk()}
    assert found == {"models": (11, False), "downloads": (7, False), "runs": (5, False), "compiled": (3, True)}


@pytest.mark.skipif(os.name == "nt", reason="links need extra rights on Windows")
def test_a_linked_model_takes_no_room_here(home: Path, tmp_path: Path) -> None:
    (home / "models").mkdir()
    (home / "models" / "linked").symlink_to(tmp_path, target_is_directory=True)
    assert installed_environment.read_disk() == ()


def default_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets nobody have chosen a folder; the default one lies below tmp_path."""
    monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_DATA_HOME", str(tmp_path / "local"))
    return paths.default_root()


def test_a_chosen_folder_gets_settings_and_the_window_and_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = default_root(tmp_path, monkeypatch)
    for name in ("envs/launcher-1/bin/python", "config/settings.json"):
        (first / name).parent.mkdir(parents=True)
        (first / name).write_text("x")
    (first / "envs" / "launcher.current").write_text("launcher-1\n")
    chosen = tmp_path / "模型 and more"
    move_to(chosen)
    move_to(chosen)
    assert paths.data_root() == chosen
    assert (chosen / "config" / "settings.json").read_text() == "x"
    assert environments.launcher_python().parents[1] == paths.envs_dir() / "launcher-1"
    assert look_at(chosen).can_change, "nothing of the person's is there yet"
    (chosen / "runs" / "one").mkdir(parents=True)
    assert "can't be changed" in look_at(chosen).note
    (chosen / "file").touch()
    with pytest.raises(FileExistsError):
        move_to(chosen / "file")
    assert paths.data_root() == chosen


def test_folders_are_judged_without_touching_them(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del home
    good = look_at(tmp_path / "new" / "place")
    assert good.problem == ""
    assert not good.can_change
    assert "TUNESMITH_HOME" in good.note
    assert not (tmp_path / "new").exists()
    default_root(tmp_path, monkeypatch)
    assert look_at(tmp_path).can_change
    assert "belongs to the operating system" in look_at(Path("/usr/lib/x")).problem
    assert "synchronized" in look_at(tmp_path / "OneDrive" / "x").problem
    (tmp_path / "file").touch()
    assert "Can't write to" in look_at(tmp_path / "file" / "below").problem
    assert "short folder" in look_at(tmp_path / "a b", Machine(system="windows")).note
