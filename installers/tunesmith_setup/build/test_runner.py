"""Makes the test environment and runs linters, type checks, import contracts and all tests under a headless X server.

The test environment holds the launcher's packages and the developer tools; a .pth file appends the training
environment's packages behind them, so that one pytest process has Qt and PyTorch and the gigabytes exist once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tunesmith_core import environments, files, paths, terminal
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup import probe
from tunesmith_setup.environments import envs, kinds, profiles
from tunesmith_setup.installation import example_model, install
from tunesmith_setup.packages import system_libraries, uvtool
from tunesmith_setup.packages.uvtool import LOCKS, Uv
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter
from tunesmith_setup.progress import Progress, duration_text

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE_ROOTS = tuple(str(REPOSITORY / name) for name in ("gui", "engine", "installers", "assets"))
EXAMPLE_MODEL_VARIABLE = "TUNESMITH_EXAMPLE_MODEL"
REPOSITORY_VARIABLE = "TUNESMITH_REPOSITORY"
"""Read by coverage's settings."""

TEST_MODULES = ("numpy", "pytest", "pytest_timeout", "hypothesis", "coverage", "mypy", "xdist")
TEST_BYTES = 600_000_000
PTH_NAME = "zz_tunesmith_training.pth"
LONG_VERSION = (3, 12)
HEADLESS = [] if sys.platform == "win32" else ["xvfb-run", "-a", "-s", "-screen 0 1280x800x24"]
GIVING_WAY = [] if sys.platform == "win32" else ["nice", "-n", "5"]
"""The tests of Windows are one process and would be last for minutes, on one core: the others let them go first."""

PYTEST = ["-m", "pytest", "-p", "no:cacheprovider"]
MOST_WORKERS = 4
"""Each holds Qt and PyTorch. One more than there are cores: a test often waits for a child, a clock or a disk."""

SHARED_CORES = {"OMP_THREAD_LIMIT": "1"}
"""Workers and the engines that they start share the cores: more threads of PyTorch would mostly wait for each other."""

SLOWEST = "--durations=30"
"""Tests that are named with their times: who shortens the whole begins there."""

MIN_COVERAGE_PERCENT = 100
WINDOWS_STEP = "Windows under Wine"
WINDOWS_TESTS = "tests/windows"
TIMED_TESTS = "tests/bench"
"""These alone need the computer for themselves, and the speed that a person meets, which coverage would slow."""

ENGINE_TESTS = "tests/engine"
"""In processes of their own: what they let the hub's client read of its surroundings stays for the whole process."""

BARE_TESTS = ("tests/core", "tests/setup", "tests/packaging")
"""These cover the bare packages. Measuring reaches into every process that a test starts, and would take a third of
the time of the others more."""


@dataclass(slots=True)
class Outcome:
    """How the parts ended: the names of those that failed, and of those that could not run here."""

    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """Say it in one line; a part that did not run is never counted as passed."""
        if self.failed:
            return f"Failed: {', '.join(self.failed)}"
        return f"Passed, but NOT RUN: {', '.join(self.skipped)}" if self.skipped else "Everything passed."


def run(pytest_arguments: list[str], *, long: bool) -> int:
    """Make the test environment and run the tests.

    Args:
        pytest_arguments: passed on; with any, only pytest runs, on what they select, and coverage is not asked for.
        long: whether tests marked long run too, and the others again on Python 3.12.

    Returns:
        0 when all passed, 1 when something failed.

    Raises:
        EnvironmentProblem: when an environment can't be made, or with `long` when there is no Python 3.12.
    """
    progress, outcome = Progress(), Outcome()
    interpreter = interpreters.choose()
    again_on = _second_interpreter(interpreter) if long else None
    install.prepare_folder(progress)
    with kinds.only_one(progress):
        with progress.phase("System libraries"):
            system_libraries.ensure(progress, for_tests=True)
            missing = [] if pytest_arguments else system_libraries.ensure_wine(progress)
        uv = uvtool.obtain(progress)
        prepared = [_prepare(one, uv, progress) for one in (interpreter, again_on) if one]
    python, model = prepared[0]
    environment = _environment(uv, model)
    # The big counts say something about our code, not about a Python version: once is enough.
    quick = ["-m", "not long"]
    selections = [(tested, [] if long and tested is python else quick) for tested, _ in prepared]
    if pytest_arguments:
        for tested, selection in selections:
            _run_selected(tested, [*selection, *pytest_arguments], environment, progress, outcome)
    else:
        _check_sources(python, environment, progress, outcome)
        _run_all(selections, missing, environment, progress, outcome)
    progress.line()
    for name, seconds in progress.timings:
        progress.line(f"{name:<28}{duration_text(seconds):>14}")
    progress.line(outcome.sentence())
    return 1 if outcome.failed else 0


def _second_interpreter(first: Interpreter) -> Interpreter | None:
    if first.version == LONG_VERSION:
        return None
    found = interpreters.find(LONG_VERSION)
    if found is None:
        raise EnvironmentProblem(
            "python-unsupported",
            "--long runs the tests on Python 3.12 as well, and none was found on this computer.",
            hint="Install Python 3.12 so that python3.12 is on the PATH, then run this command again.",
        )
    return found


def test_environment(interpreter: Interpreter) -> envs.Environment:
    """Return the environment that holds launcher packages and developer tools."""
    locks = tuple(envs.lock_path(LOCKS, name, interpreter) for name in ("launcher", "dev"))
    return envs.Environment("test", interpreter, locks, TEST_MODULES, TEST_BYTES)


