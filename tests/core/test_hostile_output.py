"""What commands print of hostile runs, arguments and errors: letters only, and JSON that keeps the values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hostile_text import HOSTILE, STEERING, make_hostile_run
from tunesmith_core import cli, paths, settings
from tunesmith_core.errors import BugError
from tunesmith_core.json_values import parse
from tunesmith_core.store import Library
from tunesmith_setup.__main__ import main as setup


def printed(words: list[str], capfd: pytest.CaptureFixture[str], main: object = cli.main) -> str:
    """Run a command and return what it printed on both streams."""
    try:
        code = main(words)  # type: ignore[operator]
    except SystemExit as ended:
        code = ended.code
    out, err = capfd.readouterr()
    assert code != BugError.exit_code, err
    assert not STEERING.search(out + err), STEERING.search(out + err)
    return str(out)


IN_A_SPEC = {name: text for name, text in HOSTILE.items() if name != "nothing"}
"""A spec with a NUL is refused."""


@pytest.mark.parametrize("text", IN_A_SPEC.values(), ids=IN_A_SPEC)
def test_commands_print_letters_only(home: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    run = make_hostile_run(paths.runs_dir() / "odd-01", text)
    spec = home / "spec.json"
    spec.write_bytes(run.spec_path.read_bytes())
    for command in ("show", "follow", "resume", "checkpoint", "evaluate", "stop"):
        printed([command, run.id], capfd)
    printed(["sample", run.id, "--", text], capfd)
    for command in ("plan", "check", "train", "preview"):
        printed([command, str(spec)], capfd)
    listed = printed(["runs"], capfd).splitlines()
    assert len(listed) == 2
    assert max(map(len, listed)) < 1200
    shown = json.loads(printed(["runs", "--json"], capfd))[0]
    kept = parse(json.dumps(text).encode())
    assert shown["name"] == kept
    assert json.loads(printed(["spec", run.id], capfd))["name"] == kept
    assert json.loads(printed(["show", "--json", run.id], capfd))["device_name"] == kept
    printed(["delete", run.id], capfd)
    for words in (["trash"], ["trash", "--json"], ["restore", run.id], ["restore", run.id], ["trash", "--empty"]):
        printed(words, capfd)


ARGUMENTS = IN_A_SPEC | {"half a letter": "a\udcffb"}
"""A system gives no program a NUL, and Python makes halves of letters of bytes only."""


@pytest.mark.parametrize("text", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_are_repeated_as_letters(
    home: Path, tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in ([text], ["show", text], ["show"], ["runs", f"--{text}"], ["train", text], ["--help"], ["--version"]):
        printed(words, capfd)
    for words in (["restore", text], ["preview", "x", "--rows", text], ["delete", text]):
        printed(words, capfd)
    log = tmp_path / "train.log"
    log.write_bytes(f"RuntimeError: CUDA out of memory. {text}\n{text}".encode("utf-8", "surrogatepass"))
    for words in (["explain", str(log)], ["explain", "--json", str(log)], ["explain", text], ["settings", text]):
        printed(words, capfd, setup)
    for words in (["settings", f"proxy={text}"], ["settings", f"{text}=x"], ["doctor", f"--{text}"]):
        printed(words, capfd, setup)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_settings_are_shown_as_letters(home: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    path = settings.settings_path()
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"version": 1, "wheel_folder": f"/{text}", "theme": text, text: text}))
    assert "theme=system" in printed(["settings"], capfd, setup)


def test_a_run_of_an_odd_name_is_one_line(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = make_hostile_run(paths.runs_dir() / "odd", "x")
    odd = run.path.rename(run.path.with_name("a\n\x1b[31mb"))
    Library(paths.library_path()).close()
    assert len(printed(["runs"], capfd).splitlines()) == 2
    assert "a\\n\\x1b[31mb" in printed(["runs"], capfd)
    printed(["show", odd.name], capfd)
    printed(["delete", odd.name], capfd)
    assert len(printed(["trash"], capfd).splitlines()) == 2
