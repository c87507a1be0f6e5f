"""Messages: English for whoever takes them for text, their templates for the edge, through files and back."""

from __future__ import annotations

import copy
import ctypes
import json
import string
from pathlib import Path
from types import SimpleNamespace

import pytest

from tunesmith_core import messages
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, MessageError, joined, json_problem, packed, phrase, restored, said
from tunesmith_core.protocol import Event, decode, encode
from tunesmith_core.settings import SettingsFile, language_in_force

BUSY = "The run {run} is still in progress."


def test_a_message_is_its_english_sentence() -> None:
    message = Message("{path}: {num:,} rows, {share:.0%}", path=Path("a.csv"), num=1234, share=0.5)
    assert message == "a.csv: 1,234 rows, 50%"
    assert json.loads(json.dumps({"message": message})) == {"message": "a.csv: 1,234 rows, 50%"}
    assert Message("no {values}") == "no {values}"
    assert copy.deepcopy(message).values == message.values


def test_it_is_said_in_another_language_with_the_messages_inside_it() -> None:
    message = Message("hint: {hint}", hint=Message(BUSY, run="r-1"))
    assert said(message) == "hint: The run r-1 is still in progress."
    assert said(message, "zh_CN") == "建议：运行 r-1 仍在进行。"
    assert said("The disk is full", "zh_CN") == "磁盘已满"
    assert said(Message("nobody knows {x}", x=1), "zh_CN") == "nobody knows 1"
    assert said(message, "xx") == str(message)


def test_a_template_of_another_version_falls_back_to_what_was_written() -> None:
    line = {"message": "as written", "templates": {"message": {"template": BUSY, "values": {"other": 1}}}}
    assert said(restored(line)["message"], "zh_CN") == "as written"


def test_an_error_keeps_its_template_through_the_journal() -> None:
    error = TunesmithError("run-busy", BUSY, run="r-1", hint=Message("hint: {hint}", hint=Message(BUSY, run="r-2")))
    event = decode(encode(Event(1, 0.0, "error", error.to_dict())))
    assert event is not None
    assert event.data == error.to_dict()
    again = TunesmithError.from_dict(event.data)
    assert said(again.message, "zh_CN") == "运行 r-1 仍在进行。"
    assert said(str(again.title), "zh_CN") == said(error.title, "zh_CN") != error.title
    assert "r-2" in said(again.hint, "zh_CN")
    assert TunesmithError.from_dict({"code": "run-busy", "message": 7}).message == "7"


def test_lists_and_nested_objects_are_packed_too() -> None:
    value = {"kernels": [Message(BUSY, run="a"), "plain"], "inner": [{"fix": Message(BUSY, run="b")}], "pair": (1, 2)}
    again = restored(json.loads(json.dumps(packed(value))))
    assert again == {**value, "pair": [1, 2]}
    assert [said(each, "zh_CN") for each in again["kernels"]] == ["运行 a 仍在进行。", "plain"]
    assert said(again["inner"][0]["fix"], "zh_CN") == "运行 b 仍在进行。"
    assert packed({"plain": "x"}) == {"plain": "x"}


@pytest.mark.parametrize("spelled", [7, {"m": 7}, {"m": {"values": 3}}, {"m": ["x"]}, {"other": {}}])
def test_damaged_templates_leave_the_sentence(spelled: object) -> None:
    assert restored({"m": "text", "n": 1, "templates": spelled}) == {"m": "text", "n": 1}


@pytest.mark.parametrize(("identifier", "language"), [(0x0804, "zh_CN"), (0x0409, "en"), (0xFFFF, "en")])
def test_windows_itself_tells_the_language(monkeypatch: pytest.MonkeyPatch, identifier: int, language: str) -> None:
    """No shell of Windows sets LANG."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    kernel32 = SimpleNamespace(GetUserDefaultUILanguage=lambda: identifier)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    monkeypatch.setattr(messages.sys, "platform", "win32")
    assert messages.system_language() == language
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert messages.system_language() == "zh_CN", "what the person set in the shell wins"


@pytest.mark.parametrize(("variable", "language"), [("zh_CN.UTF-8", "zh_CN"), ("de_DE", "en"), ("", "en")])
def test_the_language_of_the_system(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, language: str) -> None:
    for name in ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", variable)
    assert messages.system_language() == language
    assert SettingsFile().path.is_relative_to(home)
    assert language_in_force() == language


def test_the_chosen_language_wins(home: Path) -> None:
    file = SettingsFile()
    assert file.path.is_relative_to(home)
    file.change(language="zh_CN")
    file.save()
    assert language_in_force() == "zh_CN"


def test_translations_take_the_values_of_their_templates() -> None:
    table = json.loads((messages.FOLDER / "zh_CN.json").read_text(encoding="utf-8"))
    assert len(table) > 300
    wrong = [english for english, chinese in table.items() if _names(chinese) - _names(english)]
    assert wrong == []


def _names(template: str) -> set[str]:
    try:
        return {name for _text, name, _spec, _conversion in string.Formatter().parse(template) if name}
    except ValueError:
        # A text that shows braces, which is never filled.
        return set()


def test_joined_texts_are_each_said_in_their_language() -> None:
    both = joined([Message("The run {run} is still in progress.", run="r"), "plain"])
    assert both == "The run r is still in progress. plain"
    assert said(both, "zh_CN") == "运行 r 仍在进行。 plain"
    assert said(restored(packed({"m": both}))["m"], "zh_CN") == "运行 r 仍在进行。 plain"


def test_an_error_that_stays_inside_keeps_its_message() -> None:
    assert MessageError("{name} is missing", name="x").message.template == "{name} is missing"
    made = Message("done")
    assert MessageError(made).message is made


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{a: 1}",
        '{"a": 1 "b": 2}',
        '{"a" 1}',
        '{"a": 1,}',
        "[1,]",
        "{} {}",
        '{"a": "b}',
        '{"a": "\t"}',
        '{"a": "\\x"}',
        '{"a": "\\u12"}',
    ],
)
def test_what_python_says_about_json_is_said_in_our_words(broken: str) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads(broken)
    words = json_problem(caught.value.msg)
    assert isinstance(words, Message)
    assert words != caught.value.msg


def test_our_own_words_about_json_stay() -> None:
    assert json_problem(Message("brackets are nested too deeply")) == "brackets are nested too deeply"


def test_the_language_in_force_is_told() -> None:
    for chosen, told in (("zh_CN", "zh_CN"), ("en", "en"), ("", "en")):
        messages.use_language(chosen)
        assert messages.language() == told


def test_words_of_a_library_end_no_sentence_of_ours() -> None:
    assert [phrase(words) for words in ("No more data to read.", "odd", ValueError(" a.. "))] == [
        "No more data to read",
        "odd",
        "a",
    ]
