"""No secret reaches a log, and no flood fills the disk."""

from __future__ import annotations

import base64
import errno
import io
import os
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from tunesmith_core import capped_log, redact
from tunesmith_core.capped_log import STARTED_AGAIN, CappedLog, clean, copy_pipe, tail_of

SECRETS = [
    ("token hf_abcdefghijklmnop is bad", "hf_abc"),
    ("OPENAI sk-abcdefghijklmnop", "sk-abc"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123", "ghp_"),
    ("Authorization: Bearer abc.def-ghi_jkl", "abc.def"),
    ("Authorization: basic " + base64.b64encode(b"user:password").decode(), "dXNlcjpwYXNz"),
    ("HF_TOKEN=verysecretvalue next", "verysecret"),
    ('{"api_key": "verysecretvalue"}', "verysecret"),
    ("password: hunter2hunter2", "hunter2"),
    ("https://me:pass@example.org/x", "pass@"),
    ("https://token123456@example.org/x", "token123456"),
    ("GET https://example.org/f?X-Sig=abcdef&n=12", "abcdef"),
    ("mail somebody@example.org now", "somebody@"),
    ("/home/johndoe/file", "johndoe"),
    (r"C:\Users\johndoe\file", "johndoe"),
    (r"C:\\Users\\johndoe\\file", "johndoe"),
    ("C:/Users/johndoe/file", "johndoe"),
    (r"\\server\Users\johndoe\file", "johndoe"),
    ("file:///home/johndoe/file", "johndoe"),
    ("/mnt/c/Users/johndoe/file", "johndoe"),
    ("gcc -I/home/johndoe/include", "johndoe"),
    (r'"first\n/home/johndoe/file"', "johndoe"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_vanish_and_stay_vanished(text: str, secret: str) -> None:
    once = redact.redact(text)
    assert secret not in once
    assert redact.redact(once) == once


def test_ordinary_lines_stay() -> None:
    text = "step 3: loss 1.25, 12 tokens in layers.0.q_proj.weight; see https://example.org/page and a@b"
    assert redact.redact(text) == text


def test_home_and_user_name_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact.Path, "home", lambda: PurePosixPath("/srv/people/wilhelmina"))
    monkeypatch.setattr(redact.getpass, "getuser", lambda: "wilhelmina")
    assert redact.redact("/srv/people/wilhelmina/x: wilhelmina, not wilhelminas") == "~/x: <user>, not wilhelminas"


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/x/home/models/tiny",
        "/srv/Users/models/tiny",
        r"D:\data\Users\models\tiny",
        "/tmp/srv/people/models",
        "/srv/people2",
    ],
)
def test_only_homes_are_masked_in_a_path(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(redact.Path, "home", lambda: PurePosixPath("/srv/people"))
    assert redact.redact(f"{path}: is not a folder") == f"{path}: is not a folder"


def test_names_and_homes_count_from_a_length_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact.Path, "home", lambda: PurePosixPath("/abc"))
    monkeypatch.setattr(redact.getpass, "getuser", lambda: "anna")
    assert redact.redact("/abc/x anna") == "/abc/x <user>"
    monkeypatch.setattr(redact.Path, "home", lambda: PurePosixPath("/abcd"))
    assert redact.redact("/abcd/x") == "~/x"


def test_who_is_at_home_is_asked_again_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wilhelmina", "theodore"):
        monkeypatch.setattr(redact.Path, "home", lambda name=name: PurePosixPath(f"/srv/people/{name}"))
        monkeypatch.setattr(redact.getpass, "getuser", lambda name=name: name)
        assert redact.redact(f"/srv/people/{name}/x: {name}") == "~/x: <user>"


