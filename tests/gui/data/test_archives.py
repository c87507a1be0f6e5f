"""An archive of several data files in the window: what is done to a row is done in the file that it is in."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS
from tunesmith_core.datafmt import Sniffed, row_index
from tunesmith_core.datafmt.encoding import ZIP
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data import rows as rows_module
from tunesmith_gui.data.open_file import OpenFile
from tunesmith_gui.data.problem_marks import ProblemMarks
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.services.operation import OperationTask

FILES = {"a.jsonl": ["Who?", "When?", "Why?"], "b é.jsonl": ["Où?", "Quand?", "Pourquoi?"], "c.jsonl": ["Wo?"]}


class Indexed(OperationTask):
    """Stands in for the engine, which reads archives."""

    def start(self) -> None:
        source = Path(self.spec.source.path)
        rows = (
            (f"{source}/{name}", line, {"q": question})
            for name, questions in FILES.items()
            for line, question in enumerate(questions, 1)
        )
        row_index.copy_rows(rows, source, Path(self.spec.folder), lambda *_so_far: None)
        self.succeeded.emit({})


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "archive.zip"
    path.write_bytes(b"PK")
    return path


@pytest.fixture
def file(qtbot: QtBot, archive: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> OpenFile:
    """The open archive."""
    del home
    monkeypatch.setattr(rows_module, "OperationTask", Indexed)
    result = OpenFile(None)  # type: ignore[arg-type]
    qtbot.addWidget(result)
    facts = DataFacts(str(archive), Sniffed(ZIP, "auto", ("q",), {}, None, 2))
    result.open_rows(SourceSpec(path=str(archive)), facts, None, 0)
    result.show()
    qtbot.waitUntil(lambda: bool(result.rows and result.rows.is_complete), timeout=PATIENCE_MS)
    settle()
    return result


@pytest.mark.parametrize(("name", "line", "place"), [("a.jsonl", 3, 2), ("b é.jsonl", 3, 5), ("c.jsonl", 1, 6)])
def test_a_click_on_a_problem_goes_to_the_row_of_its_file(
    file: OpenFile, archive: Path, name: str, line: int, place: int
) -> None:
    # The row is too long for the answer of a check, which then names only its place.
    file.problems.row_asked.emit({"path": f"{archive}/{name}", "line": line, "row": None, "keys": ["q"]})
    assert file.grid is not None
    assert file.grid.current() == place
    file.problems.row_asked.emit({"path": f"{archive}/d.jsonl", "line": 1, "row": None})
    assert file.grid.current() == place, "of another file no row is shown"


def test_the_rows_of_each_file_are_marked(qtbot: QtBot, file: OpenFile, archive: Path) -> None:
    rows = [{"path": f"{archive}/{name}", "line": 1, "message": f"in {name}", "row": None} for name in FILES]
    marks = ProblemMarks(file)
    marks.rows = file.rows
    with qtbot.waitSignal(marks.found) as found:
        marks.find([{"rule": "html", "title": "HTML", "severity": "note", "rows": rows}])
    assert {place: each[0].message for place, each in found.args[0].items()} == {
        0: "in a.jsonl",
        3: "in b é.jsonl",
        6: "in c.jsonl",
    }
