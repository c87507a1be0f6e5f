"""Most small faults in the program make a test red: 300 mutants, and what survives is named.

A mutant is tried with the tests that run its line, the most specific ones first, as many as its time allows. A survivor
is a line whose tests would not notice a fault, or a fault that changes nothing.

Where one command may not take long enough, TUNESMITH_MUTATION_FOLDER names a folder that keeps what was measured and
tried: the same command again continues there. It is emptied by hand after any change.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

from tests.mutation import reach
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.reach import PYTEST, Reach, _green_tests, copy_of, environment_of, measure

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = (
    "engine/tunesmith_core",
    "installers/tunesmith_setup",
    "engine/tunesmith_engine/data",
    "engine/tunesmith_engine/train",
)
SEED = 12
MUTANTS = 300
MOST_SURVIVORS = 0.10
WORKERS = (os.cpu_count() or 1) + 1
"""One more than there are cores: a test often waits for a child, a clock or a disk."""
FIRST_TESTS = 25
"""Tests that a mutant meets first; most mutants end there."""
MOST_S = 60.0
"""What all tests of a mutant may have taken when they were measured; without this more may be noticed, never fewer."""
TRY_S = 300
"""A mutant whose tests take longer hangs: that is noticed, too."""

SAMPLE = b'''
"""A module: 1 + 1."""
from typing import Final
LIMIT: Final[int] = 3
ANSWER_POLL_S = 0.5

def ready(a: int, names: list[str]) -> bool:
    logger.info("read %d", a)
    files.crashpoint("ready.before")
    json.dumps(names, indent=2)
    names.clear()
    if names and not a < LIMIT - 1:
        return f"{a + 1}" in "a" + names[0]
    return False
'''


def sample(reach: Reach) -> tuple[list[Mutant], int]:
    """Return as many mutants of each part, of lines that tests run here, and how many stood on lines without a test."""
    drawn, unreached = [], 0
    for number, part in enumerate(PARTS):
        found = [mutant for path in python_files(part) for mutant in mutants_of(REPOSITORY, path)]
        reached = [mutant for mutant in found if mutant.line in reach.tests.get(mutant.path, {})]
        unreached += len(found) - len(reached)
        drawn += random.Random(SEED + number).sample(reached, MUTANTS // len(PARTS))
    return drawn, unreached


def python_files(part: str) -> list[str]:
    """Return the paths of a part's modules, relative to the repository."""
    return [str(path.relative_to(REPOSITORY)) for path in sorted((REPOSITORY / part).rglob("*.py"))]


def outcome_of(mutant: Mutant, tests: list[str], copy: Path) -> str:
    """Try a mutant in a copy of the repository that nobody else uses now; "noticed", "hung" or "survived"."""
    batches = [batch for batch in (tests[:FIRST_TESTS], tests[FIRST_TESTS:]) if batch]
    with written(mutant, copy):
        try:
            return "survived" if all(passes(batch, copy) for batch in batches) else "noticed"
        except subprocess.TimeoutExpired:
            return "hung"


@contextmanager
def written(mutant: Mutant, copy: Path) -> Iterator[None]:
    """Put a mutant into a copy of the repository for a while."""
    file = copy / mutant.path
    source = file.read_bytes()
    file.write_bytes(mutant.applied(source))
    try:
        yield
    finally:
        file.write_bytes(source)


def passes(tests: list[str], copy: Path) -> bool:
    """Whether tests of a copy are green. Raises subprocess.TimeoutExpired."""
    names = copy / "tests-to-run.txt"
    names.write_text("\n".join(tests))
    command = [sys.executable, *PYTEST, "-x", f"@{names}"]
    done = subprocess.run(command, cwd=copy, env=environment_of(copy), capture_output=True, timeout=TRY_S, check=False)
    return done.returncode == 0


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_few_of_300_mutants_survive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.environ.get("TUNESMITH_MUTATION_FOLDER") or tmp_path)
    copies: Queue[Path] = Queue()
    for number in range(WORKERS):
        # One of a command that was stopped may still hold a mutant.
        shutil.rmtree(folder / f"copy{number}", ignore_errors=True)
        copies.put(copy_of(REPOSITORY, folder / f"copy{number}"))
    reach = measure(folder / "copy0", folder, WORKERS)
    drawn, unreached = sample(reach)
    files = {outcome: folder / f"{outcome}.txt" for outcome in ("noticed", "hung", "survived")}
    for file in files.values():
        file.touch()
    tried = {line for file in files.values() for line in file.read_text().splitlines()}

    def try_one(mutant: Mutant) -> None:
        copy = copies.get()
        try:
            tests = reach.affordable(reach.of(mutant.path, mutant.line), MOST_S)
            outcome = outcome_of(mutant, tests, copy)
        finally:
            copies.put(copy)
        with files[outcome].open("a") as file:
            file.write(f"{mutant!r}\n")

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(try_one, (mutant for mutant in drawn if repr(mutant) not in tried)))
    survivors, hung = (files[outcome].read_text().splitlines() for outcome in ("survived", "hung"))
    with capsys.disabled():
        counts = f"{len(survivors)} of {len(drawn)} mutants survived, {len(hung)} made a test hang; "
        counts += f"{unreached} stood on lines that no test runs here"
        sys.stdout.write("\n".join(["", counts, *(str(mutant) for mutant in drawn if repr(mutant) in survivors), ""]))
    assert len(survivors) <= MOST_SURVIVORS * len(drawn)


