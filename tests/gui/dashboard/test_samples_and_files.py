"""The tabs Samples and Files: they follow the run, and a sample is asked for and answered in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PySide6.QtTest import QTest

from tests.gui.conftest import settle
from tests.gui.run_folders import make_run, texts
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.runs import Run
from tunesmith_gui.dashboard.model import pack
from tunesmith_gui.dashboard.page import DashboardPage
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.status_chip import StatusChip

Say = Callable[..., None]


@pytest.fixture
def live(context: Any) -> Iterator[Run]:
    """A run in training; its supervisor is this test."""
    del context  # its data root
    run = make_run("live", "crash")
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    run.heartbeat_path.touch()
    yield run
    lock.release()


@pytest.fixture
def page(live: Run, open_dashboard: Any) -> DashboardPage:
    return open_dashboard(live)


def tell(page: DashboardPage, *events: tuple[str, dict[str, Any]]) -> None:
    """What the engine writes next."""
    assert page.run is not None
    last = read_journal(page.run.journal_path)[-1]
    page._receive(pack([Event(last.seq + n, last.t + n, kind, data) for n, (kind, data) in enumerate(events, 1)]))
    page._repaint()


def ask(page: DashboardPage, prompt: str) -> None:
    page.ask("sample")
    page.samples.prompt.clear()
    QTest.keyClicks(page.samples.prompt, prompt)
    page.samples.send.click()
    page._repaint()


@pytest.fixture
def sent(context: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        context.runs, "send", lambda run, command, failed=None, **more: calls.append((command, more, failed))
    )
    return calls


def test_a_sample_without_a_word_says_so(page: DashboardPage) -> None:
    told = {"step": 15, "prompt": "Hi", "text": " "}
    tell(page, ("sample", told))
    assert page.charts is not None
    for shown in (page.samples, page.charts):
        empty = [each for each in shown.findChildren(SafeLabel) if each.text() == "(empty)"]
        assert [each.property("tone") for each in empty] == ["muted"]


WIDE = {
    "lost": "\ufffd" * 70,
    "rule": "=" * 90,
    "box": "─" * 80,
    "digits": "0" * 99,
    "W": "W" * 99,
    "ligature": "\ufdfd" * 99,
}


@pytest.mark.parametrize("text", WIDE.values(), ids=WIDE)
def test_no_text_makes_the_page_wider(page: DashboardPage, text: str) -> None:
    page.resize(1024, 640)
    assert page.charts is not None
    shown = (page, page.charts, page.charts.samples, page.samples, page.evaluation)

    def write(words: str, step: int) -> tuple[int, list[int]]:
        """Return how wide the right column of the charts is then, and how wide each part must be."""
        said = {"prompt": words, "expected": words}
        answers = {"step": step, "answers": [said | {"answer": words}]}
        tell(page, ("sample", said | {"step": step, "text": words}), ("answers", answers))
        for key in ("evaluation", "samples", "charts"):
            page.panes.show_pane(key)
            settle()
            page.grab()
        assert page.charts is not None
        return page.charts.samples.width(), [each.minimumSizeHint().width() for each in shown]

    column_px, _ = write("Well", 15)
    found_px, wanted_px = write(text, 16)
    assert found_px == column_px
    assert max(wanted_px) < 700, wanted_px


def test_sample_is_asked_for_in_its_tab(page: DashboardPage, sent: list[tuple[Any, ...]], qtbot: Any) -> None:
    page.activateWindow()
    page.ask("sample")
    assert page.panes.key == "samples"
    qtbot.waitUntil(page.samples.prompt.hasFocus)
    assert not page.samples.send.isEnabled()
    ask(page, " How are you? ")
    assert sent[0][:2] == ("sample", {"prompt": "How are you?"})
    assert page.samples.words.text() == "The model answers after the current step…"
    assert not page.samples.send.isEnabled()


def test_keyboard_stays_at_the_tabs_when_another_comes_to_the_front(page: DashboardPage) -> None:
    page.ask("sample")
    assert page.window().focusWidget() is page.samples.prompt
    page.panes.show_pane("files")
    assert page.window().focusWidget() is page.panes.bar


def test_answer_is_seen_and_announced_where_it_was_asked_for(page: DashboardPage, sent: list[tuple[Any, ...]]) -> None:
    said: list[str] = []
    page._announcer.say = said.append
    ask(page, "How are you?")
    answer = {"step": 15, "prompt": "How are you?", "text": "Well"}
    tell(page, ("sample", answer), ("ack", {"command": "sample", "ok": True, "message": ""}))
    assert page.samples.words.text() == "Answered at step 15."
    assert said == ["The model answered: Well"]
    assert page.samples.send.isEnabled()
    assert [each.text for each in page.samples.list._shown] == ["Well"]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (
            [("ack", {"command": "sample", "ok": False, "message": "A sample needs a prompt."})],
            "A sample needs a prompt.",
        ),
        (
            [
                ("warning", {"code": "sample-failed", "message": "Step 15: it broke"}),
                ("ack", {"command": "sample", "ok": True, "message": ""}),
            ],
            "Step 15: it broke",
        ),
    ],
)
def test_failed_sample_says_why_in_its_tab(
    events: list[tuple[str, dict[str, Any]]], words: str, page: DashboardPage, sent: list[tuple[Any, ...]]
) -> None:
    ask(page, "How are you?")
    tell(page, *events)
    assert page.samples.words.text() == f"There is no answer. {words}"
    assert page.samples.words.property("tone") == "error"
    assert page.samples.send.isEnabled()


def test_run_that_ends_before_the_answer_says_so(page: DashboardPage, sent: list[tuple[Any, ...]]) -> None:
    ask(page, "How are you?")
    tell(page, ("result", {"status": "stopped", "step": 15}))
    assert page.samples.words.text() == "The run ended before the model answered."
    assert page.samples._asking.isHidden()
    assert page.samples.list._empty.text() == "This run has no samples."


def test_request_that_cannot_be_sent_says_why(open_dashboard: Any, context: Any, qtbot: Any) -> None:
    page = open_dashboard(make_run("dead", "crash"))
    ask(page, "How are you?")
    qtbot.waitUntil(lambda: page.samples.words.text().startswith("There is no answer. The run"), timeout=5000)


def listed(page: DashboardPage) -> list[str]:
    return [page.files.topLevelItem(place).text(0) for place in range(page.files.topLevelItemCount())]


def test_files_follow_the_run(page: DashboardPage, live: Run, qtbot: Any) -> None:
    page.panes.show_pane("files")
    qtbot.waitUntil(lambda: "spec.json" in listed(page), timeout=5000)
    saved = live.checkpoints_path / "step-000016"
    saved.mkdir(parents=True)
    (saved / "state.json").write_text("{}")
    tell(page, ("checkpoint", {"step": 16, "path": "checkpoints/step-000016", "bytes": 2, "seconds": 0.1}))
    qtbot.waitUntil(lambda: "checkpoints/step-000016/state.json" in listed(page), timeout=5000)


def test_files_of_another_run_are_never_shown(page: DashboardPage, live: Run, qtbot: Any) -> None:
    (live.path / "only-in-the-first").write_text("")
    page.panes.show_pane("files")
    qtbot.waitUntil(lambda: "only-in-the-first" in listed(page), timeout=5000)
    late = (live, [("only-in-the-first", 0, 0.0)])
    other = make_run("other", "happy")
    page.on_shown(other.id)
    page.panes.show_pane("files")
    assert listed(page) == []
    page._take_files(late)
    assert listed(page) == []
    qtbot.waitUntil(lambda: "spec.json" in listed(page), timeout=5000)
    assert "only-in-the-first" not in listed(page)


def test_reading_the_files_again_keeps_what_was_selected(page: DashboardPage) -> None:
    page.files.set_files([("a", 1, 1.0), ("b", 1, 1.0)])
    page.files.setCurrentItem(page.files.topLevelItem(1))
    page.files.set_files([("a", 1, 1.0), ("aa", 1, 1.0), ("b", 2, 2.0)])
    assert page.files.currentItem().text(0) == "b"


def test_answers_to_held_out_rows_show_what_is_expected_and_whether_they_are_right(page: DashboardPage) -> None:
    page.panes.show_pane("samples")
    page.model.samples, page.model.answers = [], []
    told = {"prompt": "2 + 2?", "expected": "Four."}
    tell(
        page,
        ("answers", {"step": 0, "answers": [told | {"answer": "Five.", "right": False}]}),
        ("answers", {"step": 30, "answers": [told | {"answer": "It is four", "right": True}], "cuts": [9]}),
    )
    chips = [chip.text for chip in page.samples.list._items.findChildren(StatusChip)]
    assert chips == ["step 30", "Right", "cut at 9 tokens", "before training", "Wrong"]
    (cut,) = [chip for chip in page.samples.list._items.findChildren(StatusChip) if chip.text.startswith("cut")]
    assert "length of the expected one" in cut.toolTip()
    assert texts(page.samples).count("Expected: Four.") == 2
    assert not page.samples.rhythm.isHidden(), "when they are asked is said"
    tell(page, ("sample", {"step": 30, "prompt": "Who?", "text": "Me."}))
    assert "Expected" not in texts(page.samples.list._items), "nothing is expected of a sample"
    assert page.samples.rhythm.isHidden()


def test_samples_of_every_step_can_be_chosen_and_cut_ones_are_marked(page: DashboardPage) -> None:
    page.panes.show_pane("samples")
    page.model.samples = []
    tell(
        page,
        ("sample", {"step": 0, "prompt": "Who?", "text": "Nobody."}),
        ("sample", {"step": 20, "prompt": "Who?", "text": "Me and then", "cut_at_tokens": 64}),
        ("sample", {"step": 30, "prompt": "Who?", "text": "Me."}),
    )
    steps = page.samples.steps
    assert [steps.itemText(place) for place in range(steps.count())] == [
        "All steps", "Step 30", "Step 20", "Before training",
    ]  # fmt: skip
    chips = [chip.text for chip in page.samples.list.findChildren(StatusChip)]
    assert chips == ["step 30", "step 20", "cut at 64 tokens", "before training"]
    (cut,) = [chip for chip in page.samples.list.findChildren(StatusChip) if chip.text.startswith("cut")]
    assert "Sample length" in cut.toolTip()
    steps.setCurrentIndex(3)
    shown = [chip.text for chip in page.samples.list._items.findChildren(StatusChip)]
    assert shown == ["before training"]
    tell(page, ("sample", {"step": 40, "prompt": "Who?", "text": "You."}))
    assert steps.currentText() == "Before training", "what was chosen stays"
