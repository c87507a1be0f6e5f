"""Errors: catalogue, exit codes, round trip, and what other exceptions become."""

from __future__ import annotations

import errno
import re

import pytest

from tunesmith_core import errors
from tunesmith_core.error_codes import CODES


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_says_title_cause_and_next_step(code: str) -> None:
    entry = CODES[code]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code)
    assert entry.title
    assert not entry.title.endswith(".")
    assert entry.cause.endswith(".")
    assert entry.action


def test_the_exit_code_says_who_can_act() -> None:
    kinds = (errors.BugError, errors.UserError, errors.EnvironmentProblem, errors.RunFailure)
    assert [kind.exit_code for kind in kinds] == [1, 2, 3, 4]


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown error code"):
        errors.UserError("no-such-code", "x")


def test_the_general_next_step_stands_in_for_a_missing_hint() -> None:
    assert errors.UserError("disk-full", "x").hint == CODES["disk-full"].action
    assert errors.UserError("disk-full", "x", hint="Buy a disk.").hint == "Buy a disk."


def test_an_error_survives_the_journal() -> None:
    error = errors.RunFailure("cuda-oom", "8 GiB wanted", hint="h", link="l", actions=["retry"]).with_context("tail")
    again = errors.TunesmithError.from_dict(error.to_dict())
    assert type(again) is errors.RunFailure
    assert again.to_dict() == error.to_dict()


def test_an_error_of_a_newer_version_keeps_its_text() -> None:
    again = errors.TunesmithError.from_dict({"code": "from-the-future", "message": "words", "hint": "do it"})
    assert (type(again), again.message, again.hint) == (errors.BugError, "words", "do it")
    assert errors.TunesmithError.from_dict({}).message == "None"
    strange = errors.TunesmithError.from_dict({"code": "disk-full", "kind": "Strange", "message": "m", "actions": 5})
    assert (type(strange), strange.code, strange.actions) == (errors.BugError, "disk-full", ())


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "disk-full"),
        (errno.EACCES, "permission-or-antivirus"),
        (errno.EROFS, "permission-or-antivirus"),
        (errno.ENAMETOOLONG, "path-too-long"),
        (errno.ENOEXEC, "environment-missing"),
        (errno.ENOMEM, "memory-full"),
        (errno.EIO, "permission-or-antivirus"),
        (errno.EINVAL, "bug"),
    ],
)
def test_what_the_system_says_gets_a_code(number: int, code: str) -> None:
    wrapped = errors.wrap(OSError(number, "words", "/some/file"))
    assert wrapped.code == code
    assert "/some/file" in wrapped.message


def test_everything_else_is_a_bug_with_its_traceback() -> None:
    with pytest.raises(KeyError) as caught:
        {}["x"]
    wrapped = errors.wrap(caught.value)
    assert wrapped.code == "bug"
    assert wrapped.context is not None
    assert "test_errors.py" in wrapped.context
    assert errors.wrap(wrapped) is wrapped
    assert errors.wrap(OSError(errno.ENOSPC, "full")).message == "no space is left on the disk."


def test_the_code_decides_the_kind_unless_the_place_does() -> None:
    for code, entry in CODES.items():
        assert type(errors.TunesmithError(code, "x")).__name__ == entry.kind
    assert type(errors.EnvironmentProblem("cuda-oom", "the proof ran out")) is errors.EnvironmentProblem
