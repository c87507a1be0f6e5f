"""Environments are listed with their packages and compared."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from tunesmith_core import paths
from tunesmith_core.environments import MANIFEST, TRAINING_POINTER
from tunesmith_core.errors import UserError
from tunesmith_setup.commands import snapshots as command
from tunesmith_setup.environments import snapshots

PACKAGES = {
    "train-cpu-1": {"torch": "2.6.0", "numpy": "2.5.5", "old": "1"},
    "train-cpu-2": {"torch": "2.6.1", "numpy": "2.5.5", "new-one": "3"},
}


@pytest.fixture(autouse=True)
def environments(home: Path) -> Path:
    """Two environments, the second in use, the first before it; and one that is being built."""
    folder = home / "envs"
    for number, (name, packages) in enumerate((PACKAGES | {"train-cpu-3.building-7": {}}).items()):
        site = folder / name / "lib" / "python3.11" / "site-packages"
        site.mkdir(parents=True)
        for package, version in packages.items():
            info = site / f"{package.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            (info / "RECORD").write_text("")
        (folder / name / MANIFEST).write_text(json.dumps({"built_at": 1e9 + number} if number else {}))
    (folder / TRAINING_POINTER).write_text("train-cpu-2")
    (folder / "train.previous").write_text("train-cpu-1")
    return folder


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


def test_the_complete_ones_are_listed_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    newest, oldest = capsys.readouterr().out.splitlines()
    assert newest.split()[:2] == ["train-cpu-2", "current"]
    assert newest.endswith("3 packages, torch 2.6.1")
    assert oldest.split()[:3] == ["train-cpu-1", "previous", "-"]
    assert run("--json") == 0
    assert [row["packages"] for row in json.loads(capsys.readouterr().out)] == list(reversed(PACKAGES.values()))


def test_two_are_compared_by_role_or_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("diff", "previous", "train-cpu-2") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [["new-one", "-", "3"], ["old", "1", "-"], ["torch", "2.6.0", "2.6.1"]]
    assert run("--json", "diff", "current", "previous") == 0
    assert json.loads(capsys.readouterr().out)[0] == {"package": "new-one", "before": "3", "after": None}
    run("diff", "current", "current")
    assert "same packages" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "number"), [("train-cpu", 2), ("other", 0)])
def test_a_name_must_fit_one(name: str, number: int) -> None:
    with pytest.raises(UserError, match=f"{number} environments match"):
        snapshots.named(name)


def test_without_any_it_says_so(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "envs_dir", lambda: home / "nowhere")
    run()
    assert capsys.readouterr().out == "No environment is installed.\n"
    with pytest.raises(UserError, match="Available: none"):
        snapshots.named("x")
