"""Where files are saved: in a folder of the person, under a name that other programs know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QFileDialog, QWidget

from tunesmith_gui.widgets.save_file import ask_where_to_save


@pytest.mark.parametrize(
    ("typed", "saved"), [("", None), ("a/report", "a/report.txt"), ("a/r.log", "a/r.log"), ("v1.2", "v1.2")]
)
def test_a_name_without_an_ending_gets_one(
    qtbot: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: str, saved: str | None
) -> None:
    proposed: list[Path] = []

    def ask(_parent: object, _title: str, start: str, kind: str, *_: object) -> tuple[str, str]:
        proposed.append(Path(start))
        return (str(tmp_path / typed) if typed else ""), kind

    monkeypatch.setattr(QFileDialog, "getSaveFileName", ask)
    parent = QWidget()
    qtbot.addWidget(parent)
    path = ask_where_to_save(parent, "Save", "report.txt", "Text (*.txt)")
    assert path == (tmp_path / saved if saved else None)
    assert proposed[0].name == "report.txt"
    assert proposed[0].is_absolute()
    assert Path.cwd() != proposed[0].parent
