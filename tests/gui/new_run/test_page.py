"""The Train page by mouse and keyboard: choosing, mapping, refusing bad input, starting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QGuiApplication
from PySide6.QtWidgets import QApplication, QCheckBox, QComboBox, QFileDialog, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, tab_stops, unnamed
from tests.gui.new_run.driving import ANSWER, GIB, close, fill_in, make_page, scripted_tasks, type_into
from tests.gui.new_run.test_ways import choose
from tunesmith_core import launch
from tunesmith_core.hardware import Hardware
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.new_run.facts import DEBOUNCE_MS
from tunesmith_gui.new_run.form import SAMPLE_FILES, Missing
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import LISTED
from tunesmith_gui.services.form_memory import draft_path
from tunesmith_gui.theme import Scheme, theme, tokens
from tunesmith_gui.tokens import SPACE

GPU = Hardware("cuda", "RTX 3060", 6 * GIB, 5 * GIB, 16 * GIB, 8 * GIB, gpu_index=0, compute_capability=(8, 6))


class TestChoosing:
    def test_an_empty_form_names_the_missing_piece(self, page: NewRunPage) -> None:
        assert page.start_bar.start.text() == "Choose a model"
        assert not page.start_bar.start.isEnabled()

    def test_model_and_data_by_keyboard_make_it_ready(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        assert page.start_bar.start.text() == "Start run   Ctrl+Enter"
        assert page.start_bar.start.isEnabled()
        assert "chat template found" in page.model_picker.facts.text()
        assert "3 rows" in page.data_picker.facts.text()
        assert page.model_picker.chip.text == "Fits"

    def test_a_plan_counts_the_examples_that_long_texts_become(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        looked = ANSWER | {"rows_looked_at": [3], "rows_used": [70]}
        page.facts.know_preview(looked)
        assert page.facts.num_rows == 70
        page.form.set_value("data.overlong", "split")
        assert page.facts.num_rows == 3, "the preview was of other settings"
        page.facts.know_preview(looked)
        assert page.facts.num_rows == 70
        qtbot.waitUntil(lambda: page.facts.plan is not None and page.facts.plan.are_steps_exact, timeout=8000)
        page.facts.know_preview(looked | {"rows_looked_at": [30], "is_complete": False})
        assert page.facts.num_rows == 7
        qtbot.waitUntil(lambda: page.facts.plan is not None and not page.facts.plan.are_steps_exact, timeout=8000)

    def test_a_model_is_chosen_from_the_list(
        self, qtbot: QtBot, model: Path, context: Context, fake_engine: Any
    ) -> None:
        del fake_engine
        page = make_page(qtbot, context)
        combo = page.model_picker.combo
        assert combo.itemText(0) == "tiny-chat"
        combo.setFocus()
        qtbot.keyClick(combo, Qt.Key.Key_Down)
        combo.activated.emit(0)
        assert page.form.value("model.path") == str(model)
        close(page)

    def test_a_hub_id_is_taken_and_can_not_be_planned(self, qtbot: QtBot, page: NewRunPage, data_file: Path) -> None:
        fill_in(qtbot, page, "org/name", data_file)
        assert "hub" in page.model_picker.facts.text()
        assert page.form.missing() is Missing.NOTHING
        qtbot.waitUntil(lambda: "downloaded" in page.plan_card.device.text())

    def test_dropped_files_are_told_apart(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, tmp_path: Path
    ) -> None:
        page.on_shown([model, data_file])
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        spec = page.form.spec
        spec.adapter.rank = 4
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(spec.to_dict()))
        page.on_shown([path])
        qtbot.waitUntil(lambda: page.form.value("adapter.rank") == 4, timeout=5000)

    def test_the_sample_fills_the_form(self, qtbot: QtBot, page: NewRunPage, model: Path) -> None:
        page.facts.refresh()
        qtbot.waitUntil(lambda: bool(page.facts.survey and page.facts.survey.models), timeout=5000)
        qtbot.mouseClick(page.data_picker.sample, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.form.value("model.path") == str(model)
        assert page.form.value("schedule.max_steps") == 60

    def test_the_file_of_the_sample_brings_its_settings_too(self, qtbot: QtBot, page: NewRunPage, model: Path) -> None:
        del model
        page.on_shown([Path(next(iter(SAMPLE_FILES)))])
        qtbot.waitUntil(lambda: page.form.value("schedule.max_steps") == 60, timeout=5000)

    def test_the_sample_leaves_nothing_in_the_form_of_other_data(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        page.actions_.use_sample()
        qtbot.waitUntil(lambda: bool(page.form.value("evaluation.path")), timeout=5000)
        fill_in(qtbot, page, model, data_file)
        spec = page.form.spec
        assert (spec.evaluation.path, spec.evaluation.sample_prompts, spec.name) == ("", [], "")
        assert page.form.preset == "balanced"

    def test_a_run_to_repeat_fills_the_form(self, page: NewRunPage) -> None:
        spec = RunSpec(name="again")
        spec.adapter.rank = 32
        page.on_shown(spec)
        assert page.form.value("adapter.rank") == 32
        assert page.goal_card.name.text() == "again"


class TestRecent:
    def test_junk_is_not_remembered(self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path) -> None:
        fill_in(qtbot, page, model, data_file)
        fill_in(qtbot, page, Path("blah blah"), Path("no such file.jsonl"))
        qtbot.waitUntil(lambda: page.facts.model.error is not None and page.facts.data.error is not None, timeout=5000)
        assert entries(page.model_picker.combo) == ["tiny-chat"]
        assert entries(page.data_picker.combo) == ["data.jsonl"]
        assert page.model_picker.combo.currentText() == "blah blah", "what was typed can be corrected"

    def test_what_is_gone_is_forgotten(self, qtbot: QtBot, home: Path, data_file: Path, context: Context) -> None:
        (home / "config").mkdir()
        lists = {"models": ["blah blah", "org/name"], "data": [str(home / "gone.jsonl"), str(data_file)]}
        draft_path().write_text(json.dumps(lists))
        page = make_page(qtbot, context)
        qtbot.waitUntil(lambda: entries(page.model_picker.combo) == ["org/name"], timeout=5000)
        assert entries(page.data_picker.combo) == ["data.jsonl"]
        close(page)

    def test_files_of_one_name_can_be_told_apart(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, tmp_path: Path
    ) -> None:
        others = [tmp_path / "a" / "x" / "data.jsonl", tmp_path / "b" / "x" / "data.jsonl"]
        for each in others:
            each.parent.mkdir(parents=True)
            each.write_bytes(data_file.read_bytes())
            fill_in(qtbot, page, model, each)
            qtbot.waitUntil(lambda each=each: page.facts.data.path == str(each), timeout=5000)
        assert entries(page.data_picker.combo) == [f"data.jsonl in {Path('b/x')}", f"data.jsonl in {Path('a/x')}"]
        assert page.data_picker.combo.currentText() == f"data.jsonl in {Path('b/x')}"

    def test_a_longer_list_leaves_what_is_being_typed(self, qtbot: QtBot, page: NewRunPage) -> None:
        type_into(qtbot, page.data_picker.combo.lineEdit(), "half a pa")
        page.data_picker.set_choices(["/data/a.jsonl"])
        assert page.data_picker.combo.currentText() == "half a pa"


def gap(upper: QWidget, lower: QWidget) -> int:
    return lower.mapToGlobal(QPoint()).y() - upper.mapToGlobal(QPoint()).y() - upper.height()


def wrong_settings(page: NewRunPage) -> list[str]:
    return [link.text() for link in page.start_bar.problems.findChildren(QPushButton) if link.isVisible()]


def entries(combo: QComboBox) -> list[str]:
    return [combo.itemText(place) for place in range(combo.count())]


class TestDraft:
    def test_what_was_typed_is_there_the_next_time(self, qtbot: QtBot, page: NewRunPage, context: Context) -> None:
        page.form.set_text("optimizer.learning_rate", "abc")
        page.form.set_name("half done")
        qtbot.waitUntil(draft_path().exists, timeout=5000)
        page.on_hidden()
        settle()
        again = make_page(qtbot, context)
        qtbot.waitUntil(lambda: again.form.name == "half done", timeout=5000)
        assert again.form.text("optimizer.learning_rate") == "abc"
        close(again)

    def test_a_damaged_draft_is_an_empty_form(self, qtbot: QtBot, home: Path, context: Context) -> None:
        (home / "config").mkdir()
        draft_path().write_text('{"form": {"version": 1, "spec": [')
        page = make_page(qtbot, context)
        settle()
        assert page.form.value("model.path") == ""
        close(page)


class TestSettings:
    def test_a_wrong_learning_rate_is_explained_and_stops_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        page.settings_list.reveal("optimizer.learning_rate")
        row = page.settings_list.rows["optimizer.learning_rate"]
        type_into(qtbot, row.control.lineEdit(), "abc")
        assert "not “abc”" in row.message.text()
        assert page.start_bar.start.text() == "Correct a setting"
        assert not page.start_bar.start.isEnabled()
        qtbot.waitUntil(lambda: wrong_settings(page) == ["Learning rate"])
        qtbot.waitUntil(lambda: row.reset.isVisible() and row.reset.width() > 0)
        row.reset.click()
        assert row.control.text() == "2e-4"
        assert page.start_bar.start.isEnabled()

    def test_a_rank_of_zero_leads_to_its_row(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        page.form.set_text("adapter.rank", "0")
        assert page.perform("start_run")
        assert page.settings_list.is_open
        assert page.settings_list.rows["adapter.rank"].message.text() == "Must be at least 1"

    def test_every_wrong_setting_is_a_link_to_its_row_and_the_plan_waits(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        assert page.plan_card.summary.startswith("Fits")
        wrong = {"optimizer.learning_rate": "100", "adapter.rank": "0", "data.context_length": "1"}
        for path, text in wrong.items():
            page.form.set_text(path, text)
        assert page.plan_card.summary == "The plan appears once every setting is valid."
        assert not page.model_picker.chip.isVisible()
        qtbot.waitUntil(lambda: sorted(wrong_settings(page)) == ["Context length", "Learning rate", "Rank"])
        assert not page.settings_list.is_open
        for link in page.start_bar.problems.findChildren(QPushButton):
            qtbot.mouseClick(link, Qt.MouseButton.LeftButton)
            (row,) = [each for each in page.settings_list.rows.values() if each.label.text() == link.text()]
            qtbot.waitUntil(lambda row=row: not row.visibleRegion().isEmpty() and row.control.hasFocus())
        for path in wrong:
            page.form.reset(path)
        qtbot.waitUntil(lambda: page.plan_card.summary.startswith("Fits"), timeout=5000)
        assert wrong_settings(page) == []

    def test_the_filter_finds_by_any_word(self, qtbot: QtBot, page: NewRunPage) -> None:
        with qtbot.waitSignal(page.settings_list.opened):
            page.perform("find")
        qtbot.keyClicks(page.settings_list.filter, "warm")
        shown = [path for path, row in page.settings_list.rows.items() if not row.isHidden()]
        assert "schedule.warmup_steps" in shown
        assert len(shown) < 6
        page.settings_list.filter.setText("no such words")
        assert page.settings_list._nothing.isVisible()
        for words in ("hold out", "held-out", "validation", "test set"):
            page.settings_list.filter.setText(words)
            assert not page.settings_list.rows["evaluation.percent"].isHidden(), words

    def test_every_kind_of_control_writes_to_the_form(self, qtbot: QtBot, page: NewRunPage) -> None:
        page.settings_list.reveal("adapter.rank")
        rows = page.settings_list.rows
        rank = rows["adapter.rank"].control
        qtbot.keyClick(rank, Qt.Key.Key_Up)
        assert page.form.value("adapter.rank") == 17
        box = rows["adapter.dora"].control
        assert isinstance(box, QCheckBox)
        qtbot.keyClick(box, Qt.Key.Key_Space)
        assert page.form.value("adapter.dora") is True
        combo = rows["quantization.kind"].control
        assert isinstance(combo, QComboBox)
        combo.setCurrentIndex(1)
        combo.activated.emit(1)
        assert page.form.value("quantization.kind") == "nf4"
        device = rows["hardware.devices"].control
        assert [device.itemText(place) for place in range(device.count())] == ["auto", "cpu", "cuda"]
        device.setCurrentIndex(1)
        assert page.form.value("hardware.devices") == ["cpu"]
        type_into(qtbot, device.lineEdit(), "cuda:1")
        assert page.form.value("hardware.devices") == ["cuda:1"]
        page.form.reset("hardware.devices")
        assert device.currentText() == "auto"
        page.form.set_value("data.context_length", 512)
        assert rows["data.context_length"].note.text() == "tokens  ·  changed, was 2,048"
        page.form.reset("data.context_length")
        type_into(qtbot, rows["adapter.target_modules"].control, "q_proj")
        assert page.form.value("adapter.target_modules") == ["q_proj"]
        assert page.settings_list.summary.text() == "4 changed"
        qtbot.mouseClick(page.settings_list.reset_all, Qt.MouseButton.LeftButton)
        assert page.form.changed_paths() == []
        assert rank.text() == "16"

    def test_help_opens_by_key(self, qtbot: QtBot, page: NewRunPage) -> None:
        assert not page.perform("help")
        page.activateWindow()
        page.settings_list.reveal("adapter.rank")
        qtbot.waitUntil(page.settings_list.rows["adapter.rank"].control.hasFocus)
        assert page.perform("help")
        assert "Range: 1 to 4096" in page.settings_list.rows["adapter.rank"].explanation.text()

    def test_help_stands_beside_an_error_and_does_not_look_like_one(self, qtbot: QtBot, page: NewRunPage) -> None:
        page.settings_list.reveal("adapter.rank")
        row = page.settings_list.rows["adapter.rank"]
        page.form.set_text("adapter.rank", "0")
        row.help.click()
        assert (row.message.isVisible(), row.message.text()) == (True, "Must be at least 1")
        assert row.explanation.isVisible()
        assert "Range: 1 to 4096" in row.explanation.text()
        ink = row.explanation.palette().color(row.explanation.foregroundRole())
        assert ink == QColor(tokens().text) != row.message.palette().color(row.message.foregroundRole())
        page.form.set_text("adapter.rank", "8")
        assert row.message.isHidden()
        assert row.explanation.isVisible(), "who asked for it closes it"
        row.help.click()
        assert row.explanation.isHidden()

    def test_presets_and_goals(self, qtbot: QtBot, page: NewRunPage) -> None:
        fast = page.preset_bar.segments.findChildren(QPushButton)[1]
        qtbot.mouseClick(fast, Qt.MouseButton.LeftButton)
        assert page.form.preset == "fast-try"
        assert "60 steps" in page.preset_bar.summary.text()
        assert page.preset_bar.changes.text() == ""
        page.form.set_value("data.context_length", 512)
        page.form.set_value("adapter.rank", 4)
        assert page.preset_bar.changes.text() == "Fast try, 2 changed"
        page.goal_card.early.click()
        assert page.form.stops_early
        page.goal_card.evaluation.click()
        assert not page.goal_card.early.isEnabled()
        assert not page.form.stops_early

    def test_the_line_of_the_preset_names_the_precision_of_the_device(
        self, qtbot: QtBot, page: NewRunPage, devices: list[Hardware]
    ) -> None:
        assert page.preset_bar.summary.text().startswith("LoRA on a 32-bit base")
        devices.insert(0, GPU)
        page.on_shown()
        qtbot.waitUntil(lambda: page.preset_bar.summary.text().startswith("LoRA on a 16-bit base"), timeout=5000)
        page.form.set_value("model.dtype", "float32")
        assert page.preset_bar.summary.text().startswith("LoRA on a 32-bit base")


class TestPlan:
    def test_what_does_not_fit_offers_fixes_that_help(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, devices: list[Hardware]
    ) -> None:
        devices[:] = [Hardware("cpu", "x86", GIB, GIB, GIB, GIB)]
        data_file.write_text('{"prompt": "Why?", "completion": "' + "so " * 400_000 + '"}\n')
        page.form.set_value("data.context_length", 1_000_000)
        place = page.start_bar.start.mapTo(page, QPoint())
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: page.start_bar.start.text() == "Does not fit: see plan", timeout=5000)
        settle()
        assert page.start_bar.start.mapTo(page, QPoint()) == place
        assert page.plan_card.chip.text == "Does not fit"
        fix = next(each for each in page.plan_card.findChildren(QPushButton) if each.text().endswith(" tokens"))
        assert "saves" in fix.accessibleDescription()
        qtbot.mouseClick(fix, Qt.MouseButton.LeftButton)
        assert page.form.value("data.context_length") == 749_952

    def test_a_warm_up_longer_than_the_run_is_told(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        page.form.set_value("schedule.max_steps", 4)
        page.form.set_value("schedule.warmup_steps", 3)
        fill_in(qtbot, page, model, data_file)
        assert "warm-up" not in page.plan_card.notes.text()
        page.form.set_value("schedule.warmup_steps", 5)
        qtbot.waitUntil(lambda: "The warm-up has 5 steps and the run 4" in page.plan_card.notes.text(), timeout=5000)

    def test_short_rows_fit_whatever_the_context_length(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, devices: list[Hardware]
    ) -> None:
        devices[:] = [Hardware("cpu", "x86", GIB, GIB, GIB, GIB)]
        page.form.set_value("data.context_length", 1_000_000)
        fill_in(qtbot, page, model, data_file)
        assert page.start_bar.start.isEnabled()
        assert page.plan_card.chip.text != "Does not fit"

    def test_a_chosen_model_brings_settings_that_suit_the_gpu(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, devices: list[Hardware]
    ) -> None:
        devices.insert(0, GPU)
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: page.form.value("schedule.micro_batch_size") == 4, timeout=5000)
        assert page.form.changed_paths() == []
        assert "RTX 3060" in page.plan_card.device.text()

    def test_a_measured_step_replaces_the_estimate(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        page.form.set_value("schedule.warmup_steps", 0)
        page.form.set_value("evaluation.percent", 0.0)
        fill_in(qtbot, page, model, data_file)
        tasks = scripted_tasks(monkeypatch)
        qtbot.mouseClick(page.plan_card.check, Qt.MouseButton.LeftButton)
        assert page.plan_card.check.text() == "Cancel the check"
        result = {"peak_bytes": 2 * GIB, "longest_tokens": 100, "micro_batch_size": 2, "step_s": 0.5}
        tasks[0].succeeded({**result, "notes": ["9 rows are cut."]})
        qtbot.waitUntil(lambda: page.plan_card.total.text().startswith("2.0 of"), timeout=5000)
        assert page.plan_card.check.text() == "Check the plan"
        assert (page.plan_card.notes.text(), page.plan_card.notes.isVisible()) == ("9 rows are cut.", True)
        page.on_hidden()
        page.on_shown()
        with qtbot.waitSignal(page.facts.data_changed, timeout=5000):
            pass
        qtbot.wait(DEBOUNCE_MS * 2)
        settle()
        assert page.plan_card.total.text().startswith("2.0 of"), "another page was looked at meanwhile"
        page.form.set_value("adapter.rank", 8)
        qtbot.waitUntil(lambda: not page.plan_card.total.text().startswith("2.0 of"), timeout=5000)
        assert page.plan_card.notes.isVisible()
        page.form.set_value("data.context_length", 256)
        qtbot.waitUntil(page.plan_card.notes.isHidden, timeout=5000)

    def test_other_rows_in_the_file_make_a_measured_step_void(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        page.facts.know_check({"peak_bytes": 2 * GIB, "longest_tokens": 100, "micro_batch_size": 2, "step_s": 0.5})
        qtbot.waitUntil(lambda: page.plan_card.total.text().startswith("2.0 of"), timeout=5000)
        data_file.write_text(data_file.read_text() * 2)
        page.on_shown()
        qtbot.waitUntil(lambda: not page.plan_card.total.text().startswith("2.0 of"), timeout=5000)

    def test_changing_the_form_ends_a_check(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        tasks = scripted_tasks(monkeypatch)
        page.actions_.check_plan()
        page.form.set_value("adapter.rank", 8)
        assert tasks[0].cancelled


class TestStarting:
    def test_start_makes_a_run_and_goes_to_it(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[RunSpec] = []

        def start(spec: RunSpec) -> Run:
            started.append(spec)
            return Run(Path("/runs/mine-01"))

        monkeypatch.setattr(launch, "start", start)
        fill_in(qtbot, page, model, data_file)
        page.goal_card.name.setFocus()
        qtbot.keyClicks(page.goal_card.name, "mine")
        with qtbot.waitSignal(page.navigate, timeout=5000) as gone:
            page.perform("start_run")
        assert gone.args == ["dashboard", "mine-01"]
        assert [spec.name for spec in started] == ["mine"]
        assert started[0].model.path == str(model)

    def test_who_has_gone_elsewhere_meanwhile_stays_there(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(launch, "start", lambda _spec: Run(Path("/runs/mine-01")))
        fill_in(qtbot, page, model, data_file)
        asked: list[tuple[str, object]] = []
        page.navigate.connect(lambda target, argument: asked.append((target, argument)))
        with qtbot.waitSignal(page.offer, timeout=5000) as offered:
            page.perform("start_run")
            page.hide()
        assert asked == []
        assert offered.args[:2] == ["The run has started.", "Show it"]
        offered.args[2]()
        assert asked == [("dashboard", "mine-01")]

    def test_start_by_key_leads_to_what_is_missing(self, qtbot: QtBot, page: NewRunPage) -> None:
        page.activateWindow()
        page.goal_card.name.setFocus()
        page.perform("start_run")
        qtbot.waitUntil(lambda: page.model_picker.combo.lineEdit().hasFocus())

    def test_the_command_and_the_spec_are_copied(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, tmp_path: Path, monkeypatch: Any
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        clipboard = QGuiApplication.clipboard()
        page.start_bar.copy_json_asked.emit()
        assert RunSpec.from_dict(json.loads(clipboard.text())) == page.form.spec
        with qtbot.waitSignal(page.notify, timeout=5000):
            page.start_bar.copy_command_asked.emit()
        command, path = clipboard.text().split('"')[:2]
        assert command == "tunesmith train "
        assert RunSpec.load(Path(path)) == page.form.spec
        target = tmp_path / "saved.json"
        monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(target), ""))
        with qtbot.waitSignal(page.notify, timeout=5000):
            page.start_bar.save_asked.emit()
        assert RunSpec.load(target) == page.form.spec


class TestLayout:
    @pytest.mark.parametrize(("width", "height", "scale"), [(1080, 800, 1.0), (824, 600, 1.0), (824, 600, 2.0)])
    def test_nothing_is_clipped_or_nameless(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, width: int, height: int, scale: float
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        try:
            theme().set_appearance(Scheme.DARK, scale)
            page.resize(width, height)
            page._arrange()
            page.settings_list.reveal("adapter.rank")
            page.form.set_text("adapter.rank", "0")
            qtbot.waitUntil(lambda: clipped(page) == [], timeout=3000)
            assert unnamed(page) == []
        except Exception:
            assert clipped(page) == []
            raise
        finally:
            theme().set_appearance(Scheme.LIGHT, 1.0)

    def test_start_stands_below_the_plan_and_copy_as_below_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: gap(page.plan_card, page.start_bar.start) >= SPACE * 2, timeout=3000)
        assert gap(page.start_bar.start, page.start_bar.copy_as) == SPACE
        page.resize(700, 600)
        qtbot.waitUntil(lambda: page.start_bar.plan.isVisible() and page.start_bar.start.isVisible(), timeout=3000)
        assert page.start_bar.plan.text() == f"Fits: {page.plan_card.total.text()}"
        words, start = page.start_bar.plan.mapTo(page, QPoint()), page.start_bar.start.mapTo(page, QPoint())
        assert words.x() + page.start_bar.plan.width() < start.x()
        assert gap(page.start_bar.start, page.start_bar.copy_as) == SPACE

    def test_a_tall_plan_scrolls_and_leaves_room_for_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, devices: list[Hardware]
    ) -> None:
        devices[:] = [Hardware("cpu", "x86", GIB, GIB, GIB, GIB)]
        data_file.write_text('{"prompt": "Why?", "completion": "' + "so " * 400_000 + '"}\n')
        page.form.set_value("data.context_length", 1_000_000)
        page.resize(1080, 480)
        fill_in(qtbot, page, model, data_file)
        bottom = page.start_bar.copy_as.mapTo(page, QPoint()).y() + page.start_bar.copy_as.height()
        assert bottom <= page.height()
        assert page.start_bar.start.height() >= page.start_bar.start.sizeHint().height()

    @pytest.mark.parametrize("width", [1080, 900])
    def test_model_and_data_are_tiles_in_one_row(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, width: int
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        page.resize(width, 600)
        left, right = page.model_picker, page.data_picker
        qtbot.waitUntil(lambda: left.y() == right.y() and left.width() == right.width(), timeout=3000)
        assert left.height() == right.height()
        page.resize(560, 600)
        qtbot.waitUntil(lambda: left.x() == right.x(), timeout=3000)

    def test_tab_goes_in_reading_order(self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path) -> None:
        fill_in(qtbot, page, model, data_file)
        page.way_bar.segments.findChildren(QPushButton)[0].setFocus()
        names = [each.accessibleName() for each in [QApplication.focusWidget(), *tab_stops(page)] if each]
        wanted = [
            "Teach by example",
            "Model",
            "Browse for a model folder",
            "Data",
            "Browse for a data file",
            "Map columns…",
            "Preview…",
            "Balanced",
            f"All settings: Show all {sum(page.form.uses(path) for path in LISTED)}",
            "Hold out 5% of the rows for evaluation",
            "Name of the run",
            "Check the plan",
            "Start run",
            "Copy as…",
        ]
        places = [names.index(name) for name in wanted]
        assert places == sorted(places)


def test_a_file_that_is_being_read_has_no_facts_of_the_one_before(
    qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
) -> None:
    fill_in(qtbot, page, model, data_file)
    assert page.facts.num_rows
    other = data_file.with_name("other.jsonl")
    other.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n' * 5)
    page.form.set_value("data.sources[0].path", str(other))
    assert page.facts.num_rows is None
    assert page.data_picker.facts.text() == "Reading the first rows…"
    qtbot.waitUntil(lambda: page.facts.num_rows == 5, timeout=5000)
    choose(qtbot, page, "Prefer this over that")
    page.form.set_value("data.sources[0].path", str(data_file))
    qtbot.waitUntil(lambda: "once the data suits" in page.plan_card.summary, timeout=5000)
    choose(qtbot, page, "Teach by example")
    qtbot.waitUntil(lambda: "GiB" in page.plan_card.summary, timeout=5000)
