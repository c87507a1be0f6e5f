"""Journal and commands: what is written comes back, what is torn is passed over, what is garbled is counted."""

from __future__ import annotations

import errno
import json
import math
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunesmith_core import files, protocol
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.protocol import (
    CommandInbox,
    Event,
    JournalReader,
    JournalWriter,
    decode,
    encode,
    post_command,
    read_command,
    read_journal,
)


def write(path: Path, *kinds: str) -> None:
    writer = JournalWriter(path)
    for number, kind in enumerate(kinds):
        writer.write(kind, number=number)
    writer.close()


def test_events_come_back_in_order_with_their_fields(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = JournalWriter(path)
    writer.write("hello", text="zwölf 十二\u2028\n", nested={"a": [1]})
    writer.write("step", loss=math.inf, lr=1e-4)
    writer.close()
    hello, step = read_journal(path)
    assert (hello.seq, hello.type, hello.data["text"], hello.data["nested"]) == (
        1,
        "hello",
        "zwölf 十二\u2028\n",
        {"a": [1]},
    )
    assert step.data == {"loss": None, "lr": 1e-4, "nonfinite": ["loss"]}
    assert len(path.read_bytes().splitlines()) == 2


def test_numbers_that_json_lacks_are_null_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = JournalWriter(path)
    answer = {"rows": [{"loss": math.nan, "step": 1}, {"loss": 0.5}], "range": (1.0, -math.inf)}
    writer.write("result", status="finished", answer=answer)
    writer.close()
    (event,) = read_journal(path)
    assert event.data["answer"] == {"rows": [{"loss": None, "step": 1}, {"loss": 0.5}], "range": [1.0, None]}
    assert event.data["nonfinite"] == ["answer.rows[0].loss", "answer.range[1]"]


def test_an_unknown_type_is_our_bug_when_written_and_counted_when_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = JournalWriter(path)
    with pytest.raises(ValueError, match="unknown event type"):
        writer.write("dance")
    writer.close()
    path.write_bytes(encode(Event(1, 0.0, "dance")) + encode(Event(2, 0.0, "log", {"new_field": 1})))
    reader = JournalReader(path)
    assert [event.seq for event in reader.read()] == [2]
    assert reader.num_unknown == 1


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_no_bytes_break_the_decoder(line: bytes) -> None:
    assert decode(line) is None
    decode(line + b',"crc":"%08x"}' % zlib.crc32(line))


def test_a_changed_byte_is_noticed() -> None:
    line = encode(Event(7, 1.5, "step", {"loss": 2.5})).rstrip(b"\n")
    assert decode(line) == Event(7, 1.5, "step", {"loss": 2.5})
    for index in range(len(line)):
        assert decode(line[:index] + bytes([line[index] ^ 1]) + line[index + 1 :]) is None


def test_a_newer_major_version_is_refused() -> None:
    body = b'{"v":2,"seq":1,"t":0,"type":"step"'
    with pytest.raises(EnvironmentProblem) as caught:
        decode(body + b',"crc":"%08x"}' % zlib.crc32(body))
    assert caught.value.code == "protocol-mismatch"


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_closed_and_numbering_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "hello", "step", "step")
    path.write_bytes(path.read_bytes()[:-cut])
    assert [event.seq for event in read_journal(path)] == [1, 2]
    write(path, "result")
    events = read_journal(path)
    # A line that lost nothing but its newline counts once it is closed.
    assert [event.type for event in events] == ["hello", "step", *(["step"] if cut == 1 else []), "result"]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_the_reader_goes_on_where_it_was_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = JournalReader(path)
    assert reader.read() == []
    write(path, "hello")
    whole = encode(Event(2, 0.0, "step"))
    with path.open("ab") as file:
        file.write(whole[:10])
    assert [event.seq for event in reader.read_all()] == [1]
    assert reader.read() == []
    with path.open("ab") as file:
        file.write(whole[10:])
    assert [event.seq for event in JournalReader(path, reader.offset).read()] == [2]
    with path.open("ab") as file:
        file.write(b"garbage\n\n")
    reader.read()
    assert reader.num_bad_lines == 1


