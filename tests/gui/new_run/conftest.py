"""A Train page on its own data root, with devices that a test chooses and a sound model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from tests.gui.new_run.driving import GIB, Begins, close, make_page
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.engine import PREVIEW, PreviewSpec
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.new_run import doubts_first, looks, rested_look
from tunesmith_gui.new_run.page import NewRunPage

CPU = Hardware("cpu", "x86", 16 * GIB, 8 * GIB, 16 * GIB, 8 * GIB)
CONFIG = {
    "model_type": "llama",
    "num_attention_heads": 2,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "vocab_size": 16,
}


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> list[Hardware]:
    """The devices that the page finds; a test may change the list."""
    found = [CPU]
    monkeypatch.setattr(looks, "detect_hardware", lambda: list(found))
    monkeypatch.setattr(looks, "HARDWARE_KEPT_S", -1.0)
    return found


class Looked(QObject):
    """Stands in for the look at the data before a run: answers at once what a test says."""

    succeeded, failed, ended = Signal(object), Signal(object), Signal(object)
    answer: ClassVar[dict[str, Any] | TunesmithError] = {}
    specs: ClassVar[list[RunSpec]] = []

    def __init__(self, _kind: object, spec: RunSpec, parent: QObject) -> None:
        super().__init__(parent)
        self.spec = spec
        self.cancelled = False
        self.specs.append(spec)

    def cancel(self) -> None:
        """Answers no more."""
        self.cancelled = True

    def start(self) -> None:
        """Answers."""
        is_error = isinstance(self.answer, TunesmithError)
        (self.failed if is_error else self.succeeded).emit(self.answer)
        self.ended.emit(None)


@pytest.fixture(autouse=True)
def looked(monkeypatch: pytest.MonkeyPatch) -> type[Looked]:
    """What is found in the data before a run: nothing, unless a test says otherwise."""
    sources = [{"num_rows": 3, "num_unreviewed": 0}]
    Looked.answer, Looked.specs = {"sources": sources, "is_complete": True, "warnings": []}, []
    monkeypatch.setattr(doubts_first, "operations", lambda: Begins(Looked))
    return Looked


class Previewed(QObject):
    """Stands in for the look at how long rows are: answers what a test says, nothing unless it does."""

    succeeded, failed = Signal(object), Signal(object)
    answer: ClassVar[dict[str, Any] | None] = None
    specs: ClassVar[list[RunSpec]] = []

    def __init__(self, _kind: object, spec: PreviewSpec, parent: QObject) -> None:
        super().__init__(parent)
        self.specs.append(spec.run)

    def cancel(self) -> None:
        """Answers no more."""
        self.blockSignals(True)

    def start(self) -> None:
        """Answers."""
        if self.answer is not None:
            self.succeeded.emit(self.answer)


@pytest.fixture(autouse=True)
def previewed(monkeypatch: pytest.MonkeyPatch) -> type[Previewed]:
    """How long the rows are: nobody says it unless a test does."""
    Previewed.answer, Previewed.specs = None, []
    monkeypatch.setattr(rested_look, "OperationTask", _looked_at)
    monkeypatch.setattr(rested_look, "REST_MS", 0)
    return Previewed


class Checked(Looked):
    """Stands in for the look at the model's weights: all are there unless a test says otherwise."""

    answer: ClassVar[dict[str, Any] | TunesmithError] = {}
    specs: ClassVar[list[RunSpec]] = []

    def cancel(self) -> None:
        """Answers no more."""
        self.blockSignals(True)


@pytest.fixture(autouse=True)
def checked() -> type[Checked]:
    """What is found in the model's files."""
    Checked.answer, Checked.specs = {}, []
    return Checked


def _looked_at(kind: Kind, spec: Any, parent: QObject) -> QObject:
    return (Previewed if kind is PREVIEW else Checked)(kind, spec, parent)


@pytest.fixture
def model(home: Path, model_folder: Path) -> Path:
    """A sound model in the models folder."""
    folder = home / "models" / "tiny-chat"
    shutil.copytree(model_folder, folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture
def page(qtbot: QtBot, context: Context, fake_engine: object) -> Iterator[NewRunPage]:
    """The page, shown, with a training environment."""
    del fake_engine
    result = make_page(qtbot, context)
    yield result
    close(result)
