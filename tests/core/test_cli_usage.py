"""A command line that is not valid: what is wrong with it, and how it is written."""

from __future__ import annotations

import pytest

from tunesmith_core import cli


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["dance"], "To see what can be written here: tunesmith --help"),
        (["runs", "--nope"], "To see what can be written here: tunesmith runs --help"),
        (["stop", "run", "Paris."], "Write it like this: tunesmith stop RUN. All options: tunesmith stop --help"),
        (["train"], "Write it like this: tunesmith train SPEC.json. All options: tunesmith train --help"),
        (
            ["data", "convert", "--to", "rows.csv"],
            "Write it like this: tunesmith data convert --to FILE FILE [FILE ...]. All options: tunesmith data convert "
            "--help",
        ),
        (
            ["data", "mix", "--weights", "1"],
            "Write it like this: tunesmith data mix --to FILE FILE [FILE ...]. All options: tunesmith data mix --help",
        ),
    ],
)
def test_a_wrong_command_is_bad_input(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error[usage]: ")
    assert ".." not in err.splitlines()[0]
    assert err.endswith(f"hint: {hint}\n")


@pytest.mark.parametrize("written", ["nan", "inf", "-inf", "1e999", "many"])
def test_what_is_no_number_is_refused(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["data", "mix", "a.csv", "b.csv", "--to", "c.csv", f"--weights={written}"]) == 2
    assert f"{written} is not a number" in capsys.readouterr().err
