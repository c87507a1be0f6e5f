"""The tab Evaluation: the sentence, what to do next, and answers before and after beside what is expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot
from shiboken6 import delete

from tests.gui.conftest import IdleTask
from tests.gui.run_folders import make_run, texts
from tunesmith_core.errors import TunesmithError
from tunesmith_core.evaluations import ANSWERING, save
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.dashboard import actions as actions_module
from tunesmith_gui.dashboard.evaluation_card import EvaluationCard
from tunesmith_gui.dashboard.model import pack
from tunesmith_gui.dashboard.page import DashboardPage
from tunesmith_gui.models.run_spec import ChosenData
from tunesmith_gui.services import operation
from tunesmith_gui.services.operation import operations
from tunesmith_gui.widgets.status_chip import StatusChip

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


def test_answers_are_marked_as_right_wrong_and_cut(page: DashboardPage) -> None:
    told = ANSWER | {"right": False}
    tell(page, ("answers", {"step": 0, "answers": [told], "cuts": [21]}))
    chips = [chip.text for chip in page.evaluation._content.findChildren(StatusChip)]
    assert chips == ["Wrong", "cut at 21 tokens"]
    tell(page, ("answers", {"step": 30, "answers": [told | {"answer": "Four", "right": True}], "cuts": [0]}))
    chips = [chip.text for chip in page.evaluation._content.findChildren(StatusChip)]
    assert chips == ["Wrong", "cut at 21 tokens", "Right"]


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
    page._drop_banner()  # a finished run writes nothing more, so it is not looked at again
    page._repaint()
    shown = texts(page.evaluation)
    assert texts(page).count("Overfitting since step 10") == 1, "the banner says it"
    assert "Over 40 held-out rows the loss fell by 0.41 (95% interval: 0.33 to 0.49)." in shown
    buttons = {each.text(): each for each in page.findChildren(QPushButton)}
    assert [each.text() for each in page.findChildren(QPushButton)].count("Train until step 10") == 1
    with qtbot.waitSignal(page.navigate, timeout=2000) as asked:
        buttons["Train until step 10"].click()
    name, proposal = asked.args
    assert (name, proposal.settings) == ("train", ("schedule.max_steps",))
    assert (proposal.spec.schedule.max_steps, proposal.spec.name) == (10, "")


def test_a_look_at_the_rows_opens_the_data_and_no_form(page: DashboardPage, qtbot: Any) -> None:
    gain = {"mean": 0.41, "low": 0.33, "high": 0.49, "rows": 40}
    alike = {"mean": 0.0, "low": -0.01, "high": 0.01, "rows": 40}
    tell(
        page,
        *(("eval", {"step": step, "loss": loss}) for step, loss in ((0, 2.0), (30, 1.0))),
        ("comparison", {"step": 30, "improvement": gain, "dependence": alike}),
    )
    page._drop_banner()
    page._repaint()
    assert "No improvement that depends on the question" in texts(page)
    buttons = {each.text(): each for each in page.findChildren(QPushButton)}
    assert page.spec is not None
    source = page.spec.data.sources[0]
    source.columns, said = {"prompt": "a", "completion": "b"}, []
    page.notify.connect(lambda *words: said.append(words))
    with qtbot.waitSignal(page.navigate, timeout=2000) as asked:
        buttons["Look at the rows"].click()
    assert asked.args == ["data", ChosenData(source, page.spec.model.path, "rows")]
    assert said == []
    page.spec.data.sources.append(SourceSpec(path="/data/more.jsonl"))
    source.format = "labeled"
    with qtbot.waitSignal(page.navigate, timeout=2000) as asked:
        buttons["Look at the rows"].click()
    shown = asked.args[1].source
    assert (shown.path, shown.format, shown.columns) == (source.path, "auto", {}), "labels are no rows there"
    assert said == [("accent", "The run has 2 data sources. This is the first.")]


FOUND = {
    "step": 30,
    "losses": {"before": 2.0, "after": 1.0, "p": 0.004, "gain": {"low": 0.5, "mean": 1.0, "high": 1.5, "rows": 40}},
    "metrics": [],
    "general": None,
}


class Task(IdleTask):
    """An operation that a test tells what happens."""

    made: ClassVar[list[Task]] = []

    def __init__(self, kind: Any, spec: EvaluateSpec, parent: QObject) -> None:
        super().__init__(kind, spec, parent)
        Task.made.append(self)

    def start(self) -> None:
        operations().add(self)

    def answer(self, found: dict[str, Any]) -> None:
        operations().remove(self)
        self.succeeded.emit(found)
        self.ended.emit(Outcome(OperationState.FINISHED, 0, found))


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The operations that were begun, which do nothing."""
    monkeypatch.setattr(operation, "OperationTask", Task)
    monkeypatch.setattr(operations(), "live", [])
    Task.made.clear()
    return Task.made


