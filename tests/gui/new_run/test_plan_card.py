"""The plan card: a run that spends spare memory says with how little it gets along."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QScrollBar
from pytestqt.qtbot import QtBot

from tests.core.test_planner import CARD, fused, gpu, make
from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped
from tunesmith_core import cli_specs
from tunesmith_core.measured import Time
from tunesmith_core.messages import Message
from tunesmith_core.planner import Saving, plan
from tunesmith_core.spec import RunSpec
from tunesmith_gui import tr
from tunesmith_gui.new_run.looks import PlanFacts
from tunesmith_gui.new_run.page import SIDE_WIDTH_PX, NewRunPage
from tunesmith_gui.new_run.plan_card import COLOURS, PlanCard
from tunesmith_gui.shell.main_window import MainWindow
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


def test_notices_stand_apart(qtbot: QtBot) -> None:
    card = PlanCard()
    qtbot.addWidget(card)
    facts = PlanFacts(plan(make(), gpu(80), card=CARD), gpu(80))
    card.show_plan(replace(facts, notes=("One.", "Two.")))
    assert card.notes.text() == "One.\n\nTwo."


def _tight() -> PlanFacts:
    """A plan with ways to make it fit, one of them with about as many words as they get."""
    estimate = plan(make({"schedule.micro_batch_size": 8, "adapter.dropout": 0.1}), gpu(12), card=CARD)
    assert len(estimate.fixes) > 3
    long = Saving(Message("1,536 tokens instead of 2,048"), (("a", 1),), 15 << 28)
    return PlanFacts(replace(estimate, fixes=(*estimate.fixes, long)), gpu(12))


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_a_plan_with_fixes_fits_into_its_column_beside_a_scroll_bar(qtbot: QtBot, language: str) -> None:
    tr.install_language(language)
    try:
        card = PlanCard()
        qtbot.addWidget(card)
        card.show_plan(_tight())
        scroll_bar_px = QScrollBar().sizeHint().width()
        assert card.minimumSizeHint().width() <= SIDE_WIDTH_PX - scroll_bar_px
    finally:
        tr.install_language("en")


def test_a_shorter_context_says_how_many_examples_are_longer(qtbot: QtBot) -> None:
    facts = _tight()
    limit = next(dict(fix.changes)["data.context_length"] for fix in facts.plan.fixes if "tokens" in fix.label)
    bars = tuple(
        {"from_tokens": start, "to_tokens": start + 100, "num_rows": 3} for start in (0, limit - 50, limit + 50)
    )
    card = PlanCard()
    qtbot.addWidget(card)

    def said(**measured: object) -> list[str]:
        card.show_plan(replace(facts, **measured))  # type: ignore[arg-type]
        return [label.text() for label in card._cells if isinstance(label, SafeLabel) and "longer" in label.text()]

    assert said() == []
    assert said(longest_tokens=limit, lengths=bars) == []
    assert said(longest_tokens=limit + 140, lengths=bars) == ["Examples longer than that: at least 3"]
    assert said(longest_tokens=limit + 1) == ["Examples longer than that: at least 1"]


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_a_long_plan_is_not_cut_off_in_a_small_window(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    tr.install_language(language)
    try:
        page = window.pages.currentWidget()
        assert isinstance(page, NewRunPage)
        window.resize(1024, 640)
        page.plan_card.show_plan(_tight())
        for name in ("show_plan", "show_nothing"):
            # The page's own facts may come at any moment.
            monkeypatch.setattr(page.plan_card, name, lambda *_: None)
        page.plan_card.notes.setText("This run trains plain text for a model with a chat template. " * 5)
        page.plan_card.notes.show()
        settle()
        assert page._plan_scroll.verticalScrollBar().maximum() > 0
        assert clipped(page) == []
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


@pytest.mark.parametrize(("other_s", "name"), [(None, "Time of the steps"), (8.0, "Time")])
def test_time_without_evaluations_is_named_so(qtbot: QtBot, other_s: float | None, name: str) -> None:
    card = PlanCard()
    qtbot.addWidget(card)
    estimate = plan(make(), gpu(80), card=CARD, num_rows=100, step_s=1.0)
    card.show_plan(PlanFacts(estimate, gpu(80), time=Time(1.0, other_s)))
    words = [cell.text() for cell in card._cells if hasattr(cell, "text")]
    assert name in words


@pytest.mark.parametrize(("is_exact", "steps"), [(True, "300"), (False, "about 300")])
def test_steps_by_an_estimate_of_the_rows_are_about_so_many(qtbot: QtBot, is_exact: bool, steps: str) -> None:
    card = PlanCard()
    qtbot.addWidget(card)
    estimate = replace(plan(make(), gpu(80), card=CARD), total_steps=300)
    card.show_plan(PlanFacts(estimate, gpu(80), are_steps_exact=is_exact))
    words = [cell.text() for cell in card._cells if hasattr(cell, "text")]
    assert words[words.index("Steps") + 1] == steps


def test_parts_keep_their_colours_in_every_way() -> None:
    assert set(COLOURS) == set(cli_specs.PARTS)
    shown = ["weights", "adapter", "activations", "logits", "runtime", "teacher"]
    assert [COLOURS[part] for part in shown] == list(range(6))
    assert COLOURS["training"] == COLOURS["adapter"]


@pytest.mark.parametrize("is_measuring", [True, False])
def test_a_plan_says_that_lengths_are_still_measured(qtbot: QtBot, is_measuring: bool) -> None:
    card = PlanCard()
    qtbot.addWidget(card)
    card.show_plan(PlanFacts(plan(make(), gpu(80), card=CARD), gpu(80), is_measuring=is_measuring))
    assert card.measuring.isHidden() is not is_measuring
