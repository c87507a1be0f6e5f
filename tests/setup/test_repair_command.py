"""`tunesmith repair`: each fault is shown, asked about, mended once, and looked at again."""

from __future__ import annotations

import argparse
import sys

import pytest

from tunesmith_core.errors import UserError
from tunesmith_core.machine import Machine
from tunesmith_core.setup_messages import Finding, Fix, State
from tunesmith_setup import checks, probe
from tunesmith_setup.checks.base import Check
from tunesmith_setup.commands import repair as command
from tunesmith_setup.progress import Progress

MACHINE = Machine(system="linux")


class Sick(Check):
    """A check whose fault is mended after some attempts.

    Attributes:
        num_fixes: attempts so far.
    """

    id = "sick"
    title = "Sick"

    def __init__(self, helps: bool, automatic: bool = True, state: State = State.FAILED) -> None:
        self.helps, self.automatic, self.state = helps, automatic, state
        self.num_fixes = 0

    def verify(self, machine: Machine, progress: Progress) -> Finding:
        del machine, progress
        if self.num_fixes and self.helps:
            return Finding(State.OK, "well")
        return Finding(self.state, "ill", "disk-full", fix=Fix("Heal it", "retry", automatic=self.automatic))

    def fix(self, progress: Progress) -> None:
        self.num_fixes += 1
        if not self.helps:
            raise OSError(28, "No space left", str(progress.timings))


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments))


@pytest.fixture
def sick(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """The checks that the command sees; fill it."""
    listed: list[Check] = []
    monkeypatch.setattr(checks, "all_checks", lambda full: listed)
    monkeypatch.setattr(probe, "machine", lambda: MACHINE)
    return listed


@pytest.mark.parametrize(
    ("check", "code", "words", "num_fixes"),
    [
        (Sick(helps=True), 0, "Nothing else needs repair", 1),
        (Sick(helps=False), 3, "This did not help", 1),
        (Sick(helps=True, automatic=False), 3, "Not repaired: Sick", 0),
        (Sick(helps=False, state=State.WARNING), 0, "Nothing else", 1),
        (Sick(helps=True, state=State.UNKNOWN), 0, "Nothing else", 0),
    ],
)
def test_each_fault_is_mended_once_and_looked_at_again(
    check: Sick, code: int, words: str, num_fixes: int, sick: list[Check], capsys: pytest.CaptureFixture[str]
) -> None:
    sick.append(check)
    assert run("--yes") == code
    output = capsys.readouterr()
    assert words in output.out
    assert check.num_fixes == num_fixes
    if not check.helps:
        assert "error[disk-full]: The disk is full" in output.err
    # Told before and after, not once more.
    assert output.out.count("ill [disk-full]") == 1 + (check.num_fixes and not check.helps)


def test_one_check_can_be_named(sick: list[Check], capsys: pytest.CaptureFixture[str]) -> None:
    sick.append(Sick(helps=True))
    assert run("--yes", "--check", "sick") == 0
    assert "Heal it" in capsys.readouterr().out
    with pytest.raises(UserError, match="There is no check named other"):
        run("--check", "other")


@pytest.mark.parametrize(("answer", "num_fixes"), [("y\n", 1), ("yes\n", 1), ("\n", 0), ("", 0)])
def test_the_person_is_asked_about_each_fault(
    answer: str,
    num_fixes: int,
    sick: list[Check],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = Sick(helps=True)
    sick.append(check)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    flushed: list[None] = []
    monkeypatch.setattr(sys.stdout, "flush", lambda: flushed.append(None), raising=False)
    # Without it the question would not be on the screen yet.
    monkeypatch.setattr(sys.stdin, "readline", lambda: answer if flushed else "", raising=False)
    assert run() == (0 if num_fixes else 3)
    assert check.num_fixes == num_fixes
    assert "Heal it? [y/N]" in capsys.readouterr().out


def test_without_a_terminal_nothing_is_done_unasked(
    sick: list[Check], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Sick(helps=True)
    sick.append(check)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert run() == 3
    assert check.num_fixes == 0
    assert "Not repaired" in capsys.readouterr().out
