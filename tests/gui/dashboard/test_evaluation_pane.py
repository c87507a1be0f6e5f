"""The tab Evaluation: the sentence, what to do next, and answers before and after beside what is expected."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtWidgets import QPushButton

from tests.gui.run_folders import make_run, texts
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard.model import pack
from tunesmith_gui.dashboard.page import DashboardPage

ANSWER = {"prompt": "2 + 2?", "expected": "Four.", "answer": "Nothing"}


def tell(page: DashboardPage, *events: tuple[str, dict[str, Any]]) -> None:
    """What the engine writes next."""
    assert page.run is not None
    last = read_journal(page.run.journal_path)[-1]
    page._receive(pack([Event(last.seq + n, last.t + n, kind, data) for n, (kind, data) in enumerate(events, 1)]))
    page._repaint()


@pytest.fixture
def page(context: Any, open_dashboard: Any) -> DashboardPage:
    page: DashboardPage = open_dashboard(make_run("done", "happy"))
    page.panes.show_pane("evaluation")
    page._repaint()
    return page


def test_answers_stand_side_by_side_and_follow_the_run(page: DashboardPage) -> None:
    assert "This run has no answers to compare." in texts(page.evaluation)
    tell(page, ("answers", {"step": 0, "answers": [ANSWER]}))
    shown = texts(page.evaluation)
    assert all(words in shown for words in ("2 + 2?", "Before", "Nothing", "After training", "Not asked yet", "Four."))
    tell(page, ("answers", {"step": 30, "answers": [ANSWER | {"answer": ""}]}))
    shown = texts(page.evaluation)
    assert "After step 30" in shown
    assert "(empty)" in shown
    assert "Not asked yet" not in shown
    content = page.evaluation._content
    page._repaint()
    assert page.evaluation._content is content, "what is the same is not built again"
    tell(page, ("hello", {"resumed_from_step": 10}))
    assert "Not asked yet" in texts(page.evaluation)
    assert "Improved" not in texts(page.evaluation), "nothing is judged while it trains"


def test_without_held_out_rows_it_says_so(page: DashboardPage) -> None:
    tell(page, ("setup", {"num_eval_rows": 0}))
    page.evaluation._shown = None
    page._repaint()
    assert "This run holds out no rows" in texts(page.evaluation)


def test_the_verdict_leads_to_another_run(page: DashboardPage, qtbot: Any) -> None:
    gain = {"mean": 0.41, "low": 0.33, "high": 0.49, "rows": 40}
    tell(
        page,
        *(("eval", {"step": step, "loss": loss}) for step, loss in ((0, 2.0), (10, 1.0), (30, 1.6))),
        ("comparison", {"step": 30, "improvement": gain, "dependence": None}),
    )
    shown = texts(page.evaluation)
    assert "Overfitting since step 10" in shown
    assert "Over 40 held-out rows the loss fell by 0.41 (95% interval: 0.33 to 0.49)." in shown
    buttons = {each.text(): each for each in page.evaluation.findChildren(QPushButton)}
    with qtbot.waitSignal(page.navigate, timeout=2000) as asked:
        buttons["Train until step 10"].click()
    name, spec = asked.args
    assert name == "train"
    assert isinstance(spec, RunSpec)
    assert (spec.schedule.max_steps, spec.name) == (10, "")
    with qtbot.waitSignal(page.navigate, timeout=2000) as asked:
        page.ask("next:1")
    assert asked.args[1].schedule.max_steps == page._spec.schedule.max_steps
