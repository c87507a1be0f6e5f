"""The way to teach, the first choice of a run: what it brings, which settings it shows, and data that suits it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped, unnamed
from tests.gui.new_run.driving import ANSWER, fill_in, scripted_tasks, shown_words
from tunesmith_assets import samples
from tunesmith_core import objectives, presets
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.trained_parts import FULL, OF_FULL, OF_LORA
from tunesmith_gui.new_run.data_preview import DataPreviewDialog
from tunesmith_gui.new_run.form import (
    BY_CLASS,
    BY_EXAMPLE,
    BY_FULL,
    BY_PREFERENCE,
    BY_READING,
    BY_SCORE,
    BY_TEACHER,
    WAYS,
    Missing,
    NewRunForm,
)
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.setting_paths import LISTED, OBJECTIVE
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.column_question import asked_columns

RATE = "optimizer.learning_rate"
FORMAT = "data.sources[0].format"


@pytest.fixture
def form(qapp: object) -> NewRunForm:
    del qapp
    return NewRunForm()


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"Question {n}?", "chosen": "Yes.", "rejected": "It depends."} for n in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def choose(qtbot: QtBot, page: NewRunPage, name: str) -> None:
    (segment,) = [each for each in page.way_bar.findChildren(QPushButton) if each.text() == name]
    qtbot.mouseClick(segment, Qt.MouseButton.LeftButton)
    settle()


class TestForm:
    def test_pairs_are_better_used_only_where_one_answer_is_learned(self, form: NewRunForm) -> None:
        form.surroundings.is_pairs = True
        ways = []
        for way in WAYS:
            form.choose_way(way)
            ways += [way] * form.could_prefer
        assert ways == [BY_EXAMPLE, BY_READING, BY_TEACHER, BY_FULL]
        asked = [way for way in WAYS if "rejected" in asked_columns(way).roles]
        assert asked == [BY_PREFERENCE, BY_SCORE]

    def test_a_way_brings_its_learning_rate_and_is_no_change(self, form: NewRunForm) -> None:
        form.choose_way(BY_PREFERENCE)
        assert (form.value(OBJECTIVE), form.value(RATE), form.changed_paths()) == ("dpo", 5e-5, [])
        form.choose_preset("fast-try")
        assert (form.value(RATE), form.changed_paths()) == (7.5e-5, [])
        form.choose_way(BY_EXAMPLE)
        assert (form.value(OBJECTIVE), form.value(RATE), form.preset) == ("sft", 3e-4, "fast-try")
        assert form.changed_paths() == []

    def test_an_objective_comes_back_with_its_way(self, form: NewRunForm) -> None:
        form.choose_way(BY_PREFERENCE)
        form.set_value(OBJECTIVE, "simpo")
        form.choose_way(BY_EXAMPLE)
        form.choose_way(BY_PREFERENCE)
        assert form.value(OBJECTIVE) == "simpo"

    def test_a_learning_rate_of_ones_own_stays(self, form: NewRunForm) -> None:
        form.set_value(RATE, 1e-3)
        form.choose_way(BY_PREFERENCE)
        assert form.value(RATE) == 1e-3
        form.reset(RATE)
        assert form.value(RATE) == 5e-5

    def test_another_objective_of_the_same_way_is_a_change_that_reset_takes_back(self, form: NewRunForm) -> None:
        form.choose_way(BY_PREFERENCE)
        form.set_value(OBJECTIVE, "simpo")
        assert (form.way, form.value(RATE), form.changed_paths()) == (BY_PREFERENCE, 2e-5, [OBJECTIVE])
        form.choose_way(BY_PREFERENCE)
        assert form.value(OBJECTIVE) == "simpo", "it belongs to this way"
        form.reset_all()
        assert (form.value(OBJECTIVE), form.value(RATE), form.changed_paths()) == ("dpo", 5e-5, [])

    def test_what_has_no_effect_is_neither_changed_nor_wrong_and_comes_back(self, form: NewRunForm) -> None:
        form.choose_way(BY_PREFERENCE)
        form.set_value("objective.beta", 0.5)
        form.set_text("objective.label_smoothing", "much")
        assert form.changed_paths() == ["objective.beta", "objective.label_smoothing"]
        form.choose_way(BY_EXAMPLE)
        assert (form.changed_paths(), "objective.label_smoothing" in form.problems()) == ([], False)
        form.choose_way(BY_PREFERENCE)
        assert form.value("objective.beta") == 0.5
        assert form.problem("objective.label_smoothing")
        form.choose_way(BY_EXAMPLE)
        form.reset_all()
        form.choose_way(BY_PREFERENCE)
        assert form.changed_paths() == []

    def test_a_reward_model_is_a_way_of_its_own(self, form: NewRunForm) -> None:
        form.choose_way(BY_PREFERENCE)
        form.set_value(OBJECTIVE, "simpo")
        form.choose_way(BY_SCORE)
        assert (form.way, form.value(OBJECTIVE), form.value(RATE)) == ("reward", "reward", 1e-4)
        assert form.changed_paths() == []
        form.choose_way(BY_PREFERENCE)
        assert form.value(OBJECTIVE) == "simpo"

    def test_rows_of_labels_are_read_as_such_and_no_others(self, form: NewRunForm) -> None:
        form.choose_way(BY_CLASS)
        assert (form.value(FORMAT), form.changed_paths(), form.spec.problems()[0].path) == ("labeled", [], "model.path")
        form.set_value(FORMAT, "auto")
        form.add_source(SourceSpec(path="more.csv"))
        assert [source.format for source in form.spec.data.sources] == ["labeled", "labeled"]
        form.set_value("data.sources[0].columns", {"text": "a", "class": "b"})
        form.choose_way(BY_EXAMPLE)
        assert [(source.format, source.columns) for source in form.spec.data.sources] == [("auto", {}), ("auto", {})]

    def test_a_draft_and_a_run_to_repeat_keep_the_way(self, form: NewRunForm) -> None:
        form.choose_way(BY_PREFERENCE)
        again = NewRunForm()
        assert again.load_draft(json.loads(json.dumps(form.to_draft())))
        assert (again.way, again.value(RATE), again.changed_paths()) == (BY_PREFERENCE, 5e-5, [])
        spec = RunSpec()
        spec.objective.kind = "orpo"
        spec = presets.apply(spec, "best-quality")
        again.load_spec(spec)
        assert (again.preset, again.value(RATE), again.changed_paths()) == ("best-quality", 2.5e-5, [OBJECTIVE])

    def test_the_way_outlives_the_sample(self, form: NewRunForm) -> None:
        form.load_spec(RunSpec.from_dict(samples.preference_spec("en", "/models/a")))
        form.leave_sample()
        assert (form.value(OBJECTIVE), form.value(RATE), form.changed_paths()) == ("dpo", 5e-5, [])


class TestFullFineTuning:
    def test_the_way_brings_its_learning_rate_and_what_it_trains(self, form: NewRunForm) -> None:
        form.set_value("quantization.kind", "nf4")
        form.choose_way(BY_FULL)
        assert (form.way, form.value("adapter.kind"), form.value(OBJECTIVE)) == (BY_FULL, FULL, "sft")
        assert (form.value(RATE), form.value("quantization.kind"), form.changed_paths()) == (2e-5, "none", [])
        assert not {"model.path", "data.sources[0].path"} ^ {each.path for each in form.spec.problems()}
        form.choose_preset("best-quality")
        assert (form.value(RATE), form.changed_paths()) == (1e-5, [])
        form.choose_way(BY_PREFERENCE)
        assert (form.value("adapter.kind"), form.value(OBJECTIVE), form.value(RATE)) == ("lora", "dpo", 2.5e-5)
        form.choose_way(BY_FULL)
        form.choose_way(BY_EXAMPLE)
        assert (form.value("adapter.kind"), form.value(RATE), form.changed_paths()) == ("lora", 1e-4, [])

    def test_an_optimizer_for_whole_weights_goes_with_the_way(self, form: NewRunForm) -> None:
        form.choose_way(BY_FULL)
        form.set_value("optimizer.name", "muon")
        assert "optimizer.name" in form.changed_paths()
        form.choose_way(BY_EXAMPLE)
        assert (form.value("optimizer.name"), form.problems()) == ("adamw", {})

    def test_what_is_trained_is_a_setting_of_preferences_too(self, form: NewRunForm) -> None:
        form.choose_way(BY_PREFERENCE)
        form.set_value(OBJECTIVE, "orpo")
        form.set_value("adapter.kind", FULL)
        assert (form.way, form.value(RATE)) == (BY_PREFERENCE, 5e-6)
        assert form.changed_paths() == [OBJECTIVE, "adapter.kind"]
        form.set_value(OBJECTIVE, "dpo")
        assert "adapter.kind" in form.problems()
        form.reset("adapter.kind")
        assert (form.value("adapter.kind"), form.value(RATE), form.problems()) == ("lora", 5e-5, {})

    def test_parts_are_typed_as_a_list(self, form: NewRunForm) -> None:
        form.choose_way(BY_FULL)
        form.set_text("adapter.parts", "norms, 20-31")
        assert form.value("adapter.parts") == ["norms", "20-31"]
        form.set_text("adapter.parts", "all")
        assert form.value("adapter.parts") == "all"
        form.set_text("adapter.parts", " ")
        assert form.problem("adapter.parts") == "Name at least one module, or all"

    def test_a_draft_and_reset_keep_the_way(self, form: NewRunForm) -> None:
        form.choose_way(BY_FULL)
        again = NewRunForm()
        assert again.load_draft(json.loads(json.dumps(form.to_draft())))
        assert (again.way, again.value(RATE), again.changed_paths()) == (BY_FULL, 2e-5, [])
        again.set_value("adapter.weights", "bfloat16")
        again.reset_all()
        assert (again.way, again.value("adapter.weights"), again.changed_paths()) == (BY_FULL, "float32", [])
        again.load_spec(RunSpec.from_dict(samples.example_spec("en", "/models/a")))
        again.choose_way(BY_FULL)
        again.leave_sample()
        assert (again.way, again.changed_paths()) == (BY_FULL, [])

    def test_the_ways_go_on_in_the_next_line_where_there_is_no_room(self, qtbot: QtBot, page: NewRunPage) -> None:
        segments = page.way_bar.segments

        def lines() -> set[int]:
            return {each.geometry().top() for each in segments.findChildren(QPushButton)}

        page.resize(1180, 900)
        settle()
        wide = len(lines())
        inside = segments.contentsRect()
        assert all(inside.contains(each.geometry()) for each in segments.findChildren(QPushButton))
        page.resize(440, 900)
        qtbot.waitUntil(lambda: len(lines()) >= wide)
        settle()
        inside = segments.contentsRect()
        assert all(inside.contains(each.geometry()) for each in segments.findChildren(QPushButton))

    def test_only_settings_that_matter_are_shown(self, qtbot: QtBot, page: NewRunPage) -> None:
        choose(qtbot, page, "Full fine-tune")
        assert "several times the memory" in page.way_bar.words.text()
        with qtbot.waitSignal(page.settings_list.opened):
            page.settings_list.set_open(True)
        shown = {path for path, row in page.settings_list.rows.items() if not row.isHidden()}
        assert {path for path in shown if path.startswith("adapter.")} == {"adapter.kind", *OF_FULL}
        assert not shown & OF_LORA
        words = page.preset_bar.summary.text()
        assert words.startswith("Full fine-tuning in 32 bits")
        assert "rank" not in words
        assert "optimizer.beta1" in shown
        page.form.set_value("optimizer.name", "adafactor")
        assert page.settings_list.rows["optimizer.beta1"].isHidden()


class TestSettings:
    def test_a_setting_is_shown_for_the_objectives_that_use_it(self, qtbot: QtBot, page: NewRunPage) -> None:
        listed = page.settings_list

        def shown() -> set[str]:
            return {path for path, row in listed.rows.items() if not row.isHidden()}

        def used(kind: str) -> set[str]:
            # GRPO compares with nothing where its beta is 0.
            unused = {"objective.reference_adapter"} if kind == "grpo" else set()
            unused |= OF_FULL | {"optimizer.embedding_rate"}
            return {path for path in LISTED if objectives.uses(kind, path)} - unused

        assert listed.toggle.text() == f"Show all {len(used('sft'))}"
        choose(qtbot, page, "Prefer this over that")
        assert listed.toggle.text() == f"Show all {len(used('dpo'))}"
        with qtbot.waitSignal(listed.opened):
            listed.set_open(True)
        assert shown() == used("dpo")
        assert not {"objective.margin", "objective.clip", "rollouts.group_size"} & shown()
        page.form.set_value(OBJECTIVE, "simpo")
        assert shown() == used("simpo")
        assert "objective.dpo_loss" not in shown()
        choose(qtbot, page, "Good and bad answers")
        own = {path for path in LISTED if path.startswith("objective.")}
        names = ("kto_loss", "good_weight", "bad_weight", "reference", "reference_adapter")
        of_labels = {f"objective.{name}" for name in names}
        assert shown() & own == {OBJECTIVE, "objective.beta", *of_labels}
        choose(qtbot, page, "Prefer this over that")
        listed.filter.setText("margin")
        assert shown() == {"objective.margin"}
        choose(qtbot, page, "Score answers")
        listed.filter.clear()
        assert shown() == used("reward")
        assert not shown() & objectives.OF_WRITING
        choose(qtbot, page, "Sort texts into classes")
        assert shown() == used("classify")
        assert {"objective.regression", "objective.classes"} <= shown()
        listed.filter.setText("margin")
        choose(qtbot, page, "Teach by example")
        assert shown() == set()
        listed.filter.clear()
        assert shown() == used("sft")


class TestData:
    def test_pairs_offer_the_other_way(self, qtbot: QtBot, page: NewRunPage, model: Path, pairs: Path) -> None:
        fill_in(qtbot, page, model, pairs)
        assert page.form.missing() is Missing.NOTHING
        assert page.data_picker.prefer.isVisible()
        assert clipped(page) == []
        qtbot.mouseClick(page.data_picker.prefer, Qt.MouseButton.LeftButton)
        settle()
        assert (page.form.way, page.way_bar.segments.value) == (BY_PREFERENCE, BY_PREFERENCE)
        assert not page.data_picker.prefer.isVisible()
        assert page.form.missing() is Missing.NOTHING
        assert page.facts.max_tokens is None, "the worse answer may be the longer one"

    def test_data_without_pairs_is_told_before_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, pairs: Path
    ) -> None:
        choose(qtbot, page, "Prefer this over that")
        fill_in(qtbot, page, model, data_file)
        assert page.start_bar.start.text() == "The data has no pairs"
        assert not page.start_bar.start.isEnabled()
        assert "No preference pairs in this data" in shown_words(page)
        assert (clipped(page), unnamed(page)) == ([], [])
        page.activateWindow()
        assert page.perform("start_run")
        qtbot.waitUntil(page.data_picker.combo.hasFocus, timeout=5000)
        page.actions_.choose_data(str(pairs))
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        qtbot.waitUntil(lambda: "No preference pairs" not in shown_words(page), timeout=5000)
        page.actions_.choose_data(str(data_file))
        qtbot.waitUntil(lambda: page.form.missing() is Missing.PAIRS, timeout=5000)
        settle()
        (ways,) = [
            each
            for each in page.data_picker.findChildren(QPushButton)
            if each.text() == "Teach by example" and each.isVisible()
        ]
        qtbot.mouseClick(ways, Qt.MouseButton.LeftButton)
        settle()
        assert (page.form.way, page.form.missing()) == (BY_EXAMPLE, Missing.NOTHING)

    def test_pairs_that_contradict_each_other_are_told(
        self, qtbot: QtBot, page: NewRunPage, model: Path, pairs: Path
    ) -> None:
        row = {"prompt": "Question 1?", "chosen": "It depends.", "rejected": "Yes."}
        pairs.write_text(pairs.read_text() + json.dumps(row) + "\n")
        choose(qtbot, page, "Prefer this over that")
        fill_in(qtbot, page, model, pairs)
        assert "Pairs that contradict another one: 2 of 4." in page.data_picker.facts.text()
        assert page.form.missing() is Missing.NOTHING

    def test_columns_that_were_said_to_be_pairs_are_pairs(
        self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "other.jsonl"
        path.write_text(json.dumps({"question": "Who?", "answer": "Me.", "poor": "Nobody knows."}) + "\n")
        choose(qtbot, page, "Prefer this over that")
        fill_in(qtbot, page, model, path)
        assert page.form.missing() is Missing.PAIRS
        columns = {"prompt": "question", "chosen": "answer", "rejected": "poor"}
        assert page.data_picker.map.text() == "Map columns…"
        page.actions_.map_columns("preference", columns)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.data_picker.map.text() == "Change columns…"

    def test_an_engine_that_finds_no_pairs_leads_to_both_ways_out(self, page: NewRunPage) -> None:
        page.form.choose_way(BY_PREFERENCE)
        page.actions_.error_found.emit(TunesmithError("dataset-column-missing", "b.parquet: no pairs."))
        buttons = {each.text(): each for each in page.banners.findChildren(QPushButton)}
        assert "Map columns…" in buttons
        buttons["Teach by example"].click()
        assert page.form.way == BY_EXAMPLE

    def test_the_sample_is_that_of_the_way_in_three_decisions(
        self, qtbot: QtBot, page: NewRunPage, model: Path
    ) -> None:
        page.facts.refresh()
        qtbot.waitUntil(lambda: page.facts.survey is not None and bool(page.facts.survey.models), timeout=5000)
        choose(qtbot, page, "Prefer this over that")
        qtbot.mouseClick(page.data_picker.sample, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.form.value("model.path") == str(model)
        assert Path(page.form.value("data.sources[0].path")).name == "pairs.jsonl"
        choose(qtbot, page, "Score answers")
        qtbot.waitUntil(lambda: page.form.way == BY_SCORE, timeout=5000)
        assert Path(page.form.value("data.sources[0].path")).name == "pairs.jsonl"
        assert page.form.missing() is Missing.NOTHING
        choose(qtbot, page, "Sort texts into classes")
        qtbot.waitUntil(lambda: Path(page.form.value("data.sources[0].path")).name == "classes.jsonl", timeout=5000)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.form.way == BY_CLASS
        assert "Text with label" in page.data_picker.facts.text()
        choose(qtbot, page, "Teach by example")
        qtbot.waitUntil(lambda: Path(page.form.value("data.sources[0].path")).name == "train.jsonl", timeout=5000)
        assert page.form.way == BY_EXAMPLE
        choose(qtbot, page, "Full fine-tune")
        qtbot.waitUntil(lambda: page.form.value(RATE) == 1e-4, timeout=5000)
        assert page.form.way == BY_FULL

    def test_a_preview_tells_the_better_answer_from_the_worse(
        self, qtbot: QtBot, page: NewRunPage, model: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        choose(qtbot, page, "Prefer this over that")
        fill_in(qtbot, page, model, pairs)
        tasks = scripted_tasks(monkeypatch)
        page._open_preview()
        (dialog,) = page.findChildren(DataPreviewDialog)
        (row,) = ANSWER["rows"]
        rows = [{**row, "line": line, "answer": each} for line in (1, 2) for each in ("better", "worse")]
        tasks[0].succeeded(ANSWER | {"rows": rows, "num_rows": 2})
        assert dialog.place.text() == (
            "Example 1 of 2  ·  Line 1  ·  better 9 tokens, 2 trained, worse 9 tokens, 2 trained"
        )
        one = "<b>user</b>Me."
        assert dialog.text.toPlainText() == f"Better answer\n{one}\nWorse answer\n{one}"
        dialog.next.click()
        assert dialog.place.text().startswith("Example 2 of 2  ·  Line 2")
        assert not dialog.next.isEnabled()
        dialog.close()

    def test_nothing_is_cut_off_at_double_text_size(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        choose(qtbot, page, "Prefer this over that")
        fill_in(qtbot, page, model, data_file)
        theme().set_appearance(Scheme.LIGHT, 2.0)
        page.resize(900, 600)
        qtbot.waitUntil(lambda: clipped(page) == [], timeout=5000)
        theme().set_appearance(Scheme.LIGHT, 1.0)
        settle()
