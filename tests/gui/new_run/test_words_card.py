"""New words and a replay share on the Train page, where documents are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Signal
from pytestqt.qtbot import QtBot

from tests.gui.new_run.driving import type_into
from tests.gui.new_run.test_sources_card import WriteRows, open_files, rows  # noqa: F401 (a fixture)
from tunesmith_core.errors import UserError
from tunesmith_gui.new_run.form import BY_EXAMPLE, BY_READING
from tunesmith_gui.new_run.page import NewRunPage

FOUND = [{"word": f"glowmill{letter}", "pieces": 4, "count": 9} for letter in "abcdefghijkl"]


class Asked(QObject):
    """Stands in for OperationTask: the test says what it answers."""

    succeeded, failed = Signal(object), Signal(object)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    made: list[Asked] = []

    def make(*_arguments: object, parent: QObject) -> Asked:
        made.append(Asked(parent))
        return made[-1]

    monkeypatch.setattr("tunesmith_gui.new_run.words_card.OperationTask", make)
    return made


def test_words_are_suggested_and_taken(
    qtbot: QtBot, page: NewRunPage, model: Path, tmp_path: Path, tasks: list[Asked]
) -> None:
    card, text = page.words_card, tmp_path / "town.md"
    text.write_text("# Town\n\nThe glowmill hums.\n")
    open_files(qtbot, page, model, [text])
    page.actions_.choose_way(BY_EXAMPLE)
    assert card.isHidden()
    page.actions_.choose_way(BY_READING)
    assert not card.isHidden()
    assert card.state.isHidden(), "an empty line would be a gap"
    card.suggest.click()
    assert not card.state.isHidden()
    assert not card.suggest.isEnabled()
    tasks[-1].succeeded.emit({"words": FOUND})
    assert card.state.text().startswith("glowmilla (4 pieces, 9 times), ")
    assert card.add.text() == "Add the first 10 words"
    card.add.click()
    assert page.form.value("model.new_tokens") == [each["word"] for each in FOUND[:10]]
    assert page.form.value("adapter.embeddings") == "new"
    assert not page.form.problems()
    assert card.add.text() == "Add the first 2 words"
    card.suggest.click()
    tasks[-1].failed.emit(UserError("dataset-empty", "There is nothing to read."))
    assert card.state.text() == "There is nothing to read."
    card.suggest.click()
    tasks[-1].succeeded.emit({"words": []})
    assert "No word" in card.state.text()
    assert card.add.isHidden()


def test_a_replay_share_shows_where_documents_are_read(
    qtbot: QtBot, page: NewRunPage, model: Path, rows: WriteRows  # noqa: F811
) -> None:
    card = page.sources_card
    open_files(qtbot, page, model, [rows("a.jsonl", 90), rows("b.jsonl", 60)])
    assert card.rows[1].boxes["replay"].isHidden()
    page.actions_.choose_way(BY_READING)
    assert not card.rows[1].boxes["replay"].isHidden()
    assert not card.replay.isHidden()
    type_into(qtbot, card.rows[1].boxes["replay"], "10")
    assert page.form.spec.data.sources[1].replay == 10.0
    assert [row.share.text() for row in card.rows] == ["about 90  ·  90%", "about 10  ·  10%"]
    assert "data.sources[0].replay" not in page.settings_list.rows
