"""Opening a file on the Data page: what it is and why, the question in doubt, and the way to the Train page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.data.conftest import PATIENCE_MS
from tests.gui.layout_checks import clipped, tab_stops, unnamed
from tests.workbooks import write_workbook
from tunesmith_core import files
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.engine import HeadSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.data.page import DataPage
from tunesmith_gui.models.run_spec import ChosenData
from tunesmith_gui.page import Page
from tunesmith_gui.services import workbook
from tunesmith_gui.services.form_memory import FormMemory, draft_path
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.column_question import ColumnQuestion
from tunesmith_gui.widgets.row_words import number_words
from tunesmith_gui.widgets.safe_label import SafeLabel

Open = Callable[[Path], DataPage]
DOUBTFUL = "id,left,right\n1,How are you?,Fine\n2,Who is it?,It is me\n"


def message_of(page: DataPage) -> Banner:
    assert isinstance(page.summary.message, Banner)
    return page.summary.message


class TestSheets:
    def test_another_sheet_is_opened_by_its_name(
        self, qtbot: QtBot, page: DataPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = {"Odd": [{"a": "1", "b": "2", "c": "3"}], "Pairs": [{"question": "Why?", "answer": "So."}] * 2}

        def conduct(_kind: Kind, spec: HeadSpec) -> Outcome:
            sheet = spec.sheet or "Pairs"
            found = {"rows": rows[sheet], "num_rows": len(rows[sheet]), "longest_row_bytes": 30}
            notes = {"dataset-parts-unread": "Others.", "dataset-titles-unread": f"{spec.path}: not read: <b>Title."}
            found |= {"sheet": sheet, "sheets": list(rows), "problem": None, "notes": notes}
            return Outcome(OperationState.FINISHED, 0, found)

        monkeypatch.setattr(workbook, "conduct", conduct)
        page.open(str(write_workbook(tmp_path / "a.xlsx", {"Odd": [["a"], ["1"]], "Pairs": [["a"], ["1"]]})))
        qtbot.waitUntil(lambda: page.data is not None, timeout=PATIENCE_MS)
        sheets = page.summary.sheets
        assert sheets.isVisibleTo(page)
        assert (sheets.combo.currentText(), page.source.sheet) == ("Pairs", "Pairs")
        assert sheets.others.text() == "Not read: Odd"
        assert page.summary.facts.text().startswith("2 rows")
        # Which sheets are not read is said beside the choice.
        assert page.summary.reason.text().splitlines()[1:] == ["a.xlsx: not read: <b>Title."]
        sheets.combo.setCurrentIndex(0)
        sheets.combo.activated.emit(0)
        qtbot.waitUntil(lambda: page.summary.facts.text().startswith("1 row "), timeout=PATIENCE_MS)
        assert (sheets.combo.currentText(), page.source.sheet) == ("Odd", "Odd")
        assert page.summary.reason.text().splitlines() == ["a.xlsx: not read: <b>Title."]


class TestHome:
    def test_a_sample_opens_by_one_click(self, qtbot: QtBot, page: DataPage) -> None:
        qtbot.mouseClick(page.home.samples["zh"], Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.rows is not None and page.rows.is_complete, timeout=PATIENCE_MS)
        assert page.title == "train.jsonl"
        assert len(page.rows) == 160  # type: ignore[arg-type]
        assert Path(page.source.path).parent.name == "zh"

    def test_files_used_lately_are_offered(self, qtbot: QtBot, page: DataPage, opened: Open, table: Path) -> None:
        opened(table)
        qtbot.waitUntil(draft_path().is_file, timeout=PATIENCE_MS)
        settle()
        assert FormMemory().load()["data"] == [str(table)]
        assert page.home.recent_card.isVisibleTo(page.home)

    def test_a_draft_that_is_saved_keeps_what_this_page_opened(self, table: Path, home: Path) -> None:
        assert home.exists()
        memory = FormMemory()
        assert memory.add_data(str(table)) == [str(table)]
        memory.save({"data": [], "form": {"kept": 1}}, 1)
        assert memory.load() == {"data": [str(table)], "form": {"kept": 1}, "models": []}
        memory.add_data(str(table))
        assert files.read_json(draft_path())["form"] == {"kept": 1}

    def test_a_dropped_file_is_opened_here_while_the_page_is_in_front(
        self, qtbot: QtBot, window: MainWindow, table: Path
    ) -> None:
        window.show_page("data")
        assert window.pages.words_for_files() == "Drop to look at the file"
        assert window.pages.take_files([table])
        page = window.pages.page("data")
        assert isinstance(page, DataPage)
        qtbot.waitUntil(lambda: page.rows is not None and page.rows.is_complete, timeout=PATIENCE_MS)
        assert window.pages.current_title() == "table.csv"
        page.rows.close()  # type: ignore[union-attr]
        window.show_page("settings")
        assert not window.pages.take_files([table])


class TestRecognition:
    def test_an_open_file_says_what_it_is_and_why(self, opened: Open, table: Path) -> None:
        page = opened(table)
        assert "3 rows" in page.summary.facts.text()
        assert "Prompt and response" in page.summary.facts.text()
        assert "Recognized by the names of the columns: “Question text”, “Best answer”." in page.summary.reason.text()
        assert page.summary.message is None
        assert page.summary.train.isEnabled()

    def test_columns_that_are_not_used_are_named(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "quiz.csv"
        path.write_text("id,question,A,B,answer,topic\n1,Who?,Me,You,B,people\n", encoding="utf-8")
        summary = opened(path).summary
        assert summary.facts.text().endswith("Multiple choice  ·  Not used: id, topic")
        assert summary.reason.text() == "Recognized by the names of the columns: “question”, “A”, “B”, “answer”."

    def test_labels_are_named(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "moods.csv"
        path.write_text("text,label,id\nFine day,good,1\nRain,bad,2\n", encoding="utf-8")
        summary = opened(path).summary
        assert "Text with label" in summary.facts.text()
        assert summary.facts.text().endswith("Not used: id")
        assert summary.reason.text() == "Recognized by the names of the columns: “text”, “label”."
        path = tmp_path / "votes.csv"
        path.write_text("prompt,completion,thumbs_up\na,b,true\nc,d,false\n", encoding="utf-8")
        assert "good and bad answers, told apart by “thumbs_up”" in opened(path).summary.facts.text()

    @pytest.mark.parametrize(
        ("name", "content", "reason"),
        [
            ("a.jsonl", '{"messages": [{"role": "user", "content": "a"}]}', "holds chats"),
            ("a.txt", "One text.\n\nAnother one.\n", "A text file"),
            ("a.csv", "text\none text here\nanother text\n", "holds text"),
        ],
    )
    def test_every_kind_has_its_reason(
        self, name: str, content: str, reason: str, opened: Open, tmp_path: Path
    ) -> None:
        path = tmp_path / name
        path.write_text(content)
        assert reason in opened(path).summary.reason.text()

    @pytest.mark.parametrize("line", [50, 3000])
    def test_rows_before_one_that_breaks_the_file_are_shown_with_the_problem(
        self, qtbot: QtBot, page: DataPage, tmp_path: Path, line: int
    ) -> None:
        rows = [f"What is {n}?,It is {n}" for n in range(4000)]
        rows[line - 2] = '"open,quote'
        path = tmp_path / "broken.csv"
        path.write_text("question,answer\n" + "\n".join(rows))
        page.open(str(path))
        qtbot.waitUntil(lambda: page.rows is not None and page.rows.is_broken, timeout=PATIENCE_MS)
        assert page.grid is not None
        assert page.grid.model.rowCount() == line - 2
        assert page.grid.count.text() == f"{line - 2:,} rows up to the problem"
        settle()
        banners = [each for each in page.findChildren(Banner) if each.isVisible()]
        assert len(banners) == 1
        words = " ".join(each.text() for each in banners[0].findChildren(SafeLabel))
        assert f"line {line}, column 1: the quote that opens here" in words
        assert page.summary.facts.text().startswith(f"{line - 2:,} rows")
        assert not page.summary.train.isEnabled()

    def test_a_number_of_rows_is_exact_once_they_are_counted(
        self, qtbot: QtBot, page: DataPage, tmp_path: Path
    ) -> None:
        path = tmp_path / "many.csv"
        path.write_text("question,answer\n" + "".join(f"What is {n}?,{'x' * (n // 10)}\n" for n in range(4000)))
        page.open(str(path))
        qtbot.waitUntil(lambda: page.summary.facts.text().startswith("about "), timeout=PATIENCE_MS)
        qtbot.waitUntil(lambda: page.summary.facts.text().startswith("4,000 rows "), timeout=PATIENCE_MS)

    @pytest.mark.parametrize(
        ("kind", "words"),
        [("pdf", "Page 3"), ("docx", "Part 3"), ("xlsx", "Row 3"), ("zip", "Row 3"), ("md", "Line 3")],
    )
    def test_rows_are_called_what_they_are(self, kind: str, words: str) -> None:
        assert number_words(kind, 3) == words

    def test_in_doubt_one_question_is_asked_and_nothing_is_red(
        self, qtbot: QtBot, opened: Open, tmp_path: Path
    ) -> None:
        path = tmp_path / "doubt.csv"
        path.write_text(DOUBTFUL)
        page = opened(path)
        question = page.summary.message
        assert isinstance(question, ColumnQuestion)
        assert not page.summary.train.isEnabled()
        assert not [each for each in page.findChildren(Banner) if each.isVisible()]
        page.on_shown()
        settle()
        assert page.summary.message is question, "what was chosen there would be lost"
        qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(page.summary.train.isEnabled, timeout=PATIENCE_MS)
        assert page.source.columns == {"prompt": "left", "completion": "right"}
        assert page.summary.reason.text() == "You chose these columns."
        assert page.summary.map.text() == page.summary.map.accessibleName() == "Change columns…"

    def test_rows_in_another_encoding_are_there_before_anybody_says_what_the_columns_hold(
        self, qtbot: QtBot, opened: Open, tmp_path: Path
    ) -> None:
        path = tmp_path / "doubt.csv"
        path.write_bytes("Größe,Maß\nWie heißt er?,Jürgen\nWer ist da?,Jörg\n".encode("cp1252"))
        page = opened(path)
        question = page.summary.message
        assert isinstance(question, ColumnQuestion)
        assert page.grid is not None
        assert page.grid.model.rowCount() == 2
        assert page.grid.model.index(0, 1).data() == "Jürgen"
        assert page.grid.count.text() == "2 rows"
        qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(page.summary.train.isEnabled, timeout=PATIENCE_MS)
        assert page.grid.model.rowCount() == 2
        assert page.source.encoding == "windows-1252"

    def test_an_answer_is_remembered_for_the_same_columns(
        self, qtbot: QtBot, opened: Open, tmp_path: Path
    ) -> None:
        for name in ("a.csv", "b.csv"):
            (tmp_path / name).write_text(DOUBTFUL)
        page = opened(tmp_path / "a.csv")
        page.map_columns("prompt-completion", {"prompt": "right", "completion": "left"})
        qtbot.waitUntil(page.summary.train.isEnabled, timeout=PATIENCE_MS)
        opened(tmp_path / "b.csv")
        assert page.source.columns == {"prompt": "right", "completion": "left"}
        assert page.summary.message is None

    def test_rows_that_cannot_be_used_are_told_as_a_warning(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "broken\n')
        page = opened(path)
        assert message_of(page).accessibleName() == "1 row can't be used as it is"
        said = message_of(page).accessibleDescription()
        assert said.startswith("a.jsonl, line 2"), "which folder it is in everybody knows who has opened it"
        assert said.splitlines()[1].startswith("“Fix and save as…” writes a copy"), "the button is named"
        assert page.summary.train.isEnabled()
        assert len(page.rows) == 2  # type: ignore[arg-type]

    def test_the_problems_of_data_on_the_train_page_are_shown(
        self, qtbot: QtBot, page: DataPage, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "broken\n')
        page.on_shown(ChosenData(SourceSpec(path=str(path)), ""))
        qtbot.waitUntil(lambda: page.rows is not None and page.rows.is_complete, timeout=PATIENCE_MS)
        assert page.parts.value == "problems"
        page.parts.set_value("rows")
        rows = page.rows
        page.on_shown(ChosenData(SourceSpec(path=str(path)), ""))
        assert (page.parts.value, page.rows) == ("problems", rows), "it is open"

    def test_the_rows_of_a_run_are_shown_or_why_there_are_none(
        self, qtbot: QtBot, page: DataPage, table: Path, tmp_path: Path
    ) -> None:
        columns = {"prompt": "Best answer", "completion": "Question text"}
        asked = ChosenData(SourceSpec(path=str(table), format="prompt-completion", columns=columns), "", "rows")
        page.on_shown(asked)
        qtbot.waitUntil(lambda: page.rows is not None and page.rows.is_complete, timeout=PATIENCE_MS)
        assert (page.parts.value, page.source.columns) == ("rows", columns)
        page.parts.set_value("problems")
        page.on_shown(asked)
        assert page.parts.value == "rows", "it is open"
        gone = tmp_path / "gone.csv"
        for _time in range(2):
            page.on_shown(ChosenData(SourceSpec(path=str(gone)), "", "rows"))
            qtbot.waitUntil(lambda: page.data is not None, timeout=PATIENCE_MS)
            assert "No such file" in message_of(page).accessibleDescription()
        gone.write_text(table.read_text())
        page.on_shown(ChosenData(SourceSpec(path=str(gone)), "", "rows"))
        qtbot.waitUntil(lambda: page.rows is not None and page.rows.is_complete, timeout=PATIENCE_MS)
        assert page.parts.value == "rows", "it is looked at again"

    def test_a_row_of_a_table_that_cannot_be_read_says_why(self, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("question,answer\na,b\na,b,c,d\n")
        grid = opened(path).grid
        assert grid is not None
        told = str(grid.model.data(grid.model.index(1, 0)))
        assert told.startswith("line 3: fields in this row: 4")

    def test_a_file_that_cannot_be_read_shows_its_error_and_no_table(self, page: DataPage, opened: Open) -> None:
        opened(Path("/nowhere/a.csv"))
        assert "No such file" in message_of(page).accessibleDescription()
        assert not page.parts.isVisible()
        assert page.rows is None


class TestTraining:
    def test_train_with_it_hands_the_file_and_its_columns_over(
        self, qtbot: QtBot, opened: Open, table: Path
    ) -> None:
        page = opened(table)
        with qtbot.waitSignal(page.navigate) as gone:
            qtbot.mouseClick(page.summary.train, Qt.MouseButton.LeftButton)
        assert gone.args == ["train", ChosenData(SourceSpec(path=str(table)))]
        page.learns.model_chosen.emit("owner/model")
        with qtbot.waitSignal(page.navigate) as gone:
            qtbot.mouseClick(page.summary.train, Qt.MouseButton.LeftButton)
        assert gone.args == ["train", ChosenData(SourceSpec(path=str(table)), "owner/model")]

    def test_the_train_page_takes_it_and_forgets_the_former_data(
        self, qtbot: QtBot, window: MainWindow, table: Path, tmp_path: Path
    ) -> None:
        window.show_page("train")
        train = window.pages.page("train")
        form = train.form  # type: ignore[attr-defined]
        spec = form.spec
        spec.data.sources = [SourceSpec(path="/a.csv", columns={"prompt": "x"}), SourceSpec(path="/b.csv")]
        spec.data.skip_bad_rows = True
        spec.evaluation.path = str(tmp_path / "held-out.jsonl")
        form.load_spec(spec)
        source = SourceSpec(path=str(table), format="prompt-completion", columns={"prompt": "Best answer"})
        window.show_page("train", ChosenData(source, "owner/model"))

        assert form.spec.data.sources == [source]
        assert not form.spec.data.skip_bad_rows
        assert form.spec.evaluation.path == ""
        assert form.spec.evaluation.percent > 0
        settle()
        assert window.context.new_run_spec == form.spec
        assert form.spec.model.path == "owner/model"
        window.show_page("train", ChosenData(source, "owner/other"))
        assert form.spec.model.path == "owner/model"


class TestLooks:
    @pytest.mark.parametrize(("scheme", "scale", "size"), [("light", 1.0, (960, 640)), ("dark", 2.0, (960, 640))])
    def test_nothing_is_cut_or_without_a_name(
        self, scheme: str, scale: float, size: tuple[int, int], page: DataPage, opened: Open, table: Path
    ) -> None:
        theme().set_appearance(Scheme(scheme), scale)
        try:
            page.resize(*size)
            settle()
            assert clipped(page) == []
            assert unnamed(page) == []
            opened(table)
            settle()
            for part in ("rows", "learns", "problems"):
                page.parts.set_value(part)
                settle()
                assert clipped(page) == []
                assert unnamed(page) == []
        finally:
            theme().set_appearance(Scheme.LIGHT, 1.0)

    def test_tab_goes_from_the_top_down(self, opened: Open, table: Path) -> None:
        page = opened(table)
        stops = tab_stops(page)
        grid = page.grid
        assert grid is not None
        wanted = [page.summary.train, grid.find_bar.search, grid.table, grid.pane.text, grid.pane.delete, grid.save]
        assert [each for each in stops if each in wanted] == wanted


def test_the_page_is_a_page(page: DataPage) -> None:
    assert isinstance(page, Page)
    assert not page.perform("find")


class TestNoRows:
    def test_the_beginning_of_a_file_without_a_row_is_shown_with_the_wrong_line(
        self, opened: Open, tmp_path: Path
    ) -> None:
        path = tmp_path / "fields.csv"
        path.write_text("question,answer\nWhy?,So, and so\nWho?,You, and I\n")
        page = opened(path)
        beginning = page.file.beginning
        assert beginning.isVisible()
        assert beginning.text.toPlainText() == path.read_text()
        cursor = beginning.text.textCursor()
        underlined = []
        for place in range(len(path.read_text())):
            cursor.setPosition(place + 1)
            if cursor.charFormat().fontUnderline():
                underlined.append(path.read_text()[place])
        assert "".join(underlined).strip() == "Why?,So, and so"
        page.close_file()
        assert not beginning.isVisibleTo(page.file)

    @pytest.mark.parametrize(
        ("name", "content"), [("a.csv", b"a,b\n1,2,\x003\n"), ("a.parquet", b"PAR1"), ("a.bin", b"\x89PNG\r\n")]
    )
    def test_of_what_is_no_text_nothing_is_shown(self, name: str, content: bytes, opened: Open, tmp_path: Path) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        assert not opened(path).file.beginning.isVisible()
