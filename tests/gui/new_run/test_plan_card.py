"""The plan card: a run that spends spare memory says with how little it gets along."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QScrollBar
from pytestqt.qtbot import QtBot

from tests.core.test_planner import CARD, fused, gpu, make
from tunesmith_core.planner import plan
from tunesmith_core.spec import RunSpec
from tunesmith_gui import tr
from tunesmith_gui.new_run.facts import PlanFacts
from tunesmith_gui.new_run.page import SIDE_WIDTH_PX
from tunesmith_gui.new_run.plan_card import PlanCard
from tunesmith_gui.tr import size
from tunesmith_gui.widgets.safe_label import SafeLabel


def _words(
    qtbot: QtBot, spec: RunSpec, measured_bytes: int | None = None, model_type: str = CARD.model_type
) -> list[str]:
    card = PlanCard()
    qtbot.addWidget(card)
    card.show_plan(PlanFacts(plan(spec, gpu(80), card=replace(CARD, model_type=model_type)), gpu(80), measured_bytes))
    return [label.text() for label in card._cells if hasattr(label, "text")]


def test_least_memory_is_shown_where_a_run_takes_more(qtbot: QtBot) -> None:
    words = _words(qtbot, fused())
    assert words[words.index("Minimum memory") + 1] == size(plan(fused(), gpu(80), card=CARD).least_bytes)
    assert "Minimum memory" not in _words(qtbot, make())
    assert "Minimum memory" not in _words(qtbot, fused(), measured_bytes=1 << 30)


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_a_plan_with_fixes_fits_into_its_column_beside_a_scroll_bar(qtbot: QtBot, language: str) -> None:
    tr.install_language(language)
    try:
        card = PlanCard()
        qtbot.addWidget(card)
        estimate = plan(make({"schedule.micro_batch_size": 8, "adapter.dropout": 0.1}), gpu(12), card=CARD)
        assert len(estimate.fixes) > 3
        card.show_plan(PlanFacts(estimate, gpu(12)))
        scroll_bar_px = QScrollBar().sizeHint().width()
        assert card.minimumSizeHint().width() <= SIDE_WIDTH_PX - scroll_bar_px
    finally:
        tr.install_language("en")


def test_rows_of_unknown_length_are_no_reason_to_refuse(qtbot: QtBot) -> None:
    room = gpu(0.9 * plan(make(), gpu(1), card=CARD).total_bytes / 2**30)
    facts = PlanFacts(plan(make(), room, card=CARD), room)
    card = PlanCard()
    qtbot.addWidget(card)
    card.show_plan(facts)
    assert card.chip.text == "Check first"
    assert "Check the plan to measure yours" in card.notes.text()
    assert facts.verdict == "unmeasured"
    tight = PlanFacts(replace(facts.plan, verdict="tight"), room)
    assert tight.verdict == "unmeasured"
    known = plan(make(), room, card=CARD, longest_tokens=2048)
    assert PlanFacts(known, room).verdict == "exceeds"
    assert PlanFacts(facts.plan, room, measured_bytes=1 << 30).verdict == "fits"
    assert PlanFacts(facts.plan, room, measured_bytes=1 << 50).verdict == "exceeds"


def test_parts_have_plain_names_and_the_term_in_the_tooltip(qtbot: QtBot) -> None:
    card = PlanCard()
    qtbot.addWidget(card)
    card.show_plan(PlanFacts(plan(make(), gpu(80), card=CARD), gpu(80)))
    notes = {cell.text(): cell.toolTip() for cell in card._cells if isinstance(cell, SafeLabel)}
    assert notes["Base model"] == ""
    assert notes["Intermediate results"].startswith("Activations:")
    assert notes["Predictions"].startswith("Logits:")


def test_an_adapter_that_is_not_counted_exactly_has_about_its_size(qtbot: QtBot) -> None:
    words = _words(qtbot, make(), model_type="rwkv")
    assert words[words.index("Adapter and optimizer") + 1].startswith("about ")
    assert words[words.index("Written to disk") + 1].startswith("about ")
    assert not any(word.startswith("about ") for word in _words(qtbot, make()))
