"""lm-evaluation-harness is installed into a folder of its own, after a yes, and once."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tunesmith_core import environments, paths, terminal
from tunesmith_setup.commands import harness, rewards
from tunesmith_setup.environments import envs, kinds
from tunesmith_setup.installation import install
from tunesmith_setup.packages import uvtool
from tunesmith_setup.probe import interpreters
from tunesmith_setup.probe.interpreters import Interpreter


@pytest.fixture
def brought(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built: nothing is downloaded."""
    assert home.is_dir()
    names: list[str] = []

    def bring(environment: envs.Environment, *_: object) -> None:
        names.append(environment.name)
        python = environments.environment_python(environment.folder)
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()
        (environment.folder / environments.MANIFEST).touch()
        (paths.envs_dir() / environments.HARNESS_POINTER).write_text(f"{environment.name}\n")

    monkeypatch.setattr(interpreters, "choose", lambda: Interpreter(Path("python"), (3, 12)))
    monkeypatch.setattr(install, "bring", bring)
    monkeypatch.setattr(uvtool, "obtain", lambda _progress: None)
    return names


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    harness.add_arguments(parser)
    return harness.run(parser.parse_args(list(words)))


def test_it_says_the_size_and_installs_nothing_without_a_yes(
    brought: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run() == 5
    shown = capsys.readouterr().out
    assert "MiB to download" in shown
    assert "Nothing was installed" in shown
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(terminal, "ask", lambda _question: "no")
    assert run() == 5
    assert brought == []


def test_a_yes_also_repairs(brought: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert [run("--yes"), run("--yes")] == [0, 0]
    assert "lm-evaluation-harness" in capsys.readouterr().out
    assert len(brought) == 2, "who brings it looks for damage"


def test_it_installs_once_and_again_when_the_program_names_other_versions(
    brought: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(terminal, "ask", lambda _question: "y")
    assert run() == 0
    capsys.readouterr()
    assert run() == 0
    assert capsys.readouterr().out == ""
    assert len(brought) == 1
    (paths.envs_dir() / environments.HARNESS_POINTER).write_text("harness-linux-py312-older\n")
    assert run() == 0
    assert len(brought) == 2


def test_its_packages_are_those_of_a_lock_of_their_own() -> None:
    environment = kinds.harness_environment(Interpreter(Path("python"), (3, 12)))
    assert environment.name.startswith("harness-")
    assert "lm-eval" in environment.packages()
    assert not {"torch", "transformers", "datasets"} & set(environment.packages())
    assert (environment.pointer, environment.device) == (environments.HARNESS_POINTER, None)


def test_the_packages_for_rewards_are_installed_in_the_same_way(
    brought: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    rewards.add_arguments(parser)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert rewards.run(parser.parse_args([])) == 5
    assert "Run: tunesmith rewards --yes" in capsys.readouterr().out
    assert rewards.run(parser.parse_args(["--yes"])) == 0
    assert [name.partition("-")[0] for name in brought] == ["rewards"]
    environment = kinds.rewards_environment(Interpreter(Path("python"), (3, 12)))
    assert {"reasoning-gym", "jsonschema"} <= set(environment.packages())
    assert environment.pointer == environments.REWARDS_POINTER
