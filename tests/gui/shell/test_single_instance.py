"""Single instance: the second start raises the first window and hands its files over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtNetwork import QLocalSocket
from pytestqt.qtbot import QtBot

from tunesmith_core.environments import own_command
from tunesmith_gui.shell import single_instance
from tunesmith_gui.shell.single_instance import SingleInstance, hand_over, server_name


@pytest.fixture
def first(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SingleInstance]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    instance = SingleInstance()
    assert instance.claim()
    yield instance
    instance.release()


def test_second_claim_fails_until_the_first_releases(first: SingleInstance) -> None:
    second = SingleInstance()
    assert not second.claim()
    first.release()
    assert second.claim()
    second.release()


def test_socket_left_by_a_killed_window_is_no_hindrance(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home))
    Path(server_name()).touch()
    instance = SingleInstance()
    assert instance.claim()
    instance.release()


def test_second_start_of_the_program_raises_the_first(first: SingleInstance, qtbot: QtBot, tmp_path: Path) -> None:
    with qtbot.waitSignal(first.raised, timeout=20_000) as blocker:
        program = subprocess.Popen(
            own_command("tunesmith_gui", "a b.jsonl", "数据.jsonl"),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    _out, err = program.communicate(timeout=20)
    assert (program.returncode, err) == (0, b"")
    assert blocker.args == [[str(tmp_path / "a b.jsonl"), str(tmp_path / "数据.jsonl")]]


@pytest.mark.parametrize("line", [b"hello\n", b'{"files": 1}\n', b'{"files": [], "token"\n', b"[]\n"])
def test_strange_messages_are_dropped(first: SingleInstance, qtbot: QtBot, line: bytes) -> None:
    socket = QLocalSocket()
    with qtbot.assertNotEmitted(first.raised, wait=50):
        socket.connectToServer(server_name())
        socket.write(line)
    qtbot.waitUntil(lambda: socket.state() == QLocalSocket.LocalSocketState.UnconnectedState)


def test_message_in_pieces_is_read_when_it_is_whole(first: SingleInstance, qtbot: QtBot) -> None:
    message = json.dumps({"files": ["/a"], "token": ""}).encode() + b"\n"
    socket = QLocalSocket()
    socket.connectToServer(server_name())
    with qtbot.assertNotEmitted(first.raised, wait=50):
        socket.write(message[:10])
    with qtbot.waitSignal(first.raised):
        socket.write(message[10:])
    socket.abort()


def test_nobody_there_is_false_not_a_hang(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_instance, "CONNECT_S", 0.1)
    assert hand_over([]) is False


@pytest.mark.skipif(sys.platform == "win32", reason="Unix permissions")
def test_other_users_cannot_open_the_socket(first: SingleInstance) -> None:
    assert Path(server_name()).stat().st_mode & 0o077 == 0
