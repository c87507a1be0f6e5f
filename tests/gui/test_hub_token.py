"""The access token of the hub is in the keyring or nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail
from keyring.errors import PasswordDeleteError

from tunesmith_core import hub_token as core
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_gui.services import hub_token

TOKEN = "secret-of-a-person"


class Memory(KeyringBackend):
    """A keyring that forgets."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if (service, username) not in self.kept:
            raise PasswordDeleteError
        del self.kept[service, username]


@pytest.fixture(autouse=True)
def ring(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    before, memory = keyring.get_keyring(), Memory()
    keyring.set_keyring(memory)
    monkeypatch.setattr(core, "_sources", [])
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(home / "hf"))
    yield memory
    keyring.set_keyring(before)


def test_a_token_is_kept_used_and_forgotten(home: Path, ring: Memory) -> None:
    hub_token.use_keyring()
    assert core.token() == ""
    hub_token.save(TOKEN)
    assert (hub_token.load(), core.variables()) == (TOKEN, {"HF_TOKEN": TOKEN})
    assert [path for path in home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()] == []
    hub_token.save("")
    hub_token.save("")
    assert (ring.kept, core.token()) == ({}, "")


def test_without_a_keyring_nothing_is_kept(home: Path) -> None:
    keyring.set_keyring(fail.Keyring())
    assert hub_token.load() == ""
    with pytest.raises(EnvironmentProblem, match="keyring refused"):
        hub_token.save(TOKEN)
    assert list(home.rglob("*")) == []
