"""The dialog that says what the columns hold, and its guesses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QWidget
from pytestqt.qtbot import QtBot

from tests.gui.layout_checks import clipped, tab_stops, unnamed
from tests.gui.new_run.driving import fill_in, shown_words
from tunesmith_core.datafmt.formats import RAW
from tunesmith_gui.new_run.form import Missing
from tunesmith_gui.new_run.page import NewRunPage
from tunesmith_gui.theme import Scheme, theme
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.column_mapping import ColumnMappingDialog
from tunesmith_gui.widgets.column_question import ColumnQuestion

GERMAN = [{"thema": "Konto", "frage": "Wer?", "antwort": "Ich bin es."}]
NAMELESS = [{"id": 1, "a": "Why?", "b": "Because it is so.", "c": None}]
CHATS = [{"id": 7, "turns": [{"from": "human", "value": "Hi\nthere"}, {"from": "gpt", "value": "Hello"}]}]

CHOICES = [{"Nr": 7, "Fragetext": "Wer ist es?", "Antwort A": "Ich", "Antwort B": "Du", "Lösung": "B"}]


def choose(combo: QComboBox, value: str) -> None:
    combo.setCurrentIndex(combo.findData(value))
    combo.activated.emit(combo.currentIndex())


def make(qtbot: QtBot, head: list[dict[str, Any]], found: str = "auto", **mapping: str) -> ColumnMappingDialog:
    dialog = ColumnMappingDialog(head, found, "auto", mapping)
    qtbot.addWidget(dialog)
    dialog.show()
    return dialog


def chosen(dialog: ColumnMappingDialog) -> dict[str, object]:
    """The columns that are chosen; roles without one are left out."""
    return {role: combo.currentData() for role, combo in dialog.role_combos.items() if combo.currentData()}



class TestDialog:
    def test_it_opens_with_guesses_and_shows_what_is_in_the_columns(self, qtbot: QtBot) -> None:
        dialog = make(qtbot, GERMAN)
        assert dialog.format.currentText() == "Prompt and response"
        assert chosen(dialog) == {"prompt": "frage", "completion": "antwort"}
        assert "For example: Wer?" in dialog.role_combos["prompt"].accessibleDescription()
        assert dialog.note.text() == "Not used: thema"
        assert dialog.apply.isEnabled()
        assert unnamed(dialog) == []
        with qtbot.waitSignal(dialog.mapped) as answer:
            qtbot.mouseClick(dialog.apply, Qt.MouseButton.LeftButton)
        assert answer.args == ["prompt-completion", {"prompt": "frage", "completion": "antwort"}]

    def test_another_format_forgets_no_column(self, qtbot: QtBot) -> None:
        dialog = make(qtbot, GERMAN)
        choose(dialog.role_combos["prompt"], "thema")
        choose(dialog.format, "alpaca")
        assert chosen(dialog) == {"instruction": "thema", "output": "antwort"}
        choose(dialog.format, "text")
        choose(dialog.format, "prompt-completion")
        assert chosen(dialog) == {"prompt": "thema", "completion": "antwort"}

    def test_the_mapping_of_the_form_comes_before_a_guess(self, qtbot: QtBot) -> None:
        assert chosen(make(qtbot, GERMAN, prompt="thema")) == {"prompt": "thema", "completion": "antwort"}

    def test_what_is_missing_or_chosen_twice_is_said(self, qtbot: QtBot) -> None:
        dialog = make(qtbot, GERMAN)
        choose(dialog.role_combos["prompt"], "")
        assert (dialog.note.text(), dialog.apply.isEnabled()) == ("Choose a column for Prompt.", False)
        choose(dialog.role_combos["prompt"], "antwort")
        assert (dialog.note.text(), dialog.apply.isEnabled()) == ("antwort is chosen twice.", False)
        choose(dialog.role_combos["prompt"], "thema")
        assert dialog.apply.isEnabled()

    @pytest.mark.parametrize("changes", [0, 2])
    def test_tab_goes_from_top_to_bottom(self, qtbot: QtBot, changes: int) -> None:
        dialog = make(qtbot, GERMAN)
        for format_name in ("alpaca", "prompt-completion")[:changes]:
            choose(dialog.format, format_name)
        qtbot.waitUntil(lambda: all(combo.isVisible() for combo in dialog.role_combos.values()))
        dialog.format.setFocus()
        stops: list[QWidget] = [dialog.format, *tab_stops(dialog)]
        wanted = [dialog.format, *dialog.role_combos.values(), dialog.cancel, dialog.apply]
        assert [each for each in stops if each in wanted][: len(wanted)] == wanted

    def test_a_question_with_options_has_room_on_a_low_screen(self, qtbot: QtBot) -> None:
        dialog = make(qtbot, CHOICES)
        assert dialog.format.currentText() == "Multiple choice"
        wanted = {"question": "Fragetext", "option_a": "Antwort A", "option_b": "Antwort B", "answer": "Lösung"}
        assert chosen(dialog) == wanted
        assert dialog.note.text() == "Not used: Nr"
        assert unnamed(dialog) == []
        assert dialog.height() < 700
        with qtbot.waitSignal(dialog.mapped) as answer:
            qtbot.mouseClick(dialog.apply, Qt.MouseButton.LeftButton)
        assert answer.args == ["multiple-choice", wanted]

    def test_another_format_proposes_no_option(self, qtbot: QtBot) -> None:
        dialog = make(qtbot, CHOICES)
        choose(dialog.format, "prompt-completion")
        assert chosen(dialog) == {"prompt": "Fragetext", "completion": "Lösung"}
        assert dialog.note.text() == "Not used: Nr, Antwort A, Antwort B"

    def test_nothing_is_cut_off_at_double_text_size(self, qtbot: QtBot) -> None:
        theme().set_appearance(Scheme.LIGHT, 2.0)
        try:
            dialog = make(qtbot, GERMAN)
            qtbot.waitUntil(lambda: clipped(dialog) == [])
        finally:
            theme().set_appearance(Scheme.LIGHT, 1.0)


class TestQuestion:
    """Where it is not certain which column is which, the card asks in place, and shows no error."""

    @pytest.fixture
    def question(self, qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path) -> ColumnQuestion:
        path = tmp_path / "odd.csv"
        path.write_text("Nr,thema,notiz\n1,Wer?,Ich bin es.\n2,Wo?,Genau hier.\n")
        fill_in(qtbot, page, model, path)
        (found,) = page.data_picker.findChildren(ColumnQuestion)
        assert page.data_picker.findChildren(Banner) == []
        assert page.start_bar.start.text() == "Choose the columns"
        assert unnamed(found) == []
        assert clipped(page.data_picker) == []
        return found

    def test_one_click_takes_the_guess(self, qtbot: QtBot, page: NewRunPage, question: ColumnQuestion) -> None:
        assert {role: combo.currentData() for role, combo in question.combos.items()} == {
            "prompt": "thema",
            "completion": "notiz",
        }
        described = question.combos["completion"].accessibleDescription()
        assert described == "For example: Ich bin es.; Genau hier."
        qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        source = page.form.spec.data.sources[0]
        assert (source.format, source.columns) == ("prompt-completion", {"prompt": "thema", "completion": "notiz"})
        assert not any(each.isVisible() for each in page.data_picker.findChildren(ColumnQuestion))

    def test_a_column_that_the_other_role_has_is_swapped(
        self, qtbot: QtBot, page: NewRunPage, question: ColumnQuestion
    ) -> None:
        choose(question.combos["prompt"], "notiz")
        assert question.combos["completion"].currentData() == "thema"
        assert question.combos["completion"].accessibleDescription() == "For example: Wer?; Wo?"
        choose(question.combos["completion"], "")
        assert not question.use.isEnabled()
        choose(question.combos["completion"], "thema")
        qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.form.spec.data.sources[0].columns == {"prompt": "notiz", "completion": "thema"}

    def test_tab_goes_from_the_file_through_the_question(self, page: NewRunPage, question: ColumnQuestion) -> None:
        page.data_picker.browse.setFocus()
        wanted = [*question.combos.values(), question.use, question.others]
        assert tab_stops(page)[: len(wanted)] == wanted

    def test_the_answer_holds_for_other_files_with_the_same_columns(
        self, qtbot: QtBot, page: NewRunPage, question: ColumnQuestion, tmp_path: Path
    ) -> None:
        choose(question.combos["prompt"], "notiz")
        qtbot.mouseClick(question.use, Qt.MouseButton.LeftButton)
        other = tmp_path / "other.csv"
        other.write_text("notiz,Nr,thema\nWann?,3,Gestern.\n")
        draft = json.loads(json.dumps(page.actions_.draft()))
        page.actions_.take_draft(draft)
        page.actions_.choose_data(str(other))
        assert page.form.spec.data.sources[0].columns == {}
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.form.spec.data.sources[0].columns == {"prompt": "notiz", "completion": "thema"}

    def test_rows_of_another_kind_lead_to_the_whole_choice(
        self, qtbot: QtBot, page: NewRunPage, question: ColumnQuestion
    ) -> None:
        qtbot.mouseClick(question.others, Qt.MouseButton.LeftButton)
        (dialog,) = page.findChildren(ColumnMappingDialog)
        choose(dialog.format, "text")
        qtbot.mouseClick(dialog.apply, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: page.form.missing() is Missing.NOTHING, timeout=5000)
        assert page.form.spec.data.sources[0].format == "text"


class TestRawText:
    """A prompt and its response are a chat where the model has a chat template; plain text is chosen, and warned of."""

    @pytest.fixture
    def pairs(self, tmp_path: Path) -> Path:
        path = tmp_path / "pairs.csv"
        path.write_text("question,answer\nWho?,Me.\n")
        return path

    def test_pairs_are_trained_as_a_chat(self, qtbot: QtBot, page: NewRunPage, model: Path, pairs: Path) -> None:
        fill_in(qtbot, page, model, pairs)
        assert "Prompt and response  ·  trained as a chat" in page.data_picker.facts.text()
        assert shown_words(page.data_picker) == ""

    def test_plain_text_is_a_choice_with_a_warning(
        self, qtbot: QtBot, page: NewRunPage, model: Path, pairs: Path
    ) -> None:
        fill_in(qtbot, page, model, pairs)
        page._open_mapping()
        (dialog,) = page.findChildren(ColumnMappingDialog)
        choose(dialog.format, RAW)
        assert chosen(dialog) == {"prompt": "question", "completion": "answer"}
        qtbot.mouseClick(dialog.apply, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: "This model has a chat template" in shown_words(page.data_picker), timeout=5000)
        assert "trained as a chat" not in page.data_picker.facts.text()
        assert page.form.missing() is Missing.NOTHING
        (banner,) = [each for each in page.data_picker.findChildren(Banner) if each.isVisible()]
        qtbot.mouseClick(banner.buttons[0], Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: "trained as a chat" in page.data_picker.facts.text(), timeout=5000)
        assert shown_words(page.data_picker) == ""

    def test_a_base_model_has_no_choice(self, qtbot: QtBot, page: NewRunPage, model: Path, pairs: Path) -> None:
        (model / "tokenizer_config.json").write_text("{}")
        fill_in(qtbot, page, model, pairs)
        assert "trained as a chat" not in page.data_picker.facts.text()
