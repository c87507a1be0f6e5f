"""The page of one run on real run folders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton, QScrollArea, QWidget

from tests.gui.conftest import settle
from tests.gui.layout_checks import clipped
from tests.gui.run_folders import make_run, texts
from tunesmith_core import files
from tunesmith_core.actions import RAISE_CONTEXT
from tunesmith_core.errors import UserError
from tunesmith_core.locks import FileLock
from tunesmith_core.preferences import LABEL_METRICS, METRICS
from tunesmith_core.protocol import Event, JournalWriter, encode, read_journal
from tunesmith_core.runs import RunState
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard import actions as actions_module
from tunesmith_gui.dashboard.banners import make_banner, outcome_text
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.dashboard.page import DashboardPage
from tunesmith_gui.dashboard.report import engine_output
from tunesmith_gui.models.run_spec import value_text
from tunesmith_gui.runs.model import differing_settings
from tunesmith_gui.theme import Scheme, theme, tokens
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.stat_tile import StatTile


def test_another_run_is_shown_from_its_top(open_dashboard: Any) -> None:
    first, second = make_run("first"), make_run("second")
    page = open_dashboard(first)
    page.resize(1000, 300)
    settle()
    bar = next(area for area in page.findChildren(QScrollArea) if area.parent() is page).verticalScrollBar()
    bar.setValue(bar.maximum())
    assert bar.value() > 0
    page.on_shown(first.id)
    assert bar.value() > 0, "the same run keeps its place"
    page.on_shown(second.id)
    assert bar.value() == 0


def test_a_run_whose_answers_were_cut_is_not_green(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("cut", "happy")
    events = read_journal(run.journal_path)
    for event in events:
        if event.type == "setup":
            num_rows = event.data["num_train_rows"] + event.data.get("num_eval_rows", 0)
            event.data["num_open_rows"] = num_rows // 2 + 1
    run.journal_path.write_bytes(b"".join(map(encode, events)))
    page = open_dashboard(run)
    title = "Finished, but most answers were cut before their end"
    qtbot.waitUntil(lambda: page._banner is not None and title in texts(page._banner), timeout=5000)
    assert page._banner._tone == "warn"
    assert "Raise the context length" in texts(page._banner)


def test_a_run_that_could_learn_nothing_leads_to_the_context_length(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("nothing", "happy")
    error = UserError("no-trained-tokens", "None.", actions=(RAISE_CONTEXT,)).to_dict()
    events = [read_journal(run.journal_path)[0], Event(2, 1.0, "error", error)]
    events.append(Event(3, 2.0, "result", {"status": "failed"}))
    run.journal_path.write_bytes(b"".join(map(encode, events)))
    page = open_dashboard(run)
    qtbot.waitUntil(lambda: page._banner is not None and page.spec is not None, timeout=5000)
    (button,) = [each for each in page._banner.findChildren(QPushButton) if each.text() == "Raise the context length"]
    assert "Change and retry" not in texts(page._banner)
    with qtbot.waitSignal(page.navigate, timeout=2000) as asked:
        button.click()
    assert asked.args[1].path == "data.context_length"


def test_run_resumed_elsewhere_becomes_live_again(context: Any, open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("again", "stop_save")
    qtbot.waitUntil(lambda: run.id in context.runs._ended or not context.runs._looking, timeout=5000)
    context.runs._ended.add(run.id)
    page = open_dashboard(run)
    assert page.model.status.state is RunState.STOPPED
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    run.lease_path.write_text("{}")
    last = read_journal(run.journal_path)[-1]
    greeting = Event(last.seq + 1, last.t + 60, "hello", {"resumed_from_step": 14})
    with run.journal_path.open("ab") as file:
        file.write(encode(greeting))
    with qtbot.waitSignal(context.runs.runs_changed, timeout=5000):
        context.runs.look()
    qtbot.waitUntil(lambda: page.model.status.state is RunState.PREPARING, timeout=5000)
    assert [live.id for live in context.runs.live_runs()] == [run.id]
    lock.release()


def test_dashboard_of_a_finished_run(
    context: Any, open_dashboard: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("done", "happy")
    page = open_dashboard(run)
    shown = texts(page)
    assert page.header.chip.text == "Finished"
    assert "Finished: the adapter is ready" in shown
    assert "Nobody knows whether the model improved" in shown, "of this one nothing was measured before"
    assert str(run.path / "adapter") in shown
    assert "Hello <b>there</b>" in shown
    assert page.header.stop.isHidden()
    assert page.charts.loss.plot.lines[0].y.shape == (30,)
    assert "down from" in page.charts.loss.describe(page.model)
    image = page.charts.loss.plot.image()
    colours = {image.pixelColor(x, y).name() for x in range(0, image.width(), 2) for y in range(0, image.height(), 2)}
    assert tokens().raised in colours
    assert len(colours) > 20
    revealed: list[Path] = []
    monkeypatch.setattr(context.desktop, "reveal", lambda path: revealed.append(path) or True)
    page.ask("open_folder")
    qtbot.waitUntil(lambda: revealed == [run.path], timeout=5000)
    opened: list[QUrl] = []
    monkeypatch.setattr(actions_module.QDesktopServices, "openUrl", lambda url: opened.append(url) or True)
    page.ask("report")
    qtbot.waitUntil(lambda: opened == [QUrl.fromLocalFile(str(run.report_path))], timeout=5000)
    qtbot.waitUntil(lambda: "The report is saved" in texts(page), timeout=5000)
    assert "Nobody knows whether" in run.report_path.read_text(encoding="utf-8")


def test_a_report_that_no_browser_opens_can_be_found(
    open_dashboard: Any, context: Any, monkeypatch: pytest.MonkeyPatch, qtbot: Any
) -> None:
    monkeypatch.setattr(actions_module.QDesktopServices, "openUrl", lambda _url: False)
    run = make_run("done", "happy")
    page = open_dashboard(run)
    page.ask("report")
    qtbot.waitUntil(lambda: "No browser opened" in texts(page), timeout=5000)
    assert str(run.report_path) in texts(page)
    find, copy = page._notice.buttons
    copy.click()
    assert QGuiApplication.clipboard().text() == str(run.report_path)
    revealed: list[Path] = []
    monkeypatch.setattr(context.desktop, "reveal", lambda path: revealed.append(path) or True)
    find.click()
    qtbot.waitUntil(lambda: revealed == [run.report_path.parent], timeout=5000)
    page.ask("report")
    qtbot.waitUntil(lambda: texts(page).count("No browser opened") == 1, timeout=5000)
    assert clipped(page) == []
    page.on_shown(make_run("other", "happy").id)
    assert "No browser opened" not in texts(page)


def test_what_came_of_a_run_is_told_with_the_next_step(tmp_path: Path) -> None:
    losses = {0: 2.0, 10: 1.0, 20: None, 30: 1.4}
    model = DashboardModel()
    model.apply(pack([Event(n, 0.0, "eval", {"step": n, "loss": loss}) for n, loss in losses.items()]))
    model.status.artifacts = {"adapter": "adapter"}
    assert outcome_text(model, model.verdict(), tmp_path).splitlines() == [
        "Overfitting since step 10: the held-out loss fell from 2.000 to 1.000 there and has risen to 1.400 since.",
        "Train until step 10 only, or on more rows.",
        f"Adapter: {tmp_path / 'adapter'}",
    ]


def test_what_came_of_pairs_is_told_by_those_told_apart() -> None:
    model = DashboardModel()
    before = dict.fromkeys(METRICS, 0.0) | {"logp_chosen": -40.0, "logp_rejected": -50.0}
    after = before | {"reward_chosen": 1.0, "reward_rejected": -1.0, "reward_margin": 2.0, "reward_accuracy": 0.94}
    for step, loss, numbers in ((0, 0.693, before), (10, 0.2, after)):
        model.apply(pack([Event(step, 0.0, "eval", {"step": step, "loss": loss, **numbers})]))
    verdict = model.verdict()
    assert "In 94% of the held-out pairs the model leans more toward the better answer" in verdict.sentence
    assert "is 2.00" in verdict.evidence
    assert "pairs" not in DashboardModel().verdict().sentence


def test_what_came_of_good_and_bad_answers_tells_of_no_pairs() -> None:
    model = DashboardModel()
    before = dict.fromkeys(LABEL_METRICS, 0.0) | {"logp_chosen": -40.0, "logp_rejected": -50.0}
    after = before | {"reward_margin": 0.5, "reward_accuracy": 0.55, "kl": 0.1}
    for step, loss, numbers in ((0, 0.5, before), (10, 0.48, after)):
        model.apply(pack([Event(step, 0.0, "eval", {"step": step, "loss": loss, **numbers})]))
    assert "Of the held-out answers the model rates 55% on the right side" in model.verdict().sentence


def test_what_came_of_labels_is_told_by_texts_that_are_sorted_rightly() -> None:
    model = DashboardModel()
    assert (model.writes, model.has_classes) == (True, False)
    numbers = {"accuracy": 0.9, "macro_f1": 0.85, "calibration_error": 0.04}
    model.apply(pack([Event(1, 0.0, "setup", {"writes": False, "num_eval_rows": 50})]))
    for step, loss in ((0, 1.1), (10, 0.2)):
        model.apply(pack([Event(2 + step, 0.0, "eval", {"step": step, "loss": loss, **numbers})]))
    assert (model.writes, model.has_classes, model.has_pairs) == (False, True, False)
    assert "90% of the held-out texts are sorted into the right class" in model.verdict().sentence


@pytest.mark.parametrize(("last", "tone"), [(1.0, "ok"), (1.99, "warn"), (2.5, "warn")])
def test_a_run_that_led_nowhere_is_no_success(last: float, tone: str, tmp_path: Path, qtbot: Any) -> None:
    model = DashboardModel()
    losses = {0: 2.0, 10: last}
    model.apply(pack([Event(n, 0.0, "eval", {"step": n, "loss": loss}) for n, loss in losses.items()]))
    model.status.state = RunState.FINISHED
    parent = QWidget()
    qtbot.addWidget(parent)
    banner = make_banner(model, None, tmp_path, None, lambda _: None, parent)
    assert banner is not None
    assert banner.property("banner") == tone


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("Retry with micro-batches of 1", {"schedule.micro_batch_size": 1, "schedule.gradient_accumulation_steps": 8}),
        ("Retry with 1,536 tokens", {"data.context_length": 1536}),
        ("Retry with activation checkpointing", {"hardware.activation_checkpointing": True}),
    ],
)
def test_dashboard_offers_retries_after_out_of_memory(
    words: str, changed: dict[str, Any], context: Any, open_dashboard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("big", "oom", micro_batch_size=4, gradient_accumulation_steps=2)
    spec = run.load_spec()
    spec.data.context_length, spec.hardware.activation_checkpointing = 2048, False
    page = open_dashboard(run)
    page.spec = spec
    page._drop_banner()
    page._repaint()
    banner = page._banner
    assert isinstance(banner, Banner)
    assert "The GPU memory is full at step 7" in texts(banner)
    started: list[RunSpec] = []
    monkeypatch.setattr(context.runs, "start", lambda spec, _done: started.append(spec))
    next(each for each in banner.buttons if each.text() == words).click()
    differing = {each.path: each.values[1] for each in differing_settings([spec, started[0]])}
    assert differing.pop("name", "") == ""
    assert differing == {path: value_text(value) for path, value in changed.items()}


@pytest.mark.parametrize(("last_s", "title"), [(60, "Time (s)"), (3600, "Time (min)"), (9e4, "Time (h)")])
def test_time_counts_from_the_first_reading(last_s: float, title: str, qtbot: Any) -> None:
    from tunesmith_gui.dashboard.charts import DashboardCharts

    model = DashboardModel()
    readings = [Event(n, 100.0 + t, "gpu", {"used_by_others_bytes": 2**30}) for n, t in enumerate((0, 2, last_s))]
    model.apply(pack([readings[0], Event(9, 101.5, "hello", {}), *readings[1:]]))
    charts = DashboardCharts()
    qtbot.addWidget(charts)
    charts.show_model(model)
    plot = charts.memory.plot
    assert plot.lines[0].x[0] == 0.0
    assert plot.x_title == title
    assert plot._plot.getAxis("bottom").label.toPlainText().strip() == title


@pytest.fixture
def large_text() -> Iterator[None]:
    theme().set_appearance(Scheme.LIGHT, 2.0)
    yield
    theme().set_appearance(Scheme.LIGHT, 1.0)


@pytest.mark.parametrize("stream", ["happy", "oom", "crash", "stop_save"])
def test_dashboard_cuts_nothing_off_at_double_text_size(
    stream: str, large_text: None, open_dashboard: Any, qtbot: Any
) -> None:
    page = open_dashboard(make_run("large", stream))
    page.resize(900, 600)
    tiles = [tile for tile in page.header.findChildren(StatTile) if tile.isVisible()]
    qtbot.waitUntil(lambda: clipped(page) == [], timeout=5000)
    assert all(tile.height() >= tile.sizeHint().height() for tile in tiles)
    assert page.header.more.geometry().right() <= page.header.more.parentWidget().width()


def test_dashboard_of_a_run_that_nobody_works_on_any_more(open_dashboard: Any, qtbot: Any) -> None:
    page = open_dashboard(make_run("cut off", "crash"))
    qtbot.waitUntil(lambda: page.model.status.state is RunState.INTERRUPTED, timeout=10_000)
    qtbot.waitUntil(lambda: "Resume from 10" in texts(page), timeout=5000)


def test_dashboard_says_when_the_engine_went_silent(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("quiet", "crash")
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    run.heartbeat_path.touch()
    page = open_dashboard(run)
    page._check_life()
    qtbot.waitUntil(lambda: page._heartbeat_at is not None)
    page._heartbeat_at = time.time() - 60
    page.model.status.last_event_at = time.time() - 60
    page._repaint()
    assert "No sign of life since" in texts(page)
    lock.release()


def test_what_changed_before_a_resume_is_listed_below_a_short_title(qtbot: Any) -> None:
    page, model = QWidget(), DashboardModel()
    qtbot.addWidget(page)
    told = {"code": "resume-differs", "message": "It continues.\na: 1 -> 2.\nb: 3 -> 4.", "hint": "Continue."}
    model.apply(pack([Event(1, 1.0, "hello", {"resumed_from_step": 2}), Event(2, 1.0, "warning", told)]))
    banner = make_banner(model, None, Path(), None, lambda _: None, page)
    assert banner is not None
    assert banner._title.text() == "It continues."
    assert banner._text.text() == "a: 1 -> 2.\nb: 3 -> 4.\nContinue."


@pytest.mark.parametrize("end", ["finished", "stopped"])
@pytest.mark.parametrize(
    "told",
    [
        {"code": "dataset-not-reviewed", "message": "q.jsonl: rows that nobody has reviewed (8)."},
        {"code": "experts-without-adapter", "message": "The model's experts are not trained."},
    ],
    ids=["data", "experts"],
)
def test_what_was_noted_stays_once_the_run_has_ended(qtbot: Any, end: str, told: dict[str, str]) -> None:
    page, model = QWidget(), DashboardModel()
    qtbot.addWidget(page)
    ended = {"status": end, "step": 2}
    model.apply(
        pack([Event(1, 1.0, "hello", {}), Event(2, 1.0, "warning", told), Event(3, 2.0, "result", ended)])
    )
    banner = make_banner(model, None, Path(), None, lambda _: None, page)
    assert banner is not None
    assert banner._title.text().startswith(end.capitalize())
    assert banner._text.text().splitlines()[-1] == told["message"]


def test_log_filters_by_level_and_words(open_dashboard: Any, qtbot: Any) -> None:
    page = open_dashboard(make_run("warned", "nan"))
    page.ask("show_log")
    page._repaint()
    assert "checkpoint" in page.log.view.toPlainText()
    page.log.level.set_value("warning")
    assert page.log.view.toPlainText().count("\n") == 0
    page.log.search.setText("nothing like it")
    qtbot.waitUntil(lambda: page.log.view.toPlainText() == "")


def test_engine_output_is_a_view_of_its_own(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("chatty", "happy")
    run.path.joinpath("engine.log").write_text("loading\rloaded\n", encoding="utf-8")
    page = open_dashboard(run)
    page.ask("show_log")
    page.log_pane.source.set_value("output")
    qtbot.waitUntil(lambda: page.log_pane.output.toPlainText() == "loading\nloaded", timeout=5000)
    assert page.log_pane._note.isHidden()


def test_engine_output_is_capped_to_its_end(tmp_path: Path) -> None:
    assert engine_output(tmp_path) == ("", "none")
    tmp_path.joinpath("engine.log").write_text("".join(f"line {n}\n" for n in range(60_000)), encoding="utf-8")
    output = engine_output(tmp_path)
    assert output.extent == "end"
    assert output.text.endswith("line 59999")
    assert output.text.count("\n") < 5000
    tmp_path.joinpath("engine.log").write_text("x" * 10_000, encoding="utf-8")
    assert len(engine_output(tmp_path).text) == 2000


def test_screen_reader_hears_of_the_end_but_not_of_the_past(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("spoken", "crash")
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    page = open_dashboard(run)
    said: list[str] = []
    page._announcer.say = said.append
    page._announce()
    assert said == []
    last = read_journal(run.journal_path)[-1]
    page._receive(pack([Event(last.seq + 1, last.t, "result", {"status": "finished"})]))
    assert said == ["spoken: Finished"]
    lock.release()


def test_settings_used_come_from_the_frozen_spec_in_words(open_dashboard: Any, qtbot: Any) -> None:
    page = open_dashboard(make_run("set", "happy", micro_batch_size=7))
    tree = page.settings_used
    groups = [tree.topLevelItem(place) for place in range(tree.topLevelItemCount())]
    rows = [group.child(place) for group in groups for place in range(group.childCount())]
    row = next(each for each in rows if each.text(0) == "Micro-batch size")
    assert (row.text(1), row.text(2)) == ("7 examples", "changed, default is 2")
    page.model.setup |= {"dtype": "bfloat16", "row_format": "messages"}
    page.model.status.device_name = "RTX 3060"
    page._repaint()
    groups = [tree.topLevelItem(place) for place in range(tree.topLevelItemCount())]
    values = {row.text(0): row.text(1) for group in groups for row in map(group.child, range(group.childCount()))}
    assert values["Number format"] == "Automatic (bfloat16)"
    assert values["Row format"] == "Automatic (Chat)"
    assert values["Device"] == "Automatic (RTX 3060)"
    assert (values["Loss on"], values["Longer examples"]) == ("Answers only", "Cut")
    page.panes.show_pane("settings")
    qtbot.waitUntil(lambda: tree.viewport().width() > 0)
    assert not tree.horizontalScrollBar().isVisibleTo(tree)


def test_a_failed_run_with_a_checkpoint_offers_to_resume(open_dashboard: Any) -> None:
    run = make_run("killed", "crash")
    journal = JournalWriter(run.journal_path)
    journal.write("error", code="engine-killed", kind="RunFailure", message="killed")
    journal.write("result", status="failed", code="engine-killed")
    journal.close()
    assert "Resume from 10" in texts(open_dashboard(run))


def test_another_run_opens_on_its_charts(open_dashboard: Any) -> None:
    page = open_dashboard(make_run("first", "happy"))
    page.ask("show_log")
    page.on_shown()
    assert page.panes.key == "log"
    page.on_shown(make_run("second", "happy").id)
    assert page.panes.key == "charts"


def test_content_is_as_wide_with_a_scroll_bar_as_without(open_dashboard: Any, qtbot: Any) -> None:
    page = open_dashboard(make_run("wide", "happy"))
    page.resize(1000, 500)
    bar = page.findChild(QScrollArea).verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 0, timeout=5000)
    width = page.header.width()
    page.resize(1000, 2000)
    qtbot.waitUntil(lambda: bar.maximum() == 0, timeout=5000)
    qtbot.waitUntil(lambda: page.header.width() == width, timeout=5000)


PAUSE = {"name": "paused", "code": "disk-full", "message": "/runs: no space is left on the disk."}


def test_a_run_that_waits_for_its_disk_says_so_until_it_continues(open_dashboard: Any, qtbot: Any) -> None:
    run = make_run("waiting", "crash")
    with FileLock(run.lock_path):
        page = open_dashboard(run)
        page.model.apply(pack([Event(90, time.time(), "phase", PAUSE)]))
        page._repaint()
        assert "Paused: the disk is full\n/runs: no space is left on the disk." in texts(page)
        assert page.header.chip.text == "Paused: disk full"
        assert page.header.stop.isEnabled()
        page._heartbeat_at = 1.0
        page._repaint()
        assert "No sign of life" not in texts(page)
        page.model.apply(pack([Event(91, time.time(), "phase", PAUSE | {"code": "permission-or-antivirus"})]))
        page._repaint()
        assert "Paused: the run can’t save to its disk" in texts(page)
        page.model.apply(pack([Event(92, time.time(), "phase", {"name": "training"})]))
        page._repaint()
        assert "Paused" not in texts(page)


def test_a_run_that_its_disk_silences_is_seen_from_outside(
    open_dashboard: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("silenced", "crash")
    monkeypatch.setattr(files, "free_bytes", lambda _: 1000)
    with FileLock(run.lock_path):
        # Its events are of long ago. The clock that looks every other second stands still.
        monkeypatch.setattr(DashboardPage, "_on_tick", lambda _page: None)
        page = open_dashboard(run)
        qtbot.waitUntil(lambda: page.model.status.state is RunState.PAUSED, timeout=10_000)
        page._repaint()
        assert f"{run.path}: no space is left on the disk." in texts(page)


@pytest.mark.parametrize(
    ("code", "message", "hint", "shown"),
    [
        ("dataset-rows-cut", "Raise the context length to 9 tokens.", "Raise the context length.", False),
        ("dataset-rows-split", "They were split.", "Raise the context length.", True),
    ],
)
def test_a_warning_gives_its_advice_once(code: str, message: str, hint: str, shown: bool, qtbot: Any) -> None:
    page, model = QWidget(), DashboardModel()
    qtbot.addWidget(page)
    warning = Event(2, 1.0, "warning", {"code": code, "message": message, "hint": hint})
    model.apply(pack([Event(1, 1.0, "hello", {}), warning]))
    banner = make_banner(model, None, Path(), None, lambda _: None, page)
    assert banner is not None
    assert message in texts(banner)
    assert (hint in texts(banner).splitlines()) == shown


def test_a_run_that_was_cut_off_before_its_first_save_can_begin_again(qtbot: Any) -> None:
    page, model = QWidget(), DashboardModel()
    qtbot.addWidget(page)
    model.apply(pack([Event(1, 1.0, "hello", {}), Event(2, 1.0, "step", {"step": 1})]))
    model.status.state = RunState.INTERRUPTED
    banner = make_banner(model, None, Path(), None, lambda _: None, page)
    assert banner is not None
    assert [each.text() for each in banner.buttons] == ["Resume", "Keep as is"]
    model.apply(pack([Event(3, 1.0, "step", {"step": 2})]))
    assert not model.can_resume
