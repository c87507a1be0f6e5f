"""Bad input in the window: every refusal names cause and next step, and the form keeps what was typed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

from tests.gui.new_run.driving import GIB, close, fill_in, make_page, scripted_tasks, shown_words
from tests.parquet_files import parquet_of
from tests.workbooks import write_workbook
from tunesmith_core import paths
from tunesmith_core.datafmt.sniffing import TEMPLATE_TOKENS
from tunesmith_core.error_code import USER
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.hardware import Hardware
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.kinds.engine import HeadSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.spec_sections import DataSpec, SourceSpec
from tunesmith_gui.context import Context
from tunesmith_gui.models.run_spec import ChosenData
from tunesmith_gui.new_run.form import Missing
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import SETTINGS
from tunesmith_gui.new_run.settings_list import SettingRow
from tunesmith_gui.services import workbook
from tunesmith_gui.services.data_facts import DataFacts, look_at_data
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.column_question import ColumnQuestion
from tunesmith_gui.widgets.diagnostics import DiagnosticsDialog


def head_answer(
    rows: list[dict[str, str]], num_rows: int = 40, sheet: str = "A", sheets: Sequence[str] = ("A",)
) -> dict[str, Any]:
    """What the engine tells of the first rows of a workbook."""
    found = {"rows": rows, "num_rows": num_rows, "longest_row_bytes": 30}
    return {**found, "sheet": sheet, "sheets": list(sheets), "problem": None, "notes": {}}


def missing_folder(model: Path, data: Path) -> None:
    shutil.rmtree(model)
    del data


def cut_weights(model: Path, data: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    del data


def pickle_weights(model: Path, data: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    del data


def unreadable_data(model: Path, data: Path) -> None:
    data.write_bytes(b"7z\xbc\xaf not rows")
    del model


def empty_data(model: Path, data: Path) -> None:
    data.write_text("")
    del model


def empty_parquet(model: Path, data: Path) -> None:
    data.write_bytes(parquet_of(0))
    del model


def row_without_column(model: Path, data: Path) -> None:
    data.write_text(data.read_text() + '{"other": 1}\n')
    del model


def visible_texts(banner: Banner) -> str:
    return "\n".join(label.text() for label in banner.findChildren(QLabel) if label.isVisible())


def banners_of(page: NewRunPage) -> list[Banner]:
    return page.data_picker.findChildren(Banner)


class TestBadInput:
    @pytest.mark.parametrize(
        ("spoil", "code", "words"),
        [
            (missing_folder, "model-files-missing-or-corrupt", "is not a folder"),
            (cut_weights, "model-files-missing-or-corrupt", "is cut short"),
            (pickle_weights, "model-pickle-refused", "pickle"),
            (unreadable_data, "dataset-parse-error", "a 7-Zip archive"),
            (empty_data, "dataset-empty", "data.jsonl"),
            (empty_parquet, "dataset-empty", "has no rows"),
        ],
    )
    def test_is_refused_in_place_with_cause_and_next_step(
        self,
        qtbot: QtBot,
        page: NewRunPage,
        model: Path,
        data_file: Path,
        spoil: Callable[[Path, Path], None],
        code: str,
        words: str,
    ) -> None:
        spoil(model, data_file)
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: CODES[code].title in shown_words(page), timeout=5000)
        text = shown_words(page)
        assert words in text
        assert ("Choose another file." if spoil is unreadable_data else CODES[code].action) in text
        assert code not in text, "a code tells the person nothing"
        (banner,) = [
            each
            for each in page.findChildren(Banner)
            if each.isVisible() and CODES[code].title in each.accessibleName()
        ]
        assert code not in visible_texts(banner)
        qtbot.mouseClick(banner.more, Qt.MouseButton.LeftButton)
        assert code in visible_texts(banner)
        assert not page.start_bar.start.isEnabled()
        assert page.data_picker.combo.path == str(data_file)
        assert not paths.runs_dir().exists()

    def test_one_bad_row_is_no_unreadable_file(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        row_without_column(model, data_file)
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: "line 4" in shown_words(page), timeout=5000)
        (banner,) = banners_of(page)
        assert banner.accessibleName() == "1 row can't be used as it is"
        assert "can't be read" not in shown_words(page)
        said = "The plan appears once rows that can't be used are skipped or repaired."
        qtbot.waitUntil(lambda: page.plan_card.summary == said, timeout=5000)
        assert [each.text() for each in banner.buttons] == ["Skip bad rows", "Show the problems"]
        with qtbot.waitSignal(page.navigate) as gone:
            banner.buttons[1].click()
        assert gone.args[0] == "data"
        assert gone.args[1].source.path == str(data_file)

    def test_a_broken_line_is_counted_before_and_after_it_is_skipped(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        lines = data_file.read_text().splitlines()
        data_file.write_text("\n".join([lines[0], "{broken", *lines[1:]]) + "\n")
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: "line 2" in shown_words(page), timeout=5000)
        assert page.data_picker.facts.text().startswith(f"{len(lines) + 1} rows  ·  ")
        page.form.set_value("data.skip_bad_rows", True)
        words = f"{len(lines)} of {len(lines) + 1} rows, 1 skipped"
        qtbot.waitUntil(lambda: words in page.data_picker.facts.text(), timeout=5000)

    def test_bad_rows_can_be_skipped(self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path) -> None:
        row_without_column(model, data_file)
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: "line 4" in shown_words(page), timeout=5000)
        skip = next(each for each in page.data_picker.findChildren(QPushButton) if each.text() == "Skip bad rows")
        skip.setFocus()
        qtbot.mouseClick(skip, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        good = len(data_file.read_text().splitlines()) - 1
        assert f"{good} of {good + 1} rows, 1 skipped" in page.data_picker.facts.text()
        focus = page.focusWidget()
        assert focus is not None
        assert page.data_picker.combo.isAncestorOf(focus) or focus is page.data_picker.combo

    def test_a_workbook_is_taken(self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path) -> None:
        data = write_workbook(tmp_path / "a.xlsx", {"A": [["question", "answer"], ["Why?", "So it is."]]})
        fill_in(qtbot, page, model, data)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.data_picker.facts.text().startswith("XLSX  ·  ")
        assert banners_of(page) == []

    @pytest.mark.parametrize("names", [("question", "answer"), ("Task", "Result")])
    def test_the_first_rows_of_a_workbook_are_asked_for(
        self,
        names: tuple[str, str],
        qtbot: QtBot,
        page: NewRunPage,
        model: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        data = write_workbook(tmp_path / "a.xlsx", {"A": [list(names), ["Add them.", "7"]]})
        ended = Outcome(OperationState.FINISHED, 0, head_answer([dict(zip(names, ("Add them.", "7"), strict=True))]))
        asked: list[HeadSpec] = []
        monkeypatch.setattr(workbook, "conduct", lambda _kind, spec: asked.append(spec) or ended)
        fill_in(qtbot, page, model, data)
        if names[0] == "Task":
            qtbot.waitUntil(lambda: page.form.missing() is Missing.COLUMNS, timeout=5000)
            (question,) = page.data_picker.findChildren(ColumnQuestion)
            qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.data_picker.facts.text().startswith("40 rows  ·  XLSX  ·  ")
        assert "Prompt and response" in page.data_picker.facts.text()
        assert page.facts.num_rows == 40
        assert page.facts.max_tokens == 30 + TEMPLATE_TOKENS  # not the whole context
        # Which columns are trained says how long a row is, and which sheet is read.
        said = [{}] if names[0] == "question" else [{}, {"prompt": "Task", "completion": "Result"}]
        assert [(spec.path, spec.num_rows, spec.columns) for spec in asked] == [
            (str(data), workbook.NUM_ROWS, columns) for columns in said
        ]

    @pytest.mark.parametrize("learns_from_pairs", [False, True])
    def test_bad_rows_of_a_workbook_can_be_skipped(
        self, learns_from_pairs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = ("prompt", "chosen", "rejected") if learns_from_pairs else ("question", "answer")
        data = write_workbook(tmp_path / "a.xlsx", {"A": [list(names), ["Why?", "So."]]})
        empty = TunesmithError("dataset-parse-error", '{path}, row 27, column "answer": is empty.', path=data)
        rows = {"num_good": 25, "num_bad": 1, "first_bad": empty.to_dict(), "refused": None}
        answer = head_answer([dict.fromkeys(names, "Why?")], 26) | rows
        asked: list[HeadSpec] = []
        ended = Outcome(OperationState.FINISHED, 0, answer)
        monkeypatch.setattr(workbook, "conduct", lambda _kind, spec: asked.append(spec) or ended)
        spec = DataSpec(sources=[SourceSpec(path=str(data))])
        found = look_at_data(spec, in_pairs=learns_from_pairs)
        assert found.error is not None
        assert "row 27" in found.error.message
        assert (found.skipping_helps, found.num_unusable) == (True, 1)
        assert [each.in_pairs for each in asked] == ([False, True] if learns_from_pairs else [False])
        spec.skip_bad_rows = True
        found = look_at_data(spec, in_pairs=learns_from_pairs)
        assert (found.error, found.num_good_rows, found.num_bad_rows) == (None, 25, 1)
        # A file beside the first is looked at in the same way.
        spec.sources, spec.skip_bad_rows = [spec.sources[0], SourceSpec(path=str(data))], False
        (other,) = look_at_data(spec).others
        assert other.error is not None

    def test_the_sheet_of_a_workbook_is_chosen_beside_it(
        self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = write_workbook(tmp_path / "a.xlsx", {"Odd": [["a"], ["1"]], "Pairs": [["a"], ["1"]]})

        def conduct(_kind: Kind, spec: HeadSpec) -> Outcome:
            sheet = spec.sheet or "Pairs"
            row = {"question": "Why?", "answer": "So."} if sheet == "Pairs" else {"a": "1", "b": "2", "c": "3"}
            num_rows = 30 if sheet == "Pairs" else 9
            answer = head_answer([row], num_rows, sheet, ["Odd", "Pairs"])
            answer["notes"] = {"dataset-parts-unread": "Others.", "dataset-titles-unread": "A title is not read."}
            return Outcome(OperationState.FINISHED, 0, answer)

        monkeypatch.setattr(workbook, "conduct", conduct)
        fill_in(qtbot, page, model, data)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        sheets = page.data_picker.sheets
        assert sheets.isVisibleTo(page)
        assert (sheets.combo.currentText(), page.form.value("data.sources[0].sheet")) == ("Pairs", "Pairs")
        assert page.facts.num_rows == 30
        # The choice of a sheet says which are not read.
        assert page.data_picker.facts.text().endswith("\n\nA title is not read.")
        assert "Others." not in page.data_picker.facts.text()
        page.form.set_value("evaluation.path", str(data))
        sheets.combo.setCurrentIndex(0)
        sheets.combo.activated.emit(0)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.COLUMNS, timeout=5000)
        assert (page.facts.num_rows, page.form.value("data.sources[0].sheet")) == (9, "Odd")
        assert (sheets.combo.currentText(), page.form.value("evaluation.path")) == ("Odd", str(data))
        page.actions_.choose_data(str(tmp_path / "none.csv"))
        assert not sheets.isVisibleTo(page)

    def test_a_damaged_workbook_is_told_when_it_is_chosen(
        self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = write_workbook(tmp_path / "a.xlsx", {"A": [["text"], ["one"]]})
        error = UserError("dataset-parse-error", "the workbook can't be read: it is cut.")
        ended = Outcome(OperationState.FAILED, 2, error=error)
        monkeypatch.setattr(workbook, "conduct", lambda _kind, _spec: ended)
        fill_in(qtbot, page, model, data)
        qtbot.waitUntil(lambda: "it is cut" in shown_words(page), timeout=5000)
        assert page.form.missing() is Missing.DATA_BROKEN

    def test_a_file_of_another_encoding_is_read_and_the_encoding_is_told(
        self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path
    ) -> None:
        data = tmp_path / "excel.csv"
        data.write_bytes("Question text;Best answer\nWer?;Müller\nWo?;Köln\n".encode("cp1252"))
        problems: list[str] = []
        page.facts.data_changed.connect(lambda: problems.extend(map(visible_texts, banners_of(page))))
        encoding = page.settings_list.rows["data.sources[0].encoding"] = SettingRow(
            SETTINGS["data.sources[0].encoding"], page.form, parent=page
        )
        assert encoding.note.text() == "detected automatically"
        fill_in(qtbot, page, model, data)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert problems == []
        assert "Windows-1252" in page.data_picker.facts.text()
        assert "Question text → prompt, Best answer → response" in page.data_picker.facts.text()
        assert page.form.value("data.sources[0].encoding") == "windows-1252"
        assert page.facts.data is not None
        assert page.facts.data.head[0]["Best answer"] == "Müller"
        assert encoding.note.text() == "detected"
        page.form.set_value("data.sources[0].encoding", "cp949")
        assert encoding.note.text() == "changed, was UTF-8"
        page.on_shown(ChosenData(SourceSpec(path=str(data), encoding="windows-1252")))
        qtbot.waitUntil(lambda: encoding.note.text() == "detected", timeout=5000)
        # What was said about one file holds for no other.
        page.actions_.choose_data(str(tmp_path / "none.csv"))
        assert page.form.value("data.sources[0].encoding") == "utf-8"

    def test_malformed_rows_are_counted_among_all(
        self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path
    ) -> None:
        data = tmp_path / "odd.csv"
        data.write_text("prompt,completion\n" + "Wer?,Ich.\n" * 9 + "Wer?,Ich.,zu viel\n" * 15)
        page.actions_.choose_data(str(data))
        page.form.set_value("data.skip_bad_rows", True)
        qtbot.waitUntil(lambda: "9 of 24 rows, 15 skipped" in page.data_picker.facts.text(), timeout=5000)

    def test_bad_rows_of_other_data_are_not_skipped(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, tmp_path: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        page.form.set_value("data.skip_bad_rows", True)
        other = tmp_path / "other.jsonl"
        other.write_text('{"text": "a"}\n{"text": \n{"text": "c"}\n')
        page.actions_.choose_data(str(other))
        qtbot.waitUntil(lambda: "line 2" in shown_words(page), timeout=5000)
        assert not page.form.value("data.skip_bad_rows")

    def test_nothing_that_an_earlier_file_left_is_said_of_other_data(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        earlier = SourceSpec(
            path="/a.xlsx", format="text", columns={"text": "t"}, encoding="cp932", sheet="Data"
        )
        spec = page.form.spec
        spec.model.path, spec.evaluation.path, spec.evaluation.percent = str(model), "/held.jsonl", 0.0
        spec.data.sources, spec.data.skip_bad_rows = [earlier, SourceSpec(path="/b.csv")], True
        page.form.load_spec(spec)
        page.actions_.take_draft(json.loads(json.dumps(page.actions_.draft())))
        page.actions_.choose_data(str(data_file))
        left = page.form.spec
        assert left.data.sources == [SourceSpec(path=str(data_file))]
        assert (left.data.skip_bad_rows, left.evaluation.path) == (False, "")
        assert left.evaluation.percent == page.form.baseline("evaluation.percent")
        page.actions_.take_source(earlier)
        assert page.form.spec.data.sources == [earlier]

    def test_an_answer_about_the_earlier_file_says_nothing_of_the_next(
        self, page: NewRunPage, data_file: Path
    ) -> None:
        page.actions_.choose_data(str(data_file))
        page.facts._take_data(DataFacts("/earlier.csv", encoding="cp932"))
        assert page.form.value("data.sources[0].encoding") == "utf-8"

    @pytest.mark.parametrize(
        ("content", "fix"),
        [
            (b"thema\nIch.\n", "Map columns\u2026"),
            (b"thema\nIch.,zu viel\nIch.\n", "Map columns\u2026"),
            (b"7z\xbc\xaf not rows", "Choose another file\u2026"),
            (b'prompt,completion\n"open quote,x\n', "Choose another file\u2026"),
        ],
    )
    def test_only_what_helps_is_offered(
        self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path, content: bytes, fix: str
    ) -> None:
        data = tmp_path / "odd.csv"
        data.write_bytes(content)
        fill_in(qtbot, page, model, data)
        qtbot.waitUntil(lambda: shown_words(page.data_picker) != "", timeout=5000)
        (banner,) = [each for each in page.data_picker.findChildren(Banner) if each.isVisible()]
        assert [each.text() for each in banner.buttons] == [fix]
        assert page.data_picker.preview.isEnabled() == page.data_picker.map.isEnabled(), "there are rows to look at"
        shown = [each.text() for each in page.data_picker.findChildren(QPushButton) if each.isVisible()]
        assert shown.count(fix) == 1, "one button for one step"

    def test_unreadable_data_does_not_make_the_model_too_large(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, devices: list[Hardware]
    ) -> None:
        devices[:] = [Hardware("cpu", "x86", GIB, GIB, GIB, GIB)]
        page.form.set_value("data.context_length", 1_000_000)
        unreadable_data(model, data_file)
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: page.start_bar.start.text() == "The data can't be used", timeout=5000)
        qtbot.waitUntil(lambda: "once the data can be read" in page.plan_card.device.text(), timeout=5000)
        assert not page.plan_card.chip.isVisible()
        assert not page.model_picker.chip.isVisible()

    def test_no_chat_template_is_told_on_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        (model / "tokenizer_config.json").write_text("{}")
        fill_in(qtbot, page, model, data_file)
        assert "no chat template" in page.model_picker.facts.text()
        self.refused_on_start(qtbot, page, "dataset-chat-template-missing")

    def test_a_full_disk_is_told_on_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tunesmith_core.files.free_bytes", lambda _path: 1)
        fill_in(qtbot, page, model, data_file)
        self.refused_on_start(qtbot, page, "disk-full")

    def test_a_read_only_disk_is_told_on_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(folder: Path) -> None:
            raise PermissionError(13, "Permission denied", str(folder))

        monkeypatch.setattr("tunesmith_core.files.probe_writable", refuse)
        fill_in(qtbot, page, model, data_file)
        self.refused_on_start(qtbot, page, "permission-or-antivirus")

    def refused_on_start(self, qtbot: QtBot, page: NewRunPage, code: str) -> None:
        model, data = page.form.value("model.path"), page.form.value("data.sources[0].path")
        qtbot.mouseClick(page.start_bar.start, Qt.MouseButton.LeftButton)
        assert page.start_bar.start.text() == "Starting…"
        qtbot.waitUntil(lambda: CODES[code].title in shown_words(page), timeout=5000)
        text = shown_words(page)
        assert (CODES[code].cause in text) == (CODES[code].kind != USER), "what a person can mend is named exactly"
        assert CODES[code].action in text
        assert (page.form.value("model.path"), page.form.value("data.sources[0].path")) == (model, data)
        assert page.start_bar.start.isEnabled()
        copy = next(each for each in page.findChildren(QPushButton) if each.text() == "Copy diagnostics")
        qtbot.mouseClick(copy, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: bool(page.window().findChildren(DiagnosticsDialog)), timeout=5000)
        (dialog,) = page.window().findChildren(DiagnosticsDialog)
        assert code in dialog.text.toPlainText()
        dialog.close()
        dialog.deleteLater()

    @pytest.mark.parametrize(
        ("values", "code"),
        [
            ({"version": 99, "model": {}}, "spec-too-new"),
            ({"version": 1, "model": {"path": "a"}, "data": {"path": "b"}, "method": {"rank": 0}}, "spec-invalid"),
            (
                {"version": 1, "model": {"path": "a"}, "data": {"path": "b"}, "optimizer": {"learning_rate": "abc"}},
                "spec-invalid",
            ),
        ],
    )
    def test_a_dropped_spec_that_is_wrong_is_refused(
        self, qtbot: QtBot, page: NewRunPage, tmp_path: Path, values: dict[str, object], code: str
    ) -> None:
        page.form.set_name("kept")
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(values))
        page.on_shown([path])
        qtbot.waitUntil(lambda: CODES[code].title in shown_words(page), timeout=5000)
        assert "spec.json" in shown_words(page)
        assert page.form.name == "kept"

    def test_nothing_to_learn_is_told_by_the_check(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        tasks = scripted_tasks(monkeypatch)
        page.actions_.check_plan()
        for listener in tasks[0].on_failure:
            listener(UserError("no-trained-tokens", f"{data_file}: no token counts for the loss."))
        qtbot.waitUntil(lambda: CODES["no-trained-tokens"].title in shown_words(page))

    def test_without_an_environment_start_says_so(
        self, qtbot: QtBot, context: Context, home: Path, model: Path, data_file: Path
    ) -> None:
        del home
        page = make_page(qtbot, context)
        fill_in(qtbot, page, model, data_file)
        assert page.start_bar.start.text() == "Training is not set up"
        qtbot.waitUntil(lambda: "Training is not set up yet" in shown_words(page), timeout=5000)
        close(page)