@pytest.mark.parametrize("name", ["root", "bob"])
def test_common_and_short_names_are_words(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setattr(redact.getpass, "getuser", lambda: name)
    assert redact.redact(f"/x {name}") == f"/x {name}"


def test_a_person_without_home_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> str:
        raise RuntimeError

    def nobody() -> str:
        raise OSError

    monkeypatch.setattr(redact.Path, "home", unknown)
    monkeypatch.setattr(redact.getpass, "getuser", nobody)
    assert redact.redact("/x") == "/x"


def test_terminal_tricks_are_taken_out() -> None:
    assert clean("\x1b[31mred\x1b[0m \x1b]0;title\x07x\x00\x08\n 10%\r 50%\r100%\r\nend") == "red x\n100%\nend"


def test_a_short_log_is_kept_whole_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    for text in (b"one\ntw", b"first life\n"):
        log = CappedLog(path)
        log.write(text)
        log.write(b"o\n" if text.endswith(b"tw") else b"no newline")
        log.close()
    assert path.read_text() == f"one\ntwo\n\n{STARTED_AGAIN}\nfirst life\nno newline"


def test_a_flood_keeps_head_and_tail_and_counts_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = CappedLog(path, cap_bytes=4000)
    lines = [b"line %06d\n" % number for number in range(10_000)]
    before = 0
    for line in lines:
        log.write(line)
        size = path.stat().st_size
        assert size <= 4000 + len(line)
        # Half of the cap is the head, a quarter of it is the tail.
        assert size > before or 3000 <= size <= 3050
        before = size
    log.close()
    text = path.read_text()
    assert text.index("\n[...") == 2000
    assert text.startswith("line 000000\n")
    assert text.endswith("line 009999\n")
    shown = [line for line in text.splitlines() if line.startswith("line ")]
    mark = next(line for line in text.splitlines() if line.startswith("[..."))
    assert str(log.num_dropped_bytes) in mark
    kept = len(text.encode()) - len(mark) - 2
    assert log.num_dropped_bytes + kept == sum(map(len, lines))
    assert len(shown) < 400


def test_lines_are_written_when_they_end_and_cut_when_they_are_long(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = CappedLog(path)
    log.write(b"one\n\x1b[3")
    assert path.read_text() == "one\n"
    log.write(b"1mtwo\nthree")
    assert path.read_text() == "one\ntwo\n"
    log.write(b"x" * (64 * 1024 - 6))
    assert path.stat().st_size == 8
    log.write(b"x")
    assert path.stat().st_size == 8 + 64 * 1024
    log.close()


def test_a_log_takes_8_mib(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = CappedLog(path)
    lines = b"line\n" * 100_000
    for number in range(1, 18):
        log.write(lines)
        assert (log.num_dropped_bytes > 0) == (number * len(lines) > 8 << 20)
    log.close()


def test_a_log_of_just_the_cap_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    log = CappedLog(path, cap_bytes=4000)
    log.write(b"123456789\n" * 400)
    assert (path.stat().st_size, log.num_dropped_bytes) == (4000, 0)
    log.write(b"\n")
    assert log.num_dropped_bytes > 0
    log.close()


def test_a_line_without_end_does_not_grow_in_memory(tmp_path: Path) -> None:
    log = CappedLog(tmp_path / "a.log", cap_bytes=1 << 18)
    for _ in range(40):
        log.write(b"x" * (1 << 15))
        assert len(log._pending) < capped_log.MAX_LINE_BYTES + (1 << 15)
    log.close()
    assert (tmp_path / "a.log").stat().st_size < 1 << 19


def test_a_log_that_cannot_be_written_never_blocks_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CappedLog(tmp_path / "a.log")
    calls = []

    def full(_lines: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log, "_append", full)
    pipe = io.BytesIO(b"a\n" * capped_log.MAX_LINE_BYTES * 2)
    copy_pipe(pipe, log, calls.append)
    assert pipe.read() == b""
    assert len(calls) == 1
    monkeypatch.undo()
    log.close()


def test_a_log_goes_on_once_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = CappedLog(tmp_path / "a.log")
    append, answers, calls = log._append, [True, False, True, True, False], []

    def sometimes_full(lines: bytes) -> None:
        if answers.pop(0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(lines)

    monkeypatch.setattr(log, "_append", sometimes_full)
    blocks = [b"one\n", b"two\n", b"three\n", b"four\n", b"five\n", b""]
    copy_pipe(SimpleNamespace(read1=lambda _: blocks.pop(0)), log, calls.append)  # type: ignore[arg-type]
    monkeypatch.undo()
    log.close()
    assert (tmp_path / "a.log").read_text() == "two\nfive\n"
    assert len(calls) == 2, "each fault is told once"


def test_the_tail_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes("\n".join(map(str, range(100))).encode())
    assert tail_of(path, num_lines=2) == "98\n99"
    assert tail_of(path, max_bytes=3) == "\n99"
    assert tail_of(path, max_bytes=5) == "98\n99"
    assert tail_of(path) == "\n".join(map(str, range(60, 100)))
    path.write_text("0123")
    assert tail_of(path, max_bytes=5) == "0123"
    assert tail_of(tmp_path / "none") == ""


def test_an_access_token_is_redacted_and_a_short_word_is_not() -> None:
    redact.note_secret("of")
    redact.note_secret("wonderful-token")
    assert redact.redact("a box of wonderful-token") == "a box of <secret>"
