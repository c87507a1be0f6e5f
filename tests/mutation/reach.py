"""Which tests run which line of the program, measured once, so that a mutant is tried with those tests only.

Tests that are red without any mutant are left out: they would notice every one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from coverage import CoverageData

SOURCES = ("engine/tunesmith_core", "engine/tunesmith_engine", "installers/tunesmith_setup")
TESTS = ("tests/core", "tests/setup", "tests/engine")
LEFT_OUT = ("tests/engine/kernels", "tests/engine/fused", "tests/engine/test_causal_types.py")
"""They take long and look at what is not mutated; without them more mutants may survive, never fewer."""
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not long", "--tb=no")
NOT_COPIED = shutil.ignore_patterns(".git", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache", "*.egg-info")


@dataclass(frozen=True, slots=True)
class Reach:
    """Which tests run which lines.

    Attributes:
        tests: for each file (relative to the repository) and line the names of tests, as pytest takes them.
        lines: for each test how many lines it runs.
        naming: for the name of each module the tests of the files that name it.
        seconds: how long each test took, with all its values.
    """

    tests: dict[str, dict[int, set[str]]]
    lines: Counter[str]
    naming: dict[str, set[str]]
    seconds: Mapping[str, float]

    def of(self, path: str, line: int) -> list[str]:
        """Return the tests that run a line, the most specific first: own test file, then fewest other lines.

        A line that runs when its module is imported belongs to no test: then those count that run the module, or may
        look at what it holds, those whose files name the module first.
        """
        module, stem = self.tests.get(path, {}), Path(path).stem
        own, named = module.get(line), self.naming.get(stem, set())

        def distance(test: str) -> tuple[bool, bool, int, str]:
            return stem not in test.split("::")[0], not own and test not in named, self.lines[test], test

        return sorted(own or set().union(*module.values(), named), key=distance)

    def affordable(self, tests: list[str], most_s: float) -> list[str]:
        """Return the tests, in their order, that take no more than so many seconds together."""
        chosen, total_s = [], 0.0
        for test in tests:
            if total_s + self.seconds[test] <= most_s:
                chosen.append(test)
                total_s += self.seconds[test]
        return chosen


def copy_of(repository: Path, folder: Path) -> Path:
    """Copy what the tests need of the repository into a new folder, and return it."""
    shutil.copytree(repository, folder, ignore=NOT_COPIED, symlinks=True)
    return folder


def environment_of(repository: Path) -> dict[str, str]:
    """Return variables with which tests, and the processes that they start, take the program from a folder."""
    roots = [str(repository / name) for name in ("gui", "engine", "installers", "assets")]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE_", "PYTEST_"))}
    return own | {
        "PYTHONPATH": os.pathsep.join(roots),
        "TUNESMITH_REPOSITORY": str(repository),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }


def measure(repository: Path, folder: Path, workers: int) -> Reach:
    """Run the quick tests once, unless the folder holds what came of it, and return which lines each one ran.

    Args:
        repository: a copy that nothing else uses.
        folder: where coverage and pytest write.
        workers: processes at once.
    """
    if not (folder / "data").is_file():
        _run_tests(repository, folder, workers)
    seconds = _seconds_of(folder / "outcomes.xml")
    return _read(folder / "data", repository, _green_tests(folder / "outcomes.xml"), seconds)


def _run_tests(repository: Path, folder: Path, workers: int) -> None:
    settings = folder / "coveragerc"
    sources = "\n    ".join(str(repository / name) for name in SOURCES)
    settings.write_text(
        f"[run]\nsource =\n    {sources}\ndata_file = {folder / 'data'}\nparallel = true\npatch = subprocess\n"
        "concurrency = thread\n"
    )
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", *PYTEST, *TESTS]
    command += [f"--ignore={left_out}" for left_out in LEFT_OUT]
    command += ["-p", "tests.mutation.contexts", "-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    command += [f"--junitxml={folder / 'outcomes.xml'}"]
    with (folder / "measured.log").open("wb") as log:
        subprocess.run(command, cwd=repository, env=environment_of(repository), stdout=log, stderr=log, check=False)
    subprocess.run(
        [sys.executable, "-m", "coverage", "combine", f"--rcfile={settings}", "--quiet"],
        cwd=repository,
        env=environment_of(repository),
        check=True,
    )


def _green_tests(outcomes: Path) -> set[str]:
    """Return the tests (tests.core.test_files.test_writes) that never failed, with whatever values they ran."""
    green, red = set(), set()
    for case in ElementTree.parse(outcomes).iter("testcase"):
        passed = case.find("failure") is None and case.find("error") is None
        (green if passed else red).add(_name_of(case))
    return green - red


def _seconds_of(outcomes: Path) -> Mapping[str, float]:
    """Return how long each test took, by its name as in `_green_tests`."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ElementTree.parse(outcomes).iter("testcase"):
        seconds[_name_of(case)] += float(case.get("time", "0"))
    return seconds


def _name_of(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}.{case.get('name', '').partition('[')[0]}"


def _read(path: Path, repository: Path, green: set[str], seconds: Mapping[str, float]) -> Reach:
    data = CoverageData(str(path))
    data.read()
    tests: dict[str, dict[int, set[str]]] = {}
    lines: Counter[str] = Counter()
    for file in data.measured_files():
        by_line = tests.setdefault(str(Path(file).relative_to(repository)), {})
        for line, contexts in data.contexts_by_lineno(file).items():
            by_line[line] = {_node_of(context, repository) for context in green.intersection(contexts)}
            lines.update(by_line[line])
    by_node = {_node_of(test, repository): seconds[test] for test in green}
    return Reach(tests, lines, _naming({Path(file).stem for file in tests}, green, repository), by_node)


def _naming(modules: set[str], green: set[str], repository: Path) -> dict[str, set[str]]:
    naming: dict[str, set[str]] = {}
    nodes = [_node_of(test, repository) for test in green]
    files = {node.partition("::")[0] for node in nodes}
    words = {file: set(re.findall(r"\w+", (repository / file).read_text(encoding="utf-8"))) for file in files}
    for node in nodes:
        for module in modules & words[node.partition("::")[0]]:
            naming.setdefault(module, set()).add(node)
    return naming


def _node_of(test: str, repository: Path) -> str:
    """Return how pytest names the test tests.core.test_files.test_writes on its command line."""
    parts = test.split(".")
    files = (Path(*parts[:depth]).with_suffix(".py") for depth in range(len(parts), 0, -1))
    file = next(file for file in files if (repository / file).is_file())
    return "::".join([file.as_posix(), *parts[len(file.parts) :]])
