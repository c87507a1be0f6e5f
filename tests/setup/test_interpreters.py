"""Which Pythons are taken: full CPython 3.11 to 3.13, not conda's, not the Store's, not a shim."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.setup.conftest import script
from tunesmith_core.bounded import Output
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.computer import Computer
from tunesmith_setup.probe.interpreters import Interpreter, examine


def answering(
    path: Path, version: tuple[int, int, int], *, conda: bool = False, implementation: str = "cpython"
) -> Path:
    """A program that answers the question of `examine` as an interpreter would."""
    facts = {"executable": str(path), "version": version, "conda": conda, "implementation": implementation}
    return script(path, f"print({json.dumps(json.dumps(facts))})")


@pytest.fixture
def nothing_installed(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Only scripted interpreters can be found; returns the PATH folder."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(interpreters, "SYSTEM_FOLDERS", ())
    return programs


def test_the_running_python_serves() -> None:
    interpreter = interpreters.choose()
    assert interpreter.version == sys.version_info[:2]
    assert interpreter.tag == f"py3{sys.version_info[1]}"
    assert interpreter == examine(interpreter.executable)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"version": [3, 11, 0]}, None),
        ({"version": [3, 12, 0]}, None),
        ({"version": [3, 13, 7]}, None),
        ({"version": [3, 13, 9]}, None),
        ({"version": [3, 13, 8]}, "PyTorch can't be imported in this version"),
        ({"version": [3, 10, 9]}, "only 3.11, 3.12 and 3.13 are supported"),
        ({"version": [3, 14, 0]}, "only 3.11, 3.12 and 3.13 are supported"),
        ({"implementation": "pypy"}, "pypy instead of CPython"),
        ({"conda": True}, "part of conda"),
        ({"bits": 64, "threaded": False, "embeddable": False}, None),
        ({"bits": 32}, "32-bit build"),
        ({"threaded": True}, "free-threaded build"),
        ({"embeddable": True}, "embeddable package, which has no Python.h"),
    ],
)
def test_a_python_is_judged_by_what_it_answers(facts: dict[str, object], problem: str | None) -> None:
    answer = {"executable": "/real", "version": [3, 12, 1], "implementation": "cpython", "conda": False} | facts
    asked: list[tuple[list[str], float | None]] = []

    class Answering(Computer):
        def run(self, command: list[str], timeout_s: float | None = None) -> Output:
            asked.append((command, timeout_s))
            return Output(0, json.dumps(answer).encode())

    found = interpreters.inspect("/a/python", Answering(1.0), 7.0)
    assert found is not None
    assert (found.executable, found.problem) == ("/real", problem)
    assert list(found.version or ()) == answer["version"]
    assert asked == [(["/a/python", "-I", "-c", interpreters.QUESTION], 7.0)]


def test_what_can_not_serve_is_passed_over(tmp_path: Path) -> None:
    assert examine(answering(tmp_path / "conda", (3, 12, 1), conda=True)) is None
    assert examine(answering(tmp_path / "old", (3, 10, 13))) is None
    assert examine(answering(tmp_path / "new", (3, 14, 0))) is None
    assert examine(answering(tmp_path / "no-torch", (3, 13, 8))) is None
    assert examine(answering(tmp_path / "pypy", (3, 11, 0), implementation="pypy")) is None
    assert examine(answering(tmp_path / "shims" / "python3.12", (3, 12, 1))) is None
    assert examine(answering(tmp_path / "WindowsApps" / "python3.12", (3, 12, 1))) is None
    assert examine(script(tmp_path / "mute", "print('Python was not found')")) is None
    assert examine(tmp_path / "absent") is None
    good = answering(tmp_path / "good", (3, 12, 1))
    assert examine(good) == Interpreter(good, (3, 12))


def test_a_version_is_found_on_the_path_or_among_pyenvs_versions(
    nothing_installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The Python that runs this test counts too.
    monkeypatch.setattr(sys, "executable", str(answering(tmp_path / "running", (3, 14, 0))))
    assert interpreters.find((3, 12)) is None
    older = answering(tmp_path / "pyenv/versions/3.12.1/bin/python3.12", (3, 12, 1))
    assert interpreters.find((3, 12)) == Interpreter(older, (3, 12))
    shims = tmp_path / "shims"
    answering(shims / "python3.12", (3, 12, 1))
    monkeypatch.setenv("PATH", os.pathsep.join(["", str(shims), str(nothing_installed)]))
    on_path = answering(nothing_installed / "python3.12", (3, 12, 3))
    assert interpreters.find((3, 12)) == Interpreter(on_path, (3, 12))


def test_another_python_carries_when_the_running_one_can_not(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(answering(nothing_installed / "python3.14", (3, 14, 0))))
    with pytest.raises(EnvironmentProblem, match="is not supported, and no other Python") as caught:
        interpreters.choose()
    assert caught.value.code == "python-unsupported"
    assert "Python 3.14.0 (" in caught.value.message
    with monkeypatch.context() as patch:
        patch.setattr(interpreters, "inspect", lambda *_: None)
        with pytest.raises(EnvironmentProblem, match=r"Python \? \("):
            interpreters.choose()
    serving = answering(nothing_installed / "python3.13", (3, 13, 2))
    assert interpreters.choose() == Interpreter(serving, (3, 13))
