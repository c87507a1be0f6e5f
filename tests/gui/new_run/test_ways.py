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
from tunesmith_gui.new_run.data_preview import DataPreviewDialog
from tunesmith_gui.new_run.form import BY_EXAMPLE, BY_PREFERENCE, LISTED, OBJECTIVE, Missing, NewRunForm
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.theme import Scheme, theme

RATE = "optimizer.learning_rate"


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


class TestSettings:
    def test_a_setting_is_shown_for_the_objectives_that_use_it(self, qtbot: QtBot, page: NewRunPage) -> None:
        listed = page.settings_list

        def shown() -> set[str]:
            return {path for path, row in listed.rows.items() if not row.isHidden()}

        def used(kind: str) -> set[str]:
            return {path for path in LISTED if objectives.uses(kind, path)}

        assert listed.toggle.text() == f"Show all {len(used('sft'))}"
        choose(qtbot, page, "Prefer this over that")
        assert listed.toggle.text() == f"Show all {len(used('dpo'))}"
        with qtbot.waitSignal(listed.opened):
            listed.set_open(True)
        assert shown() == used("dpo")
        assert not {"objective.margin", "objective.clip", "rollouts.group_size"} & shown()
        page.form.set_value(OBJECTIVE, "simpo")
        assert shown() == used("simpo")
        listed.filter.setText("margin")
        assert shown() == {"objective.margin"}
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

    def test_columns_that_were_said_to_be_pairs_are_pairs(
        self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "other.jsonl"
        path.write_text(json.dumps({"question": "Who?", "answer": "Me.", "poor": "Nobody knows."}) + "\n")
        choose(qtbot, page, "Prefer this over that")
        fill_in(qtbot, page, model, path)
        assert page.form.missing() is Missing.PAIRS
        columns = {"prompt": "question", "chosen": "answer", "rejected": "poor"}
        page.actions_.map_columns("preference", columns)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)

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
        choose(qtbot, page, "Teach by example")
        qtbot.waitUntil(lambda: Path(page.form.value("data.sources[0].path")).name == "train.jsonl", timeout=5000)
        assert page.form.way == BY_EXAMPLE

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
        assert dialog.place.text() == "Example 1 of 2  ·  Line 1  ·  18 tokens, 4 trained"
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
