"""What the Train page finds out beside the form."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from tests.workbooks import write_workbook
from tunesmith_core.hardware import Hardware
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_gui.background import Latest
from tunesmith_gui.new_run.looks import device_for, look_at_model
from tunesmith_gui.services import workbook
from tunesmith_gui.services.data_facts import NUM_MEASURED, look_at_data

CPU = Hardware("cpu", "x86", 8, 4, 8, 4)
GPUS = [Hardware("cuda", f"card {index}", 8, 4, 8, 4, gpu_index=index) for index in (0, 1)]


@pytest.mark.parametrize(
    ("choice", "index", "devices", "name"),
    [
        ("auto", 0, [CPU], "x86"),
        ("auto", 1, [*GPUS, CPU], "card 1"),
        ("cpu", 0, [*GPUS, CPU], "x86"),
        ("cuda", 0, [*GPUS, CPU], "card 0"),
        ("cuda", 0, [CPU], None),
        ("cuda", 5, [*GPUS, CPU], None),
    ],
)
def test_the_device_is_the_one_that_the_spec_means(
    choice: str, index: int, devices: list[Hardware], name: str | None
) -> None:
    spec = RunSpec()
    spec.hardware.devices = [f"{choice}:{index}" if index else choice]
    found = device_for(spec, devices)
    assert (found.name if found else None) == name


def test_an_overtaken_answer_is_dropped(qtbot: QtBot) -> None:
    owner = QObject()
    latest, gate, answers = Latest(owner), threading.Event(), list[str]()

    def slow() -> str:
        gate.wait(5)
        return "old"

    latest.ask(slow, answers.append)
    latest.ask(lambda: "new", answers.append)
    qtbot.waitUntil(lambda: answers == ["new"], timeout=5000)
    gate.set()
    qtbot.wait(50)
    assert answers == ["new"]


def test_a_model_that_names_no_numbers_is_planned_by_its_shapes(model_folder: Path) -> None:
    facts = look_at_model(str(model_folder))
    assert facts.error is None
    assert facts.card is not None
    assert not facts.is_hub_id


def test_a_folder_is_data_that_libraries_read(tmp_path: Path, home: Path) -> None:
    assert home.exists()
    facts = look_at_data(DataSpec(sources=[SourceSpec(path=str(tmp_path))]))
    assert facts.error is None
    assert facts.sniffed is not None
    assert (facts.sniffed.kind, facts.head) == ("folder", ())


def test_a_slow_answer_is_announced_and_an_error_arrives(qtbot: QtBot) -> None:
    owner = QObject()
    latest, gate, errors = Latest(owner), threading.Event(), list[object]()

    def slow() -> None:
        gate.wait(5)
        raise OSError("gone")

    with qtbot.waitSignal(latest.slow, timeout=5000):
        latest.ask(slow, lambda _result: None, errors.append)
    gate.set()
    qtbot.waitUntil(lambda: len(errors) == 1, timeout=5000)


def test_files_beside_the_first_are_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    sources = [SourceSpec(path=str(tmp_path / "a.jsonl"))]
    sources += [
        SourceSpec(path=str(write_workbook(tmp_path / f"{number}.xlsx", {"A": [["text"], ["b"]]})))
        for number in range(NUM_MEASURED + 1)
    ]
    found = {"rows": [{"text": "b"}], "num_rows": 1, "longest_row_bytes": 13}
    ended = Outcome(OperationState.FINISHED, 0, {**found, "sheet": "A", "sheets": ["A"], "problem": None, "notes": {}})
    monkeypatch.setattr(workbook, "conduct", lambda _kind, _spec: ended)
    others = look_at_data(DataSpec(sources=sources)).others
    lengths = [other.sniffed.longest_row_bytes if other.sniffed else 0 for other in others]
    assert lengths == [13] * NUM_MEASURED + [None]
