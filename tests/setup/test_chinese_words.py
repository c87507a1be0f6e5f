"""The command line in Chinese: what a person meets on the way to a first run holds no English sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tunesmith_core import cli, settings, terminal
from tunesmith_core.messages import use_language
from tunesmith_core.protocol import Event
from tunesmith_setup.__main__ import COMMANDS
from tunesmith_setup.__main__ import main as setup

ENGLISH = re.compile(r"[A-Za-z']{2,}(?: [a-z']{2,}){2,}")
"""Three words in a row are a sentence, or a part of one."""


@pytest.fixture(autouse=True)
def chinese(english: None, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "language_in_force", lambda: "zh_CN")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert ENGLISH.findall(re.sub(r"tunesmith [\w -]+", "", out + err)) == [], "only commands are not Chinese"
    assert re.search("[\u4e00-\u9fff]", out + err)
    return out + err


@pytest.mark.parametrize(
    "words",
    [
        ["doctor"],
        ["harness"],
        ["install", "--plan"],
        ["probe"],
        ["repair", "--check", "nothing"],
        ["rollback"],
        ["settings"],
        ["settings", "proxy"],
        ["settings", "proxy=ftp://x", "theme=7", "font_scale_percent=900"],
        ["snapshots"],
        ["snapshots", "diff", "a", "b"],
        ["uninstall"],
        ["explain", "no-such-file"],
        ["program", "--check", "no-such-folder"],
    ],
    ids=" ".join,
)
def test_the_installer(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    setup(words)
    said(capsys)


ROW = {"prompt": "a", "completion": "b"}


@pytest.mark.parametrize(
    ("data", "changes"),
    [
        ("a,b\n1,2,3\n", {}),
        ('a,b\n"1,2\n', {}),
        ("caf\udce9\n", {}),
        ("{", {}),
        ('{"a":NaN}', {}),
        ("PK\x03\x04", {}),
        (json.dumps(ROW), {"adapter": {"rank": 0, "dropout": "x", "surprise": 1, "target_modules": 7}}),
        (json.dumps(ROW), {"hardware": {"devices": ["cuda", "tpu"]}, "data": 7, "version": 1.5}),
        (json.dumps(ROW), {"hardware": {"devices": ["cuda"]}}),
        (json.dumps({"messages": [{"role": "user", "content": "x"}]}), {}),
    ],
)
def test_a_spec_or_data_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: str, changes: dict[str, object]
) -> None:
    rows = tmp_path / ("rows.csv" if data.startswith(("a,b", "caf")) else "rows.jsonl")
    rows.write_bytes(data.encode("utf-8", "surrogateescape"))
    spec = {"version": 2, "model": {"path": str(tmp_path)}, "data": {"sources": [{"path": str(rows)}]}} | changes
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    assert cli.main(["check", str(file)]) != 0
    said(capsys)


@pytest.mark.parametrize("words", [["runs"], ["show", "gone"], ["plan", "no-such-file"], ["presets"]], ids=" ".join)
def test_looking_around(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(words)
    said(capsys)


def test_the_events_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    use_language("zh_CN")
    progress = terminal.Progress()
    for phase in ("starting", "model", "data", "training", "evaluating", "saving"):
        progress.show(Event(1, 0.0, "phase", {"name": phase}))
    progress.show(Event(2, 0.0, "eval", {"step": 4, "loss": 1.0}))
    assert not re.search("[A-Za-z]", capsys.readouterr().out)


@pytest.mark.parametrize("words", [[], ["train"], ["preview"], ["stop"], ["bench"], ["presets"]], ids=" ".join)
def test_the_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([*words, "--help"])
    assert "用法" in said(capsys)


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_the_help_of_the_installer(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        setup([*words, "--help"])
    assert "用法" in said(capsys)


@pytest.mark.parametrize("words", [["train"], ["train", "a", "b"], ["gone"], ["preview", "a", "--rows", "b"]])
def test_a_command_that_is_wrong(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    said(capsys)
