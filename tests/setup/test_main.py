"""The command line of the installer, and the thin script in front of it."""

from __future__ import annotations

import argparse
import ast
import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tunesmith_core.errors import EXIT_STOPPED, EnvironmentProblem, UserError
from tunesmith_core.protocol import Event, read_journal
from tunesmith_setup import __main__ as command_line
from tunesmith_setup.build import test_runner
from tunesmith_setup.installation import install

BOOTSTRAP = Path(__file__).resolve().parents[2] / "installers" / "bootstrap.py"


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ([], (None, False)),
        (["--demo"], (None, True)),
        (["--profile", "cu128", "--demo"], ("cu128", True)),
    ],
)
def test_installing(monkeypatch: pytest.MonkeyPatch, arguments: list[str], call: tuple[str | None, bool]) -> None:
    monkeypatch.setattr(install, "run", lambda profile, _, demo_wanted: 5 if (profile, demo_wanted) == call else 99)
    assert command_line.main(arguments) == 5


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        (["test"], ([], False)),
        (["test", "--long"], ([], True)),
        (["test", "-k", "name", "tests/core"], (["-k", "name", "tests/core"], False)),
    ],
)
def test_testing(monkeypatch: pytest.MonkeyPatch, arguments: list[str], call: tuple[list[str], bool]) -> None:
    monkeypatch.setattr(test_runner, "run", lambda rest, long: 7 if (rest, long) == call else 99)
    assert command_line.main(arguments) == 7


@pytest.mark.parametrize("name", "doctor harness install probe repair rewards rollback uninstall wsl".split())
def test_the_window_can_start_it_as_an_operation(name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"tunesmith_setup.commands.{name}")
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    action = ["status"] if name == "wsl" else []
    assert parser.parse_args([*action, "--operation", str(tmp_path)]).operation == tmp_path


def test_an_unknown_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--dmeo"]) == 2
    said = capsys.readouterr().err
    assert "Unknown argument: --dmeo." in said
    assert "hint: To see what can be written here: bootstrap.py --help" in said


def test_an_error_is_explained_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise UserError("disk-full", "8 GiB are needed.", context="evidence\n", hint="Free some space.")

    monkeypatch.setattr(install, "run", fail)
    assert command_line.main([]) == 2
    assert capsys.readouterr().err == (
        "evidence\nerror[disk-full]: The disk is full\n8 GiB are needed.\nhint: Free some space.\n"
    )


def test_the_evidence_of_a_child_is_its_last_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import torch\nImportError: gone\n'
    )

    def fail(*_: object, **__: object) -> int:
        raise EnvironmentProblem("engine-crashed", "The test ended.", context=f"before\n{output}", hint="Try again.")

    monkeypatch.setattr(install, "run", fail)
    assert command_line.main([]) == 3
    assert capsys.readouterr().err.startswith("before\nImportError: gone\nerror[engine-crashed]: ")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_an_error_without_evidence_is_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tunesmith_setup", "--profile", "cpu"])
    monkeypatch.setenv("TUNESMITH_HOME", "/proc/nowhere")
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("tunesmith_setup", run_name="__main__", alter_sys=True)
    assert caught.value.code == 3
    assert capsys.readouterr().err.startswith(
        "error[permission-or-antivirus]: A file or folder can't be written or read"
    )


def test_our_own_mistake_carries_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "run", lambda *_, **__: 1 // 0)
    assert command_line.main([]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_control_c_is_no_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "run", interrupt)
    assert command_line.main([]) == 5
    assert capsys.readouterr().err == (
        "\nInterrupted. Run the same command to continue. Runs that have started continue.\n"
    )


def test_bootstrap_runs_isolated_from_any_folder(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-I", str(BOOTSTRAP), "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "--demo" in answer.stdout


def test_bootstrap_parses_under_old_pythons_and_refuses_them() -> None:
    source = BOOTSTRAP.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    code = f"import sys; sys.version_info = (3, 8, 18); sys.argv = ['x']; __file__ = {str(BOOTSTRAP)!r}\n"
    code += f"exec(compile({source!r}, __file__, 'exec'), {{'__name__': '__main__', '__file__': __file__}})"
    answer = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 3
    assert answer.stdout.startswith("Tunesmith needs Python 3.11, 3.12 or 3.13; this is Python 3.8")


def test_a_command_may_be_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("cpu", True)
    monkeypatch.setattr(install, "run", lambda profile, _, demo_wanted: 7 if (profile, demo_wanted) == wanted else 9)
    assert command_line.main(["install", "--demo", "--profile", "cpu"]) == 7
    with pytest.raises(SystemExit):
        command_line.main(["install", "--help"])
    told = capsys.readouterr().out
    assert told.startswith("usage: tunesmith install ")
    assert "commands:" not in told
    with pytest.raises(SystemExit):
        command_line.main(["--help"])
    told = capsys.readouterr().out
    assert told.startswith("usage: bootstrap.py ")
    assert "commands:" in told
    assert "  test        run every check and test" in told


def test_the_window_reads_how_a_command_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def events_of(name: str, code: int) -> list[Event]:
        folder = tmp_path / name
        (folder / "control").mkdir(parents=True)
        assert command_line.main(["install", "--operation", str(folder)]) == code
        return read_journal(folder / "events.jsonl")

    monkeypatch.setattr("tunesmith_setup.progress.die_with_owner", lambda _: None)
    monkeypatch.setattr(install, "run", lambda *_, **__: 0)
    (result,) = events_of("good", 0)
    assert (result.data["status"], result.data["exit_code"]) == ("finished", 0)
    monkeypatch.setattr(install, "run", lambda *_, **__: 1 // 0)
    error, result = events_of("bad", 1)
    assert (error.type, error.data["code"]) == ("error", "bug")
    assert (result.data["status"], result.data["exit_code"]) == ("failed", 1)


def test_a_reader_that_leaves_is_no_bug(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_arguments: argparse.Namespace) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("tunesmith_setup.commands.settings.run", broken)
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert command_line.main(["settings"]) == EXIT_STOPPED
    assert capfd.readouterr().err == ""
