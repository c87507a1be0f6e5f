"""The test runner: which environments it makes, what it runs in them, and how it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress, script
from tunesmith_core import paths
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup.build import test_runner
from tunesmith_setup.environments import envs
from tunesmith_setup.environments.envs import Environment
from tunesmith_setup.installation import example_model, install
from tunesmith_setup.packages import system_libraries, uvtool
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter

FIRST = Interpreter(Path("/usr/bin/python3.11"), (3, 11))
SECOND = Interpreter(Path("/usr/bin/python3.12"), (3, 12))
VARIABLES = ("TUNESMITH_EXAMPLE_MODEL", "OMP_THREAD_LIMIT", "COVERAGE_FILE")


class Machine:
    """A computer whose environments are scripts that write their calls down.

    Attributes:
        failing: a file of lines; a command that holds one of them fails.
        printed: a file with what the tests of Windows print.
        giving_way: a file with the last argument of each command that lets others go first.
    """

    def __init__(self, folder: Path) -> None:
        self.calls_file = folder / "calls.txt"
        self.failing = folder / "failing.txt"
        self.failing.write_text("")
        self.printed = folder / "printed.txt"
        self.printed.write_text("")
        self.giving_way = folder / "giving-way.txt"

    def build(self, environment: Environment, *_: object) -> None:
        (environment.folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True, exist_ok=True)
        script(
            environment.python,
            f"line = ' '.join(args) + ' | ' + ' '.join(k for k in {VARIABLES} if k in os.environ)\n"
            f"open({str(self.calls_file)!r}, 'a').write({environment.name!r} + ' ' + line + '\\n')\n"
            f"words = open({str(self.failing)!r}).read().splitlines()\n"
            f"said = open({str(self.printed)!r}).read() if 'tests/windows' in line and '--ignore' not in line else ''\n"
            "sys.stdout.write(said)\n"
            "sys.exit(1 if any(word in line for word in words) else 0)",
        )

    @property
    def calls(self) -> list[str]:
        return [line.split(" ", 1)[1] for line in self.calls_file.read_text().splitlines()]


@pytest.fixture
def machine(
    home: Path, tmp_path: Path, programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> Machine:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    result = Machine(tmp_path)
    script(
        programs / "xvfb-run", "assert args[:3] == ['-a', '-s', '-screen 0 1280x800x24']\nos.execv(args[3], args[3:])"
    )
    note = f"open({str(result.giving_way)!r}, 'a').write(args[-1] + '\\n')"
    script(programs / "nice", f"assert args[:2] == ['-n', '5']\n{note}\nos.execvp(args[2], args[2:])")
    monkeypatch.setattr(test_runner, "Progress", lambda: progress)
    monkeypatch.setattr(interpreters, "choose", lambda: FIRST)
    monkeypatch.setattr(interpreters, "find", lambda version: SECOND if version == (3, 12) else None)
    monkeypatch.setattr(system_libraries, "ensure", lambda _, for_tests: None)
    monkeypatch.setattr(system_libraries, "ensure_wine", lambda _: [])
    monkeypatch.setattr(uvtool, "obtain", lambda _: Uv(Path("/nowhere/uv")))
    monkeypatch.setattr(envs, "build", result.build)
    monkeypatch.setattr(example_model, "ensure", lambda *_: paths.models_dir() / "tiny")
    monkeypatch.setattr(install, "LOCKS", uvtool.LOCKS)
    return result


def test_everything_runs_under_a_headless_screen_with_coverage(
    machine: Machine, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_runner.os, "cpu_count", lambda: 32)
    assert test_runner.run([], long=False) == 0
    shared = "TUNESMITH_EXAMPLE_MODEL OMP_THREAD_LIMIT"
    windows = f"-m pytest -p no:cacheprovider -m not long --durations=30 tests/windows | {shared}"
    # It runs beside what comes after the time budgets.
    assert machine.calls.index(windows) >= 4
    calls = [call for call in machine.calls if call != windows]
    ruff, mypy, contracts, budgets, engine, tests, bare, combine, report = calls
    assert ruff.startswith("-m ruff check")
    assert mypy.startswith("-m mypy")
    assert "lint_imports_command" in contracts
    assert budgets == "-m pytest -p no:cacheprovider -m not long tests/bench | TUNESMITH_EXAMPLE_MODEL"
    workers = "-m pytest -p no:cacheprovider -m not long -n 4 --dist loadfile --no-loadscope-reorder --durations=30"
    bare_tests = ["tests/core", "tests/setup", "tests/packaging"]
    apart = " ".join(f"--ignore={each}" for each in ["tests/windows", "tests/bench", "tests/engine", *bare_tests])
    assert engine == f"{workers} tests/engine | {shared}"
    assert tests == f"{workers} {apart} | {shared}"
    covered = f"-m coverage run {workers} {' '.join(bare_tests)}"
    assert bare == f"{covered} | {shared} COVERAGE_FILE"
    assert machine.giving_way.read_text().split() == ["tests/engine", "--ignore=tests/packaging", "tests/packaging"]
    assert combine.startswith("-m coverage combine")
    assert report.startswith("-m coverage report --fail-under=100")
    assert progress.lines[-1] == "Everything passed."


def test_windows_that_can_not_be_tested_is_not_counted_as_passed(
    machine: Machine, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_libraries, "ensure_wine", lambda _: ["wine"])
    assert test_runner.run([], long=False) == 0
    assert len(machine.calls) == 9
    assert "Windows under Wine: NOT RUN, this computer lacks wine" in progress.text
    assert progress.lines[-1] == "Passed, but NOT RUN: Windows under Wine"


def test_what_the_tests_of_windows_print_is_shown(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.printed.write_text("13 passed\n")
    assert test_runner.run([], long=False) == 0
    assert "13 passed\n" in capsys.readouterr().out


def test_the_training_packages_come_behind_the_test_environments_own(machine: Machine) -> None:
    test_runner.run([], long=False)
    tests = test_runner.test_environment(FIRST)
    [training] = paths.envs_dir().glob("train-*")
    pth = envs.site_packages(tests.folder) / test_runner.PTH_NAME
    assert pth.read_text() == f"{envs.site_packages(training)}\n"
    assert not list(paths.envs_dir().glob("*.current"))


def test_a_selection_runs_pytest_alone(machine: Machine) -> None:
    assert test_runner.run(["tests/core", "-k", "name"], long=False) == 0
    assert machine.calls == ["-m pytest -p no:cacheprovider -m not long tests/core -k name | TUNESMITH_EXAMPLE_MODEL"]


@pytest.mark.parametrize(
    "part",
    [
        "-m ruff",
        "-m mypy",
        "lint_imports",
        "not long tests/bench",
        "--durations=30 tests/engine",
        "coverage run",
        "--ignore=tests/windows",
        "coverage report",
        "--durations=30 tests/windows",
    ],
)
def test_every_failing_part_fails_the_whole_and_the_others_still_run(
    machine: Machine, progress: RecordedProgress, part: str
) -> None:
    machine.failing.write_text(part)
    assert test_runner.run([], long=False) == 1
    assert len(machine.calls) == 10
    assert progress.lines[-1].startswith("Failed: ")
    assert "," not in progress.lines[-1]


def test_long_runs_all_tests_and_the_quick_ones_again_on_python_3_12(machine: Machine) -> None:
    assert test_runner.run([], long=True) == 0
    lines = [line for line in machine.calls_file.read_text().splitlines() if "--ignore=tests/windows" in line]
    assert [line.split("-")[2] for line in lines] == ["py311", "py312"]
    assert ["not long" in line for line in lines] == [False, True]


def test_long_takes_every_file_with_long_tests_in_one_part(machine: Machine) -> None:
    assert test_runner.run([], long=True) == 0
    parts = [line.split(" | ")[0].split() for line in machine.calls_file.read_text().splitlines()]
    parts = [words for words in parts if "pytest" in words and "not long" not in " ".join(words)]
    tests = test_runner.REPOSITORY / "tests"
    for path in (each for each in tests.rglob("test_*.py") if "pytest.mark.long" in each.read_text(encoding="utf-8")):
        place = "/".join(path.relative_to(test_runner.REPOSITORY).parts[:2])
        taking = [words for words in parts if _takes(words, place)]
        assert len(taking) == 1, place


def _takes(words: list[str], place: str) -> bool:
    """Whether a call of pytest runs the tests of a folder."""
    named = [word for word in words if word.startswith("tests")]
    return place in named if named else f"--ignore={place}" not in words


def test_long_on_python_3_12_runs_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreters, "choose", lambda: SECOND)
    test_runner.run([], long=True)
    assert len([line for line in machine.calls if "--ignore=tests/windows" in line]) == 1


def test_long_without_python_3_12_fails_before_anything_is_built(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "find", lambda _: None)
    with pytest.raises(EnvironmentProblem, match="none was found") as caught:
        test_runner.run([], long=True)
    assert caught.value.code == "python-unsupported"
    assert not paths.envs_dir().exists()


def test_windows_does_not_outlive_an_interruption(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl+C in the middle of the other tests ends the ones beside them."""
    monkeypatch.setattr(test_runner, "HEADLESS", [sys.executable, "-c", "import time; time.sleep(60)"])
    started: list[test_runner.subprocess.Popen[bytes]] = []
    usual = test_runner.subprocess.Popen

    def popen(*arguments: object, **options: object) -> object:
        started.append(usual(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    def step(name: str, *_: object) -> None:
        if name.startswith("pytest"):
            raise KeyboardInterrupt

    monkeypatch.setattr(test_runner, "_step", step)
    monkeypatch.setattr(test_runner.subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        test_runner.run([], long=False)
    [windows] = [process for process in started if "tests/windows" in process.args]  # type: ignore[operator]
    assert windows.poll() is not None