def _prepare(interpreter: Interpreter, uv: Uv, progress: Progress) -> tuple[Path, Path]:
    """Build what the tests need for one Python version; return the test Python and the example's base model."""
    # Without a pointer: testing does not change which environment the installed program uses.
    profile = profiles.choose(probe.machine()).profile
    training = replace(kinds.training_environment(interpreter, profile), pointer=None)
    tests = test_environment(interpreter)
    for title, environment in (("Training environment", training), ("Test environment", tests)):
        with progress.phase(f"{title} ({interpreter.tag})"):
            envs.build(environment, uv, progress)
    install.forget_downloads(tests, training, uv)
    files.atomic_write_text(envs.site_packages(tests.folder) / PTH_NAME, f"{envs.site_packages(training.folder)}\n")
    with progress.phase("Base model of the example"):
        model = example_model.ensure(LOCKS / "example-model.txt", training.python, uv, progress)
    return tests.python, model


def _environment(uv: Uv, model: Path) -> dict[str, str]:
    environment = environments.scrubbed_environment() | environments.NO_COMPILING
    environment["PATH"] = os.pathsep.join([str(uv.executable.parent), environment.get("PATH", "")])
    environment["PYTHONPATH"] = os.pathsep.join(SOURCE_ROOTS)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment[EXAMPLE_MODEL_VARIABLE] = str(model)
    environment[REPOSITORY_VARIABLE] = str(REPOSITORY)
    return environment


def _step(name: str, command: list[str], environment: dict[str, str], progress: Progress, outcome: Outcome) -> None:
    with progress.phase(name):
        code = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False).returncode
        if code != 0:
            progress.note(f"{name}: FAILED (exit code {code})")
            outcome.failed.append(name)


def _check_sources(python: Path, environment: dict[str, str], progress: Progress, outcome: Outcome) -> None:
    caches = paths.cache_dir()
    lint_imports = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    checks = {
        "ruff": ["-m", "ruff", "check", "--output-format", "concise", "--cache-dir", str(caches / "ruff"), "."],
        "mypy": ["-m", "mypy", "--cache-dir", str(caches / "mypy")],
        "import contracts": ["-c", lint_imports, "--no-cache"],
    }
    for name, arguments in checks.items():
        _step(name, [str(python), *arguments], environment, progress, outcome)


def _run_selected(
    python: Path, arguments: list[str], environment: dict[str, str], progress: Progress, outcome: Outcome
) -> None:
    """Run the tests that the person selected, under a headless X server."""
    _step(f"pytest ({_tag(python)})", [*HEADLESS, str(python), *PYTEST, *arguments], environment, progress, outcome)


def _run_all(
    selections: list[tuple[Path, list[str]]],
    missing: list[str],
    environment: dict[str, str],
    progress: Progress,
    outcome: Outcome,
) -> None:
    """Run pytest under a headless X server and measure the coverage of the bare packages; Windows comes beside."""
    workers = ["-n", str(min((os.cpu_count() or 1) + 1, MOST_WORKERS)), "--dist", "loadfile", "--no-loadscope-reorder"]
    workers.append(SLOWEST)
    apart = [f"--ignore={tests}" for tests in (WINDOWS_TESTS, TIMED_TESTS, ENGINE_TESTS, *BARE_TESTS)]
    for python, selection in selections:
        budgets = [*HEADLESS, str(python), *PYTEST, *selection, TIMED_TESTS]
        _step(f"time budgets ({_tag(python)})", budgets, environment, progress, outcome)
    environment = environment | SHARED_CORES
    with _windows_beside(*selections[0], missing, environment, progress, outcome):
        for python, selection in selections:
            for name, tests in (("pytest of the engine", [ENGINE_TESTS]), ("pytest", apart)):
                command = [*GIVING_WAY, *HEADLESS, str(python), *PYTEST, *selection, *workers, *tests]
                _step(f"{name} ({_tag(python)})", command, environment, progress, outcome)
            measured = environment | {"COVERAGE_FILE": str(_coverage_file(python))}
            coverage = [str(python), "-m", "coverage"]
            command = [*GIVING_WAY, *HEADLESS, *coverage, "run", *PYTEST, *selection, *workers, *BARE_TESTS]
            _step(f"pytest of the bare packages ({_tag(python)})", command, measured, progress, outcome)
            subprocess.run([*coverage, "combine", "--quiet"], cwd=REPOSITORY, env=measured, check=False)
            report = [*coverage, "report", f"--fail-under={MIN_COVERAGE_PERCENT}"]
            _step(f"coverage ({_tag(python)})", report, measured, progress, outcome)


def _coverage_file(python: Path) -> Path:
    """Return where coverage shall write, in an empty folder."""
    folder = paths.tmp_dir() / f"coverage-{_tag(python)}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder / "data"


@contextlib.contextmanager
def _windows_beside(
    python: Path,
    selection: list[str],
    missing: list[str],
    environment: dict[str, str],
    progress: Progress,
    outcome: Outcome,
) -> Iterator[None]:
    """Run the tests of Windows under Wine while the caller's run, or say loudly that they did not run."""
    if missing:
        outcome.skipped.append(WINDOWS_STEP)
        progress.note(f"{WINDOWS_STEP}: NOT RUN, this computer lacks {', '.join(missing)}")
        yield
        return
    command = [*HEADLESS, str(python), *PYTEST, *selection, SLOWEST, WINDOWS_TESTS]
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        except BaseException:
            process.terminate()
            raise
        with progress.phase(WINDOWS_STEP):
            code = process.wait()
            output.seek(0)
            if written := output.read().decode("utf-8", "replace").rstrip():
                terminal.say(written)
            if code != 0:
                progress.note(f"{WINDOWS_STEP}: FAILED (exit code {code})")
                outcome.failed.append(WINDOWS_STEP)


def _tag(python: Path) -> str:
    """Return the Python version in the name of a test environment, such as py311."""
    return python.parents[1].name.split("-")[2]
