"""What the Train page says before a run: few held-out rows, cut rows, a proposal of another run, the first model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.new_run.driving import ANSWER, close, fill_in, make_page, shown_words
from tunesmith_core.actions import ACTIONS
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.runs import create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.context import Context
from tunesmith_gui.models.run_spec import AtSetting, Proposal
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.new_run.surroundings import Missing
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.safe_label import SafeLabel


class TestProposal:
    def test_it_opens_the_form_at_the_setting(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        spec = page.form.spec
        spec.evaluation.percent = 50.0
        page.on_shown(Proposal(spec, ("evaluation.percent",)))
        row = page.settings_list.rows["evaluation.percent"]
        qtbot.waitUntil(lambda: not row.visibleRegion().isEmpty(), timeout=5000)
        assert page.form.value("evaluation.percent") == 50.0

    def test_a_fix_leads_to_its_setting_and_stays_there(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        spec = RunSpec()
        spec.model.path, spec.data.sources[0].path = str(model), str(data_file)
        with qtbot.waitActive(page.window()):
            page.window().activateWindow()
        page.on_shown(AtSetting("adapter.target_modules", spec))
        row = page.settings_list.rows["adapter.target_modules"]
        qtbot.waitUntil(lambda: row.isAncestorOf(QApplication.focusWidget()), timeout=5000)
        qtbot.waitUntil(lambda: page.facts.plan is not None, timeout=5000)
        settle()
        assert row.visibleRegion().boundingRect().height() == row.height()

    @pytest.mark.parametrize("path", [action.target for action in ACTIONS.values() if action.place == "setting"])
    def test_every_fix_that_names_a_setting_has_its_field(self, qtbot: QtBot, page: NewRunPage, path: str) -> None:
        with qtbot.waitActive(page.window()):
            page.window().activateWindow()
        page.resize(1000, 400)
        page.on_shown(AtSetting(path))
        fields = {"model.path": page.model_picker.combo, "data.sources[0].path": page.data_picker.combo}
        field = fields.get(path) or page.settings_list.rows[path]
        qtbot.waitUntil(lambda: field is QApplication.focusWidget() or field.isAncestorOf(QApplication.focusWidget()))
        qtbot.waitUntil(lambda: field.visibleRegion().boundingRect().height() == field.height())

    def test_too_few_held_out_rows_are_told_beside_their_field_and_in_the_plan(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        data_file.write_text(
            "".join(json.dumps({"prompt": f"Question {number}?", "completion": "Yes."}) + "\n" for number in range(20)),
            encoding="utf-8",
        )
        fill_in(qtbot, page, model, data_file)
        words = "Held-out rows: 1 of 20."
        assert words in page.goal_card.held_out.text()
        assert page.goal_card.held_out.isVisibleTo(page)
        assert words in page.plan_card.notes.text()
        page.form.set_value("evaluation.percent", 30.0)
        assert not page.goal_card.held_out.isVisibleTo(page)
        qtbot.waitUntil(lambda: words not in page.plan_card.notes.text(), timeout=5000)

    @pytest.mark.parametrize("place", ["goal_card", "plan_card"])
    def test_a_click_holds_out_as_many_rows_as_are_advised(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, place: str
    ) -> None:
        data_file.write_text(
            "".join(json.dumps({"prompt": f"Question {number}?", "completion": "Yes."}) + "\n" for number in range(40)),
            encoding="utf-8",
        )
        fill_in(qtbot, page, model, data_file)
        button = getattr(page, place).hold_out
        qtbot.waitUntil(lambda: button.isVisibleTo(page), timeout=5000)
        assert button.text() == "Hold out 15%"
        with qtbot.waitActive(page.window()):
            page.window().activateWindow()
        button.setFocus()
        qtbot.keyClick(button, Qt.Key.Key_Space)
        assert page.form.value("evaluation.percent") == 15.0
        qtbot.waitUntil(lambda: not page.plan_card.hold_out.isVisibleTo(page), timeout=5000)
        assert not page.goal_card.hold_out.isVisibleTo(page)
        stays = page.goal_card.evaluation if place == "goal_card" else page.plan_card.check
        assert page.focusWidget() is stays


class TestWithoutData:
    def test_a_plan_without_data_says_that_it_is_rough(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        page.actions_.choose_model(str(model))
        qtbot.waitUntil(lambda: page.facts.plan is not None, timeout=5000)
        words = "A rough estimate until data is chosen."
        assert words in page.plan_card.notes.text()
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: words not in page.plan_card.notes.text(), timeout=5000)


class TestNotices:
    def test_a_notice_moves_nothing_that_may_be_clicked(self, qtbot: QtBot, page: NewRunPage) -> None:
        settle()
        watched = (page.model_picker, page.data_picker.sample, page.preset_bar, page.start_bar.start)
        places = [each.mapTo(page, each.rect().topLeft()) for each in watched]
        page.actions_.error_found.emit(TunesmithError("usage", "It broke.", hint="Repair it."))
        settle()
        (banner,) = [each for each in page.findChildren(Banner) if each.accessibleName() and "broke" in _words(each)]
        qtbot.waitUntil(lambda: not banner.visibleRegion().isEmpty())
        assert [each.mapTo(page, each.rect().topLeft()) for each in watched] == places
        banner.dismissed.emit()
        settle()
        assert [each.mapTo(page, each.rect().topLeft()) for each in watched] == places

    def test_an_error_goes_with_the_run_that_it_is_about(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        page.actions_.error_found.emit(TunesmithError("usage", "It broke."))
        page.form.set_name("another")
        page.facts.refresh()
        settle()
        assert "It broke." in shown_words(page)
        page.actions_.choose_way("dpo")
        assert "It broke." not in shown_words(page)
        page.actions_.error_found.emit(TunesmithError("usage", "It broke."))
        page.on_shown(RunSpec())
        assert "It broke." not in shown_words(page)

    def test_a_long_one_leaves_the_form_in_sight(self, page: NewRunPage) -> None:
        error = TunesmithError("usage", "It broke.\n" * 200)
        page.actions_.error_found.emit(error)
        settle()
        assert page._form_scroll.height() > page.height() / 2


def _words(banner: Banner) -> str:
    return "\n".join(label.text() for label in banner.findChildren(SafeLabel))


class TestCutRows:
    def test_rows_that_may_be_cut_are_looked_at_and_told_in_the_plan(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, previewed: Any
    ) -> None:
        note = "Rows cut at the context length of 8 tokens: 3 of 3."
        previewed.answer = ANSWER | {"notes": [note], "longest_tokens": 30}
        fill_in(qtbot, page, model, data_file)
        assert previewed.specs == [], "no row can exceed the context length"
        page.form.set_value("data.context_length", 8)
        qtbot.waitUntil(lambda: note in page.plan_card.notes.text(), timeout=5000)
        assert [spec.data.context_length for spec in previewed.specs] == [8]
        assert page.plan_card.chip.text == "Fits"
        told = page.plan_card.notes.text().split("\n\n")
        assert told[-1].startswith("Held-out rows:"), "above the button that does something about it"

    def test_until_then_the_plan_says_that_it_may_change(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, previewed: Any
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        assert page.plan_card.measuring.isHidden()
        page.form.set_value("data.context_length", 8)
        qtbot.waitUntil(lambda: len(previewed.specs) == 1 and page.plan_card.measuring.isVisible(), timeout=5000)
        page.facts._lengths_look._task.failed.emit(None)
        qtbot.waitUntil(page.plan_card.measuring.isHidden, timeout=5000)

    def test_an_answer_about_rows_that_were_chosen_before_never_comes(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, previewed: Any
    ) -> None:
        fill_in(qtbot, page, model, data_file)
        page.form.set_value("data.context_length", 8)
        qtbot.waitUntil(lambda: len(previewed.specs) == 1, timeout=5000)
        other = data_file.with_name("other.jsonl")
        other.write_text(data_file.read_text())
        late = page.facts._lengths_look._task
        page.form.set_value("data.sources[0].path", str(other))
        late.succeeded.emit(ANSWER | {"notes": ["Rows cut: 3 of 3."], "longest_tokens": 30})
        assert page.facts.longest_tokens is None
        qtbot.waitUntil(lambda: len(previewed.specs) == 2, timeout=5000)
        assert previewed.specs[1].data.sources[0].path == str(other)
        assert "Rows cut" not in page.plan_card.notes.text()

    def test_a_plan_that_would_learn_nothing_does_not_say_that_it_fits(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, previewed: Any
    ) -> None:
        problem = UserError("no-trained-tokens", "No row has a token to learn.")
        previewed.answer = ANSWER | {"nothing_left": problem.to_dict()}
        fill_in(qtbot, page, model, data_file)
        page.form.set_value("data.context_length", 8)
        qtbot.waitUntil(lambda: page.plan_card.chip.text == "Nothing to learn", timeout=5000)
        assert page.model_picker.chip.isHidden(), "it is no fault of the model"
        assert (page.start_bar.start.text(), page.start_bar.start.isEnabled()) == ("Nothing to learn: see plan", False)
        page.form.set_value("data.context_length", 2048)
        qtbot.waitUntil(lambda: page.plan_card.chip.text == "Fits", timeout=5000)
        assert page.start_bar.start.isEnabled()

    def test_rows_without_positions_do_not_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, previewed: Any
    ) -> None:
        previewed.answer = ANSWER | {"too_long": UserError("spec-invalid", "The model supports only 8.").to_dict()}
        fill_in(qtbot, page, model, data_file)
        page.form.set_value("data.context_length", 16)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.TOO_LONG, timeout=5000)
        assert (page.start_bar.start.text(), page.start_bar.start.isEnabled()) == ("Rows too long: see plan", False)
        page.form.set_value("data.context_length", 2048)
        qtbot.waitUntil(page.start_bar.start.isEnabled, timeout=5000)

    def test_a_model_that_lacks_weights_does_not_fit(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, checked: Any
    ) -> None:
        checked.answer = UserError("model-files-missing-or-corrupt", "9 weights are missing, such as a.weight.")
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.MODEL_BROKEN, timeout=5000)
        assert page.facts.model.error is checked.answer
        qtbot.waitUntil(lambda: page.facts.plan is None, timeout=5000)
        page.form.set_value("data.context_length", 16)
        settle()
        assert page.form.missing() is Missing.MODEL_BROKEN, "it is no matter of the rows"
        assert len(checked.specs) == 1, "the answer is known"
        # Repaired, it is looked at again.
        checked.answer = {}
        page.on_shown()
        qtbot.waitUntil(lambda: len(checked.specs) == 2, timeout=5000)
        qtbot.waitUntil(page.start_bar.start.isEnabled, timeout=5000)

    def test_a_model_is_looked_at_once_there_is_data(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, checked: Any
    ) -> None:
        """A spec without data is refused by any operation, and the model would be blamed for it."""
        page.form.set_value("model.path", str(model))
        qtbot.waitUntil(lambda: page.facts.plan is not None, timeout=5000)
        settle()
        assert checked.specs == []
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: len(checked.specs) == 1, timeout=5000)
        assert checked.specs[0].data.sources[0].path == str(data_file)

    @pytest.mark.parametrize(
        "error", [TunesmithError("disk-full", "There is no room."), UserError("spec-invalid", "A rank is odd.")]
    )
    def test_what_keeps_a_model_from_being_looked_at_is_no_fault_of_it(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, checked: Any, error: TunesmithError
    ) -> None:
        checked.answer = error
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: len(checked.specs) == 1, timeout=5000)
        settle()
        assert page.start_bar.start.isEnabled()

    def test_a_model_that_does_not_know_a_token_of_the_rows_does_not_start(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, previewed: Any
    ) -> None:
        problem = UserError("model-files-missing-or-corrupt", "The model knows only 16 tokens.")
        previewed.answer = ANSWER | {"unknown_token": problem.to_dict()}
        fill_in(qtbot, page, model, data_file)
        page.form.set_value("data.context_length", 16)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.MODEL_BROKEN, timeout=5000)
        assert page.facts.model.error.message == problem.message
        page.form.set_value("data.context_length", 2048)
        qtbot.waitUntil(page.start_bar.start.isEnabled, timeout=5000)

    def test_rows_within_the_context_length_but_not_the_model_are_looked_at(
        self, qtbot: QtBot, page: NewRunPage, model: Path, data_file: Path, previewed: Any
    ) -> None:
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4}))
        previewed.answer = ANSWER | {"notes": ["The model is made for 4."]}
        fill_in(qtbot, page, model, data_file)
        qtbot.waitUntil(lambda: "The model is made for 4." in page.plan_card.notes.text(), timeout=5000)
        assert page.start_bar.start.isEnabled(), "it trains even so"


class TestFirstModel:
    def test_the_only_model_is_chosen_on_a_fresh_start(
        self, qtbot: QtBot, model: Path, context: Context, fake_engine: Any
    ) -> None:
        del fake_engine
        spec = RunSpec(name="earlier")
        spec.model.path, spec.data.sources[0].path = str(model), "/data/rows.jsonl"
        create_run(spec)
        page = make_page(qtbot, context)
        qtbot.waitUntil(lambda: page.form.value("model.path") == str(model), timeout=5000)
        page.form.set_value("model.path", "")
        page.on_shown()
        settle()
        assert page.form.value("model.path") == "", "only at the start"
        close(page)

    def test_models_of_earlier_runs_are_offered_wherever_they_are(
        self, qtbot: QtBot, model: Path, model_folder: Path, context: Context, fake_engine: Any
    ) -> None:
        del fake_engine
        (model_folder / "config.json").write_text((model / "config.json").read_text())
        spec = RunSpec(name="earlier")
        spec.model.path, spec.data.sources[0].path = str(model_folder), "/data/rows.jsonl"
        create_run(spec)
        page = make_page(qtbot, context)
        qtbot.waitUntil(lambda: page.model_picker.combo.findData(str(model_folder)) >= 0, timeout=5000)
        assert page.form.value("model.path") == "", "there is something to choose"
        close(page)
