"""Standing in for the operations of the Models page, and models that are only made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from PySide6.QtWidgets import QWidget

from tests.gui.conftest import IdleTask
from tunesmith_core.downloads import Download
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.hub_fits import usual_card
from tunesmith_core.hub_repository import HubFile, HubModel
from tunesmith_core.model_library import Shelved
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_gui.library.shelf import Placed, Shelf
from tunesmith_gui.widgets.banner import Banner

GIB = 1 << 30
GPU = Hardware("cuda", "GPU", 12 * GIB, 12 * GIB, 64 * GIB, 64 * GIB, 0, (8, 9))


class Scripted(IdleTask):
    """An operation whose course the test tells."""

    made: ClassVar[list[Scripted]] = []
    """Every one since the test began."""

    def __init__(self, kind: Any, spec: Any, parent: Any) -> None:
        super().__init__(kind, spec, parent)
        self.begun = False
        self.made.append(self)

    def start(self) -> None:
        self.begun = True

    def tell(self, kind: str, **data: Any) -> None:
        event = Event(1, 0.0, kind, data)
        self.status.fold(event)
        self.happened.emit(event)

    def answer(self, value: Any) -> None:
        self.succeeded.emit(value)
        self.ended.emit(Outcome(OperationState.FINISHED, 0, value))

    def refuse(self, code: str, words: str = "words", **more: Any) -> None:
        error = TunesmithError(code, words, **more)
        self.failed.emit(error)
        self.ended.emit(Outcome(OperationState.FAILED, 3, error=error))


def last(kind: str) -> Scripted:
    """The newest operation of a kind."""
    return next(task for task in reversed(Scripted.made) if task.kind.name == kind)


def script(monkeypatch: pytest.MonkeyPatch) -> None:
    Scripted.made.clear()
    for module in ("services.operation", "library.get_more", "library.sheet", "new_run.hub_look"):
        monkeypatch.setattr(f"tunesmith_gui.{module}.OperationTask", Scripted)


def hub_model(name: str = "org/name", num_bytes: int = 3 * GIB, **more: Any) -> HubModel:
    files = (HubFile("config.json", 100, git_sha1="0" * 40), HubFile("model.safetensors", num_bytes, sha256="0" * 64))
    facts: dict[str, Any] = {"num_parameters": 1_500_000_000, "licence": "mit", "dtype": "BF16", "model_type": "qwen2"}
    page = f"https://hub.example/{name}"
    return HubModel(name, "c" * 40, page, files, context_length=4096, **(facts | more))


def placed(name: str, keeper: str = "tunesmith", runs: dict[str, str] | None = None, **more: Any) -> Placed:
    """A model on the shelf that is a card only."""
    card = None if more.pop("is_gguf", False) or "problem" in more else usual_card(135_000_000)
    path = Path("/models") / name.replace("/", "--")
    fits = {"qlora": "fits", "lora": "exceeds"} if card else {}
    return Placed(Shelved(path, name, keeper, GIB, card, 8192, **more), fits, runs or {})


def downloaded(name: str, **more: Any) -> Placed:
    return placed(name, download=Download(hub_model(name), name), **more)


def shelf_of(*models: Placed) -> Shelf:
    own = tuple(each for each in models if each.is_ours)
    return Shelf(own, tuple(each for each in models if not each.is_ours), GPU)


def banners(root: QWidget) -> str:
    shown = (each for each in root.findChildren(Banner) if each.isVisibleTo(root))
    return "\n".join(f"{each.accessibleName()}\n{each.accessibleDescription()}" for each in shown)


def press(root: QWidget, words: str) -> None:
    """Press the visible button of a banner."""
    (found,) = (
        each
        for banner in root.findChildren(Banner)
        if banner.isVisibleTo(root)
        for each in banner.buttons
        if each.text() == words
    )
    found.click()
