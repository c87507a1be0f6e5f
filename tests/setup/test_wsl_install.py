"""Setting the subsystem up against a stub of wsl.exe: what is missing is found, asked, done and checked."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tests.wsl_stub import add_distribution, install_stub, read_state, write_state
from tunesmith_core.bounded import Output
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.machine import WslDistribution
from tunesmith_core.messages import Message
from tunesmith_core.operations.folder import Operation
from tunesmith_core.wsl import client
from tunesmith_core.wsl.guest import Guest
from tunesmith_setup import __main__ as command_line
from tunesmith_setup.commands import wsl as command
from tunesmith_setup.installation import wsl_install
from tunesmith_setup.installation.wsl_install import Step
from tunesmith_setup.progress import EventProgress, Progress

NAME = "Ubuntu-24.04"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "system32"
    install_stub(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def write_program(root: Path, name: str, script: str) -> None:
    (root / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")
    (root / "bin" / name).chmod(0o755)


def install_compiler(root: Path) -> None:
    write_program(root, "sh", "exit 0")


def agreeing(asked: list[str]) -> wsl_install.Consent:
    def consent(step: Step) -> bool:
        asked.append(step.id)
        return True

    return consent


def test_a_windows_without_the_subsystem_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=r"no wsl\.exe"):
        wsl_install.next_step(None)


def test_a_subsystem_that_can_not_work_is_explained(stub: Path) -> None:
    write_state(stub, read_state(stub) | {"fails": "0x80370102"})
    with pytest.raises(EnvironmentProblem) as caught:
        wsl_install.next_step(None)
    assert "firmware" in caught.value.hint


def test_a_switched_off_feature_is_switched_on_first(stub: Path) -> None:
    write_state(stub, read_state(stub) | {"fails": "0x8007019e"})
    step = wsl_install.next_step(None)
    assert step is not None
    assert step.id == "subsystem"
    assert step.elevated
    assert step.restart


def test_after_installing_the_subsystem_a_restart_is_due(
    stub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wsl_install, "distributions", lambda: None)
    with pytest.raises(EnvironmentProblem) as caught:
        wsl_install.prepare(None, agreeing([]), Progress())
    assert "restarted" in caught.value.message
    assert "continues from here" in caught.value.hint
    assert "administrator" in capsys.readouterr().out


def test_a_computer_without_a_distribution_gets_one(
    stub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wsl_install, "has_compiler", lambda _name: True)
    add_distribution(stub, "docker-desktop")
    asked: list[str] = []
    assert wsl_install.prepare(None, agreeing(asked), Progress()).distribution == NAME
    assert asked == ["distribution"]
    assert "Download the distribution" in capsys.readouterr().out


def test_a_step_that_fails_is_told_with_its_text(
    stub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = add_distribution(stub, NAME)
    write_program(root, "sh", "echo E: no network; exit 100")
    with pytest.raises(EnvironmentProblem) as caught:
        wsl_install.prepare(None, agreeing([]), Progress())
    assert "no network" in (caught.value.context or "")
    capsys.readouterr()


def test_version_1_is_converted(stub: Path) -> None:
    add_distribution(stub, "Debian", version=1)
    step = wsl_install.next_step(None)
    assert step is not None
    assert (step.id, step.command) == ("version", ("wsl.exe", "--set-version", "Debian", "2"))


def test_a_missing_compiler_is_installed_as_root(stub: Path) -> None:
    root = add_distribution(stub, NAME)
    write_program(root, "sh", "exit 1")
    step = wsl_install.next_step(None)
    assert step is not None
    assert step.id == "packages"
    assert step.command[:5] == ("wsl.exe", "-d", NAME, "-u", "root")
    assert "gcc" in step.command[-1]


def test_nothing_is_missing(stub: Path) -> None:
    install_compiler(add_distribution(stub, NAME))
    assert wsl_install.next_step(None) is None
    guest = wsl_install.prepare(None, agreeing([]), Progress())
    assert guest.distribution == NAME
    assert guest.python == wsl_install.find_python(NAME)
    assert Path(guest.python).name.startswith("python")


def test_only_a_step_for_administrators_asks_windows_for_one(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wsl_install, "_elevated", lambda command: ["as-administrator", *command])
    run: list[list[str]] = []

    def answer(command: list[str], timeout_s: float) -> Output:
        run.append(command)
        return Output(0, b"")

    monkeypatch.setattr(wsl_install.client, "run", answer)
    for elevated in (True, False):
        wsl_install._run(Step("subsystem", Message("Words"), ("wsl.exe", "--install"), elevated=elevated))
    program = wsl_install.client.program()
    assert run == [["as-administrator", program, "--install"], [program, "--install"]]


def test_each_step_says_what_it_does_and_whether_it_needs_an_administrator_or_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wsl_install.client, "program", lambda: "wsl.exe")
    monkeypatch.setattr(wsl_install, "find_python", lambda _name: "python3.12")
    monkeypatch.setattr(wsl_install, "has_compiler", lambda _name: False)

    def step(found: tuple[WslDistribution, ...] | None, wanted: str | None = None) -> tuple[object, ...]:
        monkeypatch.setattr(wsl_install, "distributions", lambda: found)
        step = wsl_install.next_step(wanted)
        assert step is not None
        return step.id, step.words.partition(".")[0], step.command, step.elevated, step.restart

    words = "Install the Windows Subsystem for Linux"
    assert step(None) == ("subsystem", words, ("wsl.exe", "--install", "--no-distribution"), True, True)
    for wanted, name in ((None, NAME), ("Debian", "Debian")):
        words = f"Download the distribution {name} (about 0.6 GB) and install it for this user.".partition(".")[0]
        command = ("wsl.exe", "--install", "-d", name, "--no-launch")
        assert step((), wanted) == ("distribution", words, command, False, False)
    words = "Convert Debian to WSL 2, because WSL 1 can't use a GPU"
    old = WslDistribution(name="Debian", version=1)
    assert step((old,)) == ("version", words, ("wsl.exe", "--set-version", "Debian", "2"), False, False)
    name, words, command, *rights = step((WslDistribution(name="Debian", version=2),))
    packages = "python3, python3-venv, python3-pip, python3-dev, gcc, libc6-dev"
    assert (name, words, rights) == ("packages", f"Install inside Debian, as administrator: {packages}", [False, False])
    script = f"apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y {packages.replace(',', '')}"
    assert command == ("wsl.exe", "-d", "Debian", "-u", "root", "--cd", "~", "--exec", "sh", "-c", script)
    monkeypatch.setattr(wsl_install, "has_compiler", lambda _name: True)
    monkeypatch.setattr(wsl_install, "find_python", lambda _name: None)
    assert step((WslDistribution(name="Debian", version=2),))[0] == "packages"


@pytest.mark.parametrize(("code", "fails"), [(0, False), (1, True), (-1, True)])
def test_a_reason_counts_where_the_call_failed(code: int, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "  NAME      STATE    VERSION\n* Debian    Running  2\nWslRegisterDistribution failed: 0x80370102\n"
    monkeypatch.setattr(wsl_install.client, "call", lambda *_: client.Answer(code, text))
    if fails:
        with pytest.raises(TunesmithError, match="0x80370102"):
            wsl_install.distributions()
    else:
        assert [one.name for one in wsl_install.distributions() or ()][:1] == ["Debian"]


@pytest.mark.parametrize(("code", "there"), [(0, True), (1, False)])
def test_a_compiler_is_there_with_pythons_headers(code: int, there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def run(guest: Guest, *command: str) -> client.Answer:
        asked.append((guest.distribution, *command))
        return client.Answer(code, "")

    monkeypatch.setattr(Guest, "run", run)
    assert wsl_install.has_compiler("Debian") is there
    assert asked == [("Debian", "sh", "-c", "command -v gcc && ls /usr/include/python3*/Python.h")]


@pytest.mark.parametrize("python", ["python3.13", None])
def test_where_nothing_is_missing_the_python_of_the_distribution_is_taken(
    python: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wsl_install, "next_step", lambda _wanted: None)
    monkeypatch.setattr(wsl_install, "distributions", lambda: (WslDistribution(name="Debian", version=2),))
    monkeypatch.setattr(wsl_install, "find_python", lambda _name: python)
    assert wsl_install.prepare(None, agreeing([]), Progress()) == Guest("Debian", python or "python3")


@pytest.mark.parametrize("language", ["en", "zh", "tr"])
def test_the_default_is_used_unless_another_is_wanted(stub: Path, language: str) -> None:
    add_distribution(stub, "Debian")
    add_distribution(stub, NAME)
    write_state(stub, read_state(stub) | {"language": language})
    found = wsl_install.distributions() or ()
    default, other = wsl_install.chosen(found, None), wsl_install.chosen(found, NAME)
    assert default is not None
    assert other is not None
    assert (default.name, other.name) == ("Debian", NAME)
    assert wsl_install.chosen(found, "Nowhere") is None
    assert wsl_install.chosen((), None) is None


def test_a_step_without_consent_is_not_done(stub: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="This step was not confirmed"):
        wsl_install.prepare(None, lambda _step: False, Progress())
    assert read_state(stub)["distributions"] == []


def test_a_step_that_changes_nothing_is_not_repeated(
    stub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wsl_install, "distributions", tuple)
    with pytest.raises(EnvironmentProblem, match="changed nothing"):
        wsl_install.prepare(None, agreeing([]), Progress())
    capsys.readouterr()


def test_a_blocked_store_is_gone_around(
    stub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, called = client.run, []

    def fail_first(words: list[str], timeout_s: float = 1.0) -> client.Answer:
        if "--install" in words and "--web-download" not in words:
            return client.Answer(1, "Store")
        called.append(words)
        return run(words, timeout_s=timeout_s)

    monkeypatch.setattr(client, "run", fail_first)
    monkeypatch.setattr(wsl_install, "has_compiler", lambda _name: True)
    assert wsl_install.prepare("Debian", agreeing([]), Progress()).distribution == "Debian"
    assert any("--web-download" in words for words in called)
    capsys.readouterr()


def inside(stub: Path, monkeypatch: pytest.MonkeyPatch, *, code: int = 0, gpu: str = "device library 1") -> Guest:
    """A distribution with a GPU whose Python only notes how it was called."""
    root = add_distribution(stub, NAME)
    write_program(root, "sh", f"echo {gpu}")
    write_program(root, "python3", f'echo "$@" > "$HOME/called"; exit {code}')
    return Guest(NAME, "python3")


@pytest.mark.parametrize("as_operation", [False, True])
def test_the_same_installer_runs_inside(
    home: Path, stub: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_operation: bool
) -> None:
    guest = inside(stub, monkeypatch)
    wsl_install.provision(guest, "cu124", EventProgress(Operation(tmp_path)) if as_operation else Progress())
    called = (stub / "distributions" / NAME / "home" / "user" / "called").read_text().split()
    words = called[called.index("tunesmith_setup") :]
    assert words[:5] == ["tunesmith_setup", "install", "--training-only", "--profile", "cu124"]
    assert words[5:6] == (["--operation"] if as_operation else [])
    assert called[3].startswith(str(stub / "distributions" / NAME / "mnt" / "c"))
    assert Guest.load() == guest


def test_a_failure_inside_is_not_taken_for_success(home: Path, stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        wsl_install.provision(inside(stub, monkeypatch, code=3), None, Progress())
    assert caught.value.code == "environment-build-failed"
    with pytest.raises(EnvironmentProblem):
        Guest.load()


def test_without_a_gpu_inside_nothing_is_built(home: Path, stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = inside(stub, monkeypatch, gpu="0")
    with pytest.raises(EnvironmentProblem) as caught:
        wsl_install.provision(guest, "cu124", Progress())
    assert caught.value.code == "wsl-libcuda-missing"
    wsl_install.provision(guest, "cpu", Progress())


def test_the_command_says_what_is_next(home: Path, stub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["wsl", "status"]) == 0
    assert "Next: Download the distribution" in capsys.readouterr().out
    install_compiler(add_distribution(stub, NAME))
    assert command_line.main(["wsl", "status"]) == 0
    assert "Next: build the training environment inside" in capsys.readouterr().out


def test_the_command_does_it_all(
    home: Path, stub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_compiler(add_distribution(stub, NAME))
    provisioned: list[str] = []

    def provision(guest: Guest, profile: str | None, _progress: Progress) -> None:
        provisioned.append(f"{guest.distribution} {profile}")
        guest.save()

    monkeypatch.setattr(wsl_install, "provision", provision)
    assert command_line.main(["wsl", "install", "--yes", "--profile", "cpu"]) == 0
    assert provisioned == [f"{NAME} cpu"]
    assert f"Runs can train inside {NAME}" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("\n", False), ("", False), ("是\n", True)])
def test_the_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, agreed: bool
) -> None:
    flushed: list[None] = []
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    monkeypatch.setattr(sys.stdout, "flush", lambda: flushed.append(None), raising=False)
    step = Step("x", "Do it.", ("wsl.exe", "--help"))
    assert command.ask(step) is agreed
    assert flushed, "the question is on the screen before an answer is read"
    assert "wsl.exe --help" in capsys.readouterr().out
    assert command.agree(step)
