"""A tiny model in one file and in several, and a hub that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hub.loopback import LoopbackHub, repository_of, serving
from tests.tiny_model import build_tiny_model
from tunesmith_core.protocol import EVENT_TYPES
from tunesmith_engine.hub.attempts import Retry

QUICK = Retry(connect_s=2.0, stall_s=0.15, tries=5, pause_s=0.001, longest_pause_s=0.002, longest_wait_s=5.0)


class Journal:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def event(self, kind: str, /, **data: Any) -> None:
        assert kind in EVENT_TYPES
        self.events.append((kind, data))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [data for each, data in self.events if each == kind]


@pytest.fixture(scope="session")
def whole_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_tiny_model(tmp_path_factory.mktemp("whole"))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Tiny\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def sharded_model(whole_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("sharded")
    AutoModelForCausalLM.from_pretrained(whole_model).save_pretrained(folder, max_shard_size="100KB")
    AutoTokenizer.from_pretrained(whole_model).save_pretrained(folder)
    assert len(list(folder.glob("model-*.safetensors"))) >= 4
    return folder


@pytest.fixture
def hub(whole_model: Path, sharded_model: Path, home: Path) -> Iterator[LoopbackHub]:
    with serving(whole=repository_of(whole_model), sharded=repository_of(sharded_model)) as hub:
        yield hub


@pytest.fixture
def journal() -> Journal:
    return Journal()