def test_the_keyboard_stays_on_the_button_that_takes_the_place_of_evaluate(
    page: DashboardPage, tasks: list[Task], qtbot: QtBot
) -> None:
    card = page.evaluation.measured
    with qtbot.waitActive(page):
        page.activateWindow()
    card.evaluate.setFocus()
    qtbot.keyClick(card.evaluate, Qt.Key.Key_Space)
    assert page.focusWidget() is card.cancel
    qtbot.keyClick(card.cancel, Qt.Key.Key_Space)
    assert page.focusWidget() is card.evaluate


def test_a_run_is_measured_with_a_button(page: DashboardPage, tasks: list[Task]) -> None:
    card = page.evaluation.measured
    assert page.run is not None
    card.evaluate.click()
    task = tasks[-1]
    assert (task.kind, task.spec.run, operations().live) == (EVALUATE, str(page.run.path), [task])
    assert card.evaluate.isHidden()
    task.happened.emit(Event(1, 0.0, "phase", {"name": ANSWERING[1], "done": 3, "total": 50}))
    assert "Answers after training: 3 of 50" in texts(card)
    task.happened.emit(Event(2, 0.0, "phase", {"name": "model"}))
    task.happened.emit(Event(2, 0.0, "log", {}))
    task.answer(FOUND)
    shown = texts(card)
    told = ("2.000", "1.000", "-1.00 (-1.50 … -0.50)", "0.004", "Measured at step 30")
    assert all(words in shown for words in told)
    assert "Better than before the run: loss." in shown
    nothing = FOUND["losses"] | {"gain": {"low": -0.5, "mean": 0.1, "high": 0.7, "rows": 40}}
    card.set_found(FOUND | {"losses": nothing})
    assert "Nothing changed by more than chance" in texts(card)
    assert card.cancel.isHidden()
    card.evaluate.click()
    tasks[-1].failed.emit(TunesmithError("usage", "The run holds out no rows."))
    assert "The run holds out no rows." in texts(card)
    card.evaluate.click()
    card.cancel.click()
    assert tasks[-1].cancelled
    assert "The evaluation was canceled." in texts(card)
    card.evaluate.click()
    tasks[-1].cancel()
    assert "The evaluation was canceled." in texts(card), "as it is in the list of what is going on"
    assert card.cancel.isHidden()


def test_what_is_measured_outlives_its_page(open_dashboard: Any, tasks: list[Task]) -> None:
    run, other = make_run("done", "happy"), make_run("other", "happy")
    first = EvaluationCard()
    first.set_run(run.path)
    first.evaluate.click()
    delete(first)
    (task,) = tasks
    assert not task.cancelled
    page = open_dashboard(other)
    card = page.evaluation.measured
    assert card.cancel.isHidden()
    page.on_shown(run.id)
    assert card.evaluate.isHidden()
    assert "Evaluating done" in texts(card)
    page.on_shown(other.id)
    assert card.cancel.isHidden()
    assert not task.cancelled, "another run is only looked at"
    page.on_shown(run.id)
    task.answer(FOUND)
    assert "Measured at step 30" in texts(card)
    assert card.cancel.isHidden()


def test_figures_are_kept_with_the_run(context: Any, open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("kept", "happy")
    save(run, FOUND)
    page = open_dashboard(run)
    qtbot.waitUntil(lambda: "Measured at step 30" in texts(page.evaluation.measured), timeout=5000)


@pytest.mark.parametrize(("button", "start"), [("PDF", b"%PDF"), ("HTML", b"<!doctype html>")])
def test_the_report_is_saved_where_the_person_says(
    page: DashboardPage, qtbot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, button: str, start: bytes
) -> None:
    suffix = f".{button.lower()}"
    chosen, proposed = iter([None, tmp_path / f"told{suffix}"]), []
    monkeypatch.setattr(
        actions_module, "ask_where_to_save", lambda _window, _title, name, _kind: proposed.append(name) or next(chosen)
    )
    assert page.run is not None
    tell(page, *(("eval", {"step": step, "loss": loss}) for step, loss in ((0, 2.0), (30, 1.0))))
    press = {each.text(): each for each in page.evaluation.findChildren(QPushButton)}[f"Save as {button}…"].click
    press()
    with qtbot.waitSignal(page.notify, timeout=30_000) as told:
        press()
    assert told.args == ["ok", "Saved"]
    assert proposed == [page.run.id + suffix] * 2
    assert (tmp_path / f"told{suffix}").read_bytes().startswith(start)
