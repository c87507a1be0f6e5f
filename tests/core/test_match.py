"""A pattern that a person gives: found or not, refused by name, and never longer or larger than it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunesmith_core.errors import UserError
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.match import MATCH, MatchSpec, match
from tunesmith_core.operations.runner import conduct

pytestmark = pytest.mark.usefixtures("home")


def test_it_is_told_of_each_text_whether_the_pattern_is_found() -> None:
    outcome = conduct(MATCH, MatchSpec(r"^\d{3}-\d{4}$", ["555-1234", "call 555-1234", "", "电话"]))
    assert outcome.get() == [True, False, False, False]
    assert conduct(MATCH, MatchSpec("(?i)hello|你好", ["Hello!", "你好。", "bye"])).get() == [True, True, False]
    assert conduct(MATCH, MatchSpec("x", [])).get() == []


@pytest.mark.parametrize(
    "pattern", ["(", "*a", "[a", "a{2,1}", "(?<=a+)b", "\\", "(" * 3000 + ")" * 3000, "a{9999999999}"]
)
def test_what_is_no_pattern_is_refused_by_name(pattern: str, tmp_path: Path) -> None:
    with Host(Operation(tmp_path)) as host, pytest.raises(UserError, match="is not a regular expression: ") as caught:
        match(host, MatchSpec(pattern, ["a"]))
    assert caught.value.message.startswith(pattern)
    assert "backslash" in caught.value.hint


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "(a?){40}b"])
def test_a_pattern_that_would_take_years_is_ended(pattern: str) -> None:
    outcome = conduct(MATCH, MatchSpec(pattern, ["short", "a" * 100 + "!"]))
    assert outcome.state is OperationState.FAILED
    assert outcome.error is not None
    assert outcome.error.code == "foreign-limit"
    assert "the pattern took longer than 2 s" in outcome.error.message
