"""Foreign text as letters: no control reaches a terminal, and JSON keeps its values."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tunesmith_core import terminal
from tunesmith_core.plain_text import num_columns, one_line, pasted, shortened, visible, visible_json
from tunesmith_core.protocol import Event

CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x202A, 0x202E, 0x2066, 0x2069, 0x200E, 0x61C, 0x2028, 0xDCFF]
STEERING = list(map(chr, CONTROLS))


@pytest.mark.parametrize("letter", STEERING, ids=ascii)
def test_every_control_is_spelled_out(letter: str) -> None:
    for shown in (visible(f"a{letter}b"), one_line(f"a{letter}b")):
        assert shown.isprintable() or shown == "a\nb"
    assert "\n" not in one_line(f"a{letter}b")
    as_json = visible_json(json.dumps(letter, ensure_ascii=False))
    assert as_json.isprintable()
    assert json.loads(as_json) == letter


@pytest.mark.skipif(sys.platform == "win32", reason="quotes are others there")
def test_a_command_is_pasted_as_letters_and_means_the_same() -> None:
    assert pasted(["tunesmith", "export", "my run"]) == "tunesmith export 'my run'"
    assert pasted(["a\x1b'b\\c\t"]) == r"$'a\x1b\'b\\c\t'"


def test_letters_of_all_languages_stay() -> None:
    for text in ("Grüße 训练 🦙 नमस्ते שלום", "\U0001f468\u200d\U0001f469", "a < b & c"):
        assert visible(text) == one_line(text) == text


def test_lines_and_tabs_of_a_log_stay_readable() -> None:
    assert visible("one\r\n\ttwo\n") == "one\n    two\n"
    assert visible("50%\r100%") == "50%\\r100%"
    assert visible("\x1b[31mred\x1b]0;title\x07") == "\\x1b[31mred\\x1b]0;title\\x07"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("abcd", "abcd"), ("abcde", "abc…"), ("训练", "训练"), ("训练a", "训…"), ("", ""), ("e\u0301" * 4, "e\u0301" * 4)],
)
def test_what_is_too_wide_ends_in_an_ellipsis(text: str, shown: str) -> None:
    assert shortened(text, 4) == shown
    assert num_columns(shown) <= 4


def test_a_hostile_cell_moves_no_other_row(capsys: pytest.CaptureFixture[str]) -> None:
    table = terminal.table(["Run", "State"], [["a\nb\x1b[2J", "ok"], ["训练", "ok"], ["x" * 70_000, "ok"]])
    terminal.say(table)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines[:3]] == [line.rstrip() for line in lines[:3] if len(line) < 80]
    assert "a\\nb\\x1b[2J" in lines[1]
    assert len(lines) == 4
    assert len(lines[3]) < 300
    assert {num_columns(line) for line in lines[1:3]} == {terminal.MAX_PADDED_COLUMNS + len("  ok")}


def test_a_step_is_drawn_over_whatever_it_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    progress = terminal.Progress()
    progress.show(Event(1, 0.0, "step", {"step": 1, "loss": 1.0}))
    progress.show(Event(2, 0.0, "log", {"level": "info", "text": "\x1b[1mbold\r\x9b5A"}))
    written = capsys.readouterr().out
    assert written.endswith("\r\\x1b[1mbold\\r\\x9b5A\n")
    assert "\x1b" not in written


def test_json_is_json_on_a_stream_that_lacks_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252", errors="backslashreplace"))
    terminal.say_json({"name": "训练 🦙 \udcff"})
    assert json.loads(written.getvalue()) == {"name": "训练 🦙 \udcff"}


def test_an_answer_is_asked_for_on_the_same_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(" YES \n"))
    assert terminal.ask("Remove \x1b[31m? ") == "yes"
    assert capsys.readouterr().out == "Remove \\x1b[31m? "


def test_a_closed_stream_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    terminal.note("nobody reads this")