@pytest.mark.parametrize("cut", [1, 3, 20, -20, -2])
def test_a_line_that_was_cut_off_is_no_damage(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events.jsonl"
    whole = encode(Event(1, 0.0, "step", {"loss": 1.0}))
    path.write_bytes(whole[:cut] + b"\n" + b"\0" * 50 + b"\n" + encode(Event(2, 0.0, "step")))
    reader = JournalReader(path)
    assert [event.seq for event in reader.read()] == [2]
    assert (reader.num_bad_lines, reader.num_garbled, reader.damage()) == (2, 0, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"loss":1.0', b'"loss":9.0'),
        lambda line: line.replace(b'"t":5.0', b'"t":NaN'),
        lambda line: b"\x8f\x02" + line,
        lambda line: b"garbage",
    ],
)
def test_a_line_that_somebody_changed_is_damage(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(change(encode(Event(1, 5.0, "step", {"loss": 1.0})).rstrip()) + b"\n")
    reader = JournalReader(path)
    assert reader.read() == []
    problem = reader.damage()
    assert problem is not None
    assert problem.code == "run-damaged"
    assert problem.message == f"{path}: lines that are damaged: 1. What they reported is missing."


def test_a_line_longer_than_a_block_does_not_hold_up_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = JournalWriter(path)
    writer.write("log", text="x" * 1000)
    writer.write("log", text="y")
    writer.close()
    reader = JournalReader(path)
    assert [len(event.data["text"]) for event in reader.read(max_bytes=100)] == [1000]
    assert [event.data["text"] for event in reader.read(max_bytes=100)] == ["y"]


def test_the_last_number_is_found_behind_much_garbage(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "hello", "step")
    with path.open("ab") as file:
        file.write(b"x" * (1 << 17) + b"\n")
    assert protocol.last_seq(path) == 2
    path.write_bytes(b"only garbage\n")
    assert protocol.last_seq(path) == 0
    assert protocol.last_seq(tmp_path / "none") == 0


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "events.jsonl")
    threads = [
        threading.Thread(target=lambda: [writer.write("log", text="x" * 50) for _ in range(100)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert [event.seq for event in read_journal(tmp_path / "events.jsonl")] == list(range(1, 401))


def test_a_lone_surrogate_does_not_kill_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = JournalWriter(path)
    writer.write("log", text="bad \udc80 name")
    writer.close()
    assert read_journal(path)[0].data["text"] == "bad ? name"


def test_commands_are_taken_once_in_order_and_rubbish_is_dropped(tmp_path: Path) -> None:
    control = tmp_path / "control"
    inbox = CommandInbox(control)
    assert inbox.poll() == []
    first = protocol.post_command(control, "sample", prompt="Who?")
    second = protocol.post_command(control, "stop", mode="save")
    (control / "0-torn.json").write_text('{"v":1,')
    (control / "0-list.json").write_text("[]")
    (control / "0-newer.json").write_text(json.dumps({"v": 2, "id": "x", "command": "stop"}))
    (control / "0-unknown.json").write_text(json.dumps({"v": 1, "id": "x", "command": "dance"}))
    (control / "0-odd.json").write_text(json.dumps({"v": 1, "id": "x", "command": ["stop"]}))
    (control / ".half.json.tmp").write_text("")
    commands = inbox.poll()
    assert [(command.id, command.name, command.data) for command in commands] == [
        (first, "sample", {"prompt": "Who?"}),
        (second, "stop", {"mode": "save"}),
    ]
    assert inbox.poll() == []
    with pytest.raises(ValueError, match="unknown command"):
        protocol.post_command(control, "dance")


def test_a_command_that_is_held_for_a_moment_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    post_command(tmp_path, "stop", mode="save")
    inbox, read_json, held = CommandInbox(tmp_path), files.read_json, [True]

    def read(path: Path) -> object:
        if held.pop() if held else False:
            raise PermissionError(13, "held", str(path))
        return read_json(path)

    monkeypatch.setattr(files, "read_json", read)
    assert inbox.poll() == []
    assert read_command(tmp_path / "gone.json") is None
    assert [command.name for command in inbox.poll()] == ["stop"]
    assert inbox.poll() == []


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, "permission-or-antivirus"), (errno.EISDIR, "run-damaged")])
def test_a_journal_that_can_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    path = tmp_path / "events.jsonl"

    def refuse(*_: object) -> None:
        raise OSError(number, "No", str(path))

    monkeypatch.setattr(files, "open_file", refuse)
    with pytest.raises(TunesmithError) as caught:
        JournalReader(path).read()
    assert caught.value.code == code
    assert "events.jsonl" in caught.value.message


def test_a_size_that_nothing_can_show_is_left_out() -> None:
    line = encode(Event(1, 5.0, "checkpoint", {"step": 2, "bytes": -(10**30), "seconds": 10**30}))
    event = protocol.decode(line)
    assert event is not None
    assert event.data == {"step": 2, "seconds": 10**30}