def test_mutants_are_faults_that_a_program_can_have(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_bytes(SAMPLE)
    found = {str(mutant).split(": ", 1)[1] for mutant in mutants_of(tmp_path, "sample.py")}
    assert found == {
        "3  ->  (6)",
        "json.dumps(names, indent=2)  ->  pass",
        "names.clear()  ->  pass",
        "names and not a < LIMIT - 1  ->  (names or not a < LIMIT - 1)",
        "not a < LIMIT - 1  ->  (a < LIMIT - 1)",
        "a < LIMIT - 1  ->  (a <= LIMIT - 1)",
        "LIMIT - 1  ->  (LIMIT + 1)",
        "1  ->  (2)",
        'return f"{a + 1}" in "a" + names[0]  ->  return None',
        "f\"{a + 1}\" in \"a\" + names[0]  ->  (f'{a + 1}' not in 'a' + names[0])",
        "0  ->  (1)",
        "False  ->  (True)",
    }


@pytest.mark.parametrize("part", PARTS)
def test_every_mutant_is_a_program(part: str) -> None:
    for path in python_files(part)[::5]:
        source = (REPOSITORY / path).read_bytes()
        for mutant in mutants_of(REPOSITORY, path):
            compile(mutant.applied(source), str(mutant), "exec")


def test_a_mutant_is_written_and_taken_back(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_bytes(SAMPLE)
    mutant = mutants_of(tmp_path, "sample.py")[0]
    with written(mutant, tmp_path):
        assert b"(6)" in (tmp_path / "sample.py").read_bytes()
    assert (tmp_path / "sample.py").read_bytes() == SAMPLE


def test_a_line_meets_the_tests_that_run_it_or_else_those_that_can_see_it() -> None:
    own, other, reader = "tests/core/test_a.py::test_x", "tests/core/test_b.py::test_y", "tests/core/test_b.py::test_z"
    lines = Counter({own: 50, other: 3})
    reach = Reach({"core/a.py": {1: set(), 2: {own, other}, 3: {other}}}, lines, {"a": {reader}}, {})
    assert reach.of("core/a.py", 2) == [own, other], "the module's own test file comes first"
    assert reach.of("core/a.py", 3) == [other]
    assert reach.of("core/a.py", 1) == [own, reader, other]
    assert reach.of("core/none.py", 1) == []


def test_tests_that_take_too_long_together_are_left_out() -> None:
    measured = Reach({}, Counter(), {}, {"a": 5.0, "b": 50.0, "c": 20.0, "d": 5.0})
    assert measured.affordable(["a", "b", "c", "d"], 30.0) == ["a", "c", "d"]


def test_what_a_fixture_runs_counts_for_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "copy"
    plugin = Path("tests/mutation/contexts.py")
    module, test = Path("engine/tunesmith_core/small.py"), Path("tests/core/test_small.py")
    for file, text in (
        (plugin, (REPOSITORY / plugin).read_text()),
        (Path("pyproject.toml"), '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n'),
        (module, "def double(number):\n    return 2 * number\n"),
        (
            test,
            "import pytest\nfrom tunesmith_core import small\n\n\n@pytest.fixture\ndef four():\n"
            "    return small.double(2)\n\n\ndef test_it(four):\n    assert four == 4\n",
        ),
    ):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        (copy / file).write_text(text)
    monkeypatch.setattr(reach, "TESTS", ("tests/core",))
    monkeypatch.setattr(reach, "LEFT_OUT", ())
    monkeypatch.setattr(reach, "SOURCES", ("engine/tunesmith_core",))
    measured = measure(copy, tmp_path, 1)
    assert measured.tests[str(module)] == {1: set(), 2: {"tests/core/test_small.py::test_it"}}


def test_a_red_test_notices_nothing(tmp_path: Path) -> None:
    (tmp_path / "outcomes.xml").write_text(
        '<testsuites><testsuite><testcase classname="tests.a.test_b" name="test_x[1]"/>'
        '<testcase classname="tests.a.test_b" name="test_x[2]"><failure/></testcase>'
        '<testcase classname="tests.a.test_b" name="test_y"><error/></testcase>'
        '<testcase classname="tests.a.test_b" name="test_z[a b]"/></testsuite></testsuites>'
    )
    assert _green_tests(tmp_path / "outcomes.xml") == {"tests.a.test_b.test_z"}
