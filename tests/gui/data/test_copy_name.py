"""The name of a copy: beside the file, and with the ending of what is written into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtWidgets import QFileDialog, QWidget
from pytestqt.qtbot import QtBot

from tunesmith_core.operations.kinds.data import WRITTEN
from tunesmith_gui.data.copy_name import ask_for_copy
from tunesmith_gui.data.home import sample_path
from tunesmith_gui.widgets.confirm import ConfirmDialog
from tunesmith_gui.widgets.safe_label import SafeLabel


@pytest.fixture
def parent(qtbot: QtBot) -> QWidget:
    result = QWidget()
    qtbot.addWidget(result)
    return result


def choose(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Path, str]]:
    """Types a name into each file dialog; returns what was proposed, and the kinds that were offered."""
    asked: list[tuple[Path, str]] = []

    def ask(_parent: object, _title: str, start: str, kind: str, *_: object) -> tuple[str, str]:
        asked.append((Path(start), kind))
        return str(Path(start).with_name(name)), kind

    monkeypatch.setattr(QFileDialog, "getSaveFileName", ask)
    return asked


def test_a_copy_is_proposed_beside_the_file(
    parent: QWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = choose(monkeypatch, "mine.jsonl")
    assert ask_for_copy(parent, "Save as", tmp_path / "table.csv", "-edited") == tmp_path / "mine.jsonl"
    assert asked == [(tmp_path / "table-edited.jsonl", "JSON Lines (*.jsonl)")]
    ask_for_copy(parent, "Save as", Path(sample_path("en")), "-edited")
    assert asked[1][0].parent != Path(sample_path("en")).parent, "that is the program's own folder"


@pytest.mark.parametrize("agrees", [True, False])
def test_another_ending_is_changed_and_said(
    parent: QWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agrees: bool
) -> None:
    choose(monkeypatch, "mine.xlsx")
    (tmp_path / "mine.jsonl").touch()
    said: list[str] = []

    def execute(dialog: ConfirmDialog) -> int:
        said.extend(each.text() for each in dialog.findChildren(SafeLabel))
        return int(agrees)

    monkeypatch.setattr(ConfirmDialog, "exec", execute)
    path = ask_for_copy(parent, "Save as", tmp_path / "table.csv", "-edited", WRITTEN)
    assert path == (tmp_path / "mine.jsonl" if agrees else None)
    assert "This copy can't be saved as .xlsx. It can end in .jsonl, .csv, .parquet." in said
    assert "A file with this name exists and will be replaced." in said


def test_a_table_can_stay_one(parent: QWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine.csv", "mine.jsonl"):
        asked = choose(monkeypatch, name)
        assert ask_for_copy(parent, "Save as", tmp_path / "table.csv", "-new", (".csv", ".jsonl")) == tmp_path / name
        assert asked == [(tmp_path / "table-new.csv", "CSV, UTF-8 (*.csv);;JSON Lines (*.jsonl)")]


def test_rows_can_become_a_table_by_the_name(
    parent: QWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine.csv", "mine.PARQUET", "mine.jsonl"):
        asked = choose(monkeypatch, name)
        assert ask_for_copy(parent, "Save as", tmp_path / "a.jsonl", "-new", WRITTEN) == tmp_path / name
        kinds = "JSON Lines (*.jsonl);;CSV, UTF-8 (*.csv);;Parquet (*.parquet)"
        assert asked == [(tmp_path / "a-new.jsonl", kinds)]
