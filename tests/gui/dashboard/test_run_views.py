"""The tail, the run service, the dashboard and the runs page on real run folders."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QPushButton, QWidget

from tests.gui.layout_checks import clipped
from tunesmith_core import launch
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, encode, read_journal
from tunesmith_core.runs import Run, RunState, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_gui.dashboard.model import DashboardModel, pack
from tunesmith_gui.dashboard.page import DashboardPage
from tunesmith_gui.dashboard.report import engine_output
from tunesmith_gui.environment.setup_service import SetupService
from tunesmith_gui.models.run_row import RunRow
from tunesmith_gui.models.run_spec import micro_batch_one_spec, retry_specs, value_text
from tunesmith_gui.runs.model import differing_settings, runs_csv
from tunesmith_gui.runs.page import RunsPage
from tunesmith_gui.runs.table import Column, RunFilter, RunTableModel
from tunesmith_gui.services.journal_tail import JournalTail
from tunesmith_gui.services.library import Library, sparkline
from tunesmith_gui.services.run_service import RunService
from tunesmith_gui.shell.stall_watchdog import watch_if_asked
from tunesmith_gui.theme import Scheme, theme, tokens
from tunesmith_gui.widgets import announcer
from tunesmith_gui.widgets.banner import Banner
from tunesmith_gui.widgets.safe_label import SafeLabel
from tunesmith_gui.widgets.stat_tile import StatTile

EVENTS = Path(__file__).parents[2] / "data" / "events"


def make_run(name: str, stream: str = "", **schedule: int) -> Run:
    spec = RunSpec(name=name)
    spec.model.path, spec.data.path = "/models/Tiny", "/data/chats.jsonl"
    for key, value in schedule.items():
        setattr(spec.schedule, key, value)
    run = create_run(spec)
    if stream:
        run.journal_path.write_bytes((EVENTS / f"{stream}.jsonl").read_bytes())
    return run


@pytest.fixture
def context(home: Path, qtbot: Any) -> Iterator[Any]:
    del home
    revealed: list[Path] = []
    value = SimpleNamespace(
        runs=RunService(),
        library=Library(),
        desktop=SimpleNamespace(reveal=revealed.append),
        setup=SetupService(),
        revealed=revealed,
    )
    yield value
    value.runs.shutdown()
    value.setup.shutdown()
    qtbot.wait(20)


@pytest.fixture
def open_dashboard(context: Any, qtbot: Any) -> Callable[[Run], DashboardPage]:
    def show(run: Run) -> DashboardPage:
        page = DashboardPage(context)
        qtbot.addWidget(page)
        page.resize(1000, 700)
        page.show()
        page.on_shown(run.id)
        qtbot.waitUntil(lambda: page.charts is not None and page._spec is not None, timeout=20_000)
        qtbot.waitUntil(lambda: page._follow is not None and page._follow.caught_up, timeout=5000)
        page._repaint()
        return page

    return show


def texts(widget: QWidget) -> str:
    labels = [label.text() for label in widget.findChildren(SafeLabel) if not label.isHidden()]
    return "\n".join(labels + [each.text() for each in widget.findChildren(QPushButton) if not each.isHidden()])


@pytest.mark.parametrize("pace", [1, 100, 0])
def test_tail_hands_over_what_is_written_while_it_looks(pace: int, tmp_path: Path, qtbot: Any) -> None:
    data = (EVENTS / "happy.jsonl").read_bytes() + (EVENTS / "utf8.jsonl").read_bytes()
    path, model, owner = tmp_path / "events.jsonl", DashboardModel(), QObject()
    tail = JournalTail(owner)
    tail.follow(path, pack, model.apply, pytest.fail)
    pieces = data.splitlines(keepends=True) if pace else [data[i : i + 7] for i in range(0, len(data), 7)]
    with path.open("ab", buffering=0) as file:
        for place, piece in enumerate(pieces):
            file.write(piece)
            if place % (pace or 400) == 0:
                qtbot.wait(5)
    qtbot.waitUntil(lambda: bool(model.samples) and model.samples[-1].text == "您好！", timeout=5000)
    tail.shutdown()
    assert model.status.total_steps == 5
    assert any("模型已加载" in line.text for line in model.log.matching())


def test_tail_tells_of_a_newer_journal_and_goes_on_with_others(tmp_path: Path, qtbot: Any) -> None:
    newer = tmp_path / "newer.jsonl"
    body = b'{"v":2,"seq":1,"t":1,"type":"hello"'
    newer.write_bytes(body + b',"crc":"%08x"}\n' % zlib.crc32(body))
    errors: list[Any] = []
    model, owner = DashboardModel(), QObject()
    tail = JournalTail(owner)
    tail.follow(newer, pack, lambda _batches: None, errors.append)
    tail.follow(EVENTS / "happy.jsonl", pack, model.apply, pytest.fail)
    qtbot.waitUntil(lambda: bool(errors) and len(model.steps) == 30)
    tail.shutdown()
    assert errors[0].code == "protocol-mismatch"


def test_service_finds_a_run_that_others_started_and_tells_of_its_end(context: Any, qtbot: Any) -> None:
    run = make_run("theirs", "crash")
    lock = FileLock(run.lock_path)
    assert lock.acquire()
    context.runs.look()
    qtbot.waitUntil(lambda: [live.step for live in context.runs.live_runs()] == [15], timeout=5000)
    live = context.runs.live_runs()[0]
    assert (live.name, live.num_steps, live.state) == ("theirs", 30, RunState.RUNNING)
    assert live.eta_s
    with qtbot.waitSignal(context.runs.run_ended, timeout=10_000) as ended:
        lock.release()
    assert ended.args == [run.id, "theirs", "interrupted"]
    assert context.runs.live_runs() == []


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
    assert context.runs.is_live(run.id)
    lock.release()


def test_service_leaves_ended_runs_alone(context: Any, qtbot: Any) -> None:
    run = make_run("over", "stop_save")
    context.runs._ended.add(run.id)
    run.lease_path.write_text("{}")
    qtbot.waitUntil(lambda: not context.runs._looking)
    context.runs.look()
    qtbot.waitUntil(lambda: not context.runs._looking)
    assert not context.runs.is_live(run.id)


def test_service_passes_requests_to_launch_and_tells_of_failures(
    context: Any, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []
    run = make_run("mine", "crash")
    monkeypatch.setattr(launch, "resume", lambda given: asked.append(("resume", given.id)))
    monkeypatch.setattr(launch, "start", lambda spec: asked.append(("start", spec.name)) or run)
    done: list[str] = []
    context.runs.resume(run.id, done.append)
    context.runs.start(RunSpec(name="again"), done.append)
    qtbot.waitUntil(lambda: len(done) == 2)
    assert sorted(asked) == [("resume", run.id), ("start", "again")]
    with qtbot.waitSignal(context.runs.failed) as failed:
        context.runs.stop(run.id, "save")
    assert failed.args[1].code == "run-not-live"


def test_dashboard_of_a_finished_run(context: Any, open_dashboard: Any) -> None:
    run = make_run("done", "happy")
    page = open_dashboard(run)
    shown = texts(page)
    assert page.header.chip.text == "Finished"
    assert "Finished: the adapter is ready" in shown
    assert "2.100 → 1.100" in shown
    assert str(run.path / "adapter") in shown
    assert "Hello <b>there</b>" in shown
    assert page.header.stop.isHidden()
    assert page.charts.loss.plot.lines[0].y.shape == (30,)
    assert "down from" in page.charts.loss.describe(page.model)
    image = page.charts.loss.plot.image()
    colours = {image.pixelColor(x, y).name() for x in range(0, image.width(), 2) for y in range(0, image.height(), 2)}
    assert tokens().raised in colours
    assert len(colours) > 20
    page.ask("open_folder")
    assert context.revealed == [run.path]


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ("Retry with micro-batch 1", {"schedule.micro_batch_size": 1, "schedule.gradient_accumulation_steps": 8}),
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
    page._spec = spec
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


def test_retries_leave_out_what_is_small_already() -> None:
    spec = RunSpec()
    spec.schedule.micro_batch_size, spec.data.context_length = 1, 128
    spec.hardware.activation_checkpointing = True
    assert retry_specs(spec) == {}


@pytest.mark.parametrize(
    ("last_s", "word", "tick"), [(60, "second", "%1 s"), (3600, "minute", "%1 min"), (9e4, "hour", "%1 h")]
)
def test_time_counts_from_the_first_reading(last_s: float, word: str, tick: str, qtbot: Any) -> None:
    from tunesmith_gui.dashboard.charts import DashboardCharts

    model = DashboardModel()
    readings = [Event(n, 100.0 + t, "gpu", {"used_by_others_bytes": 2**30}) for n, t in enumerate((0, 2, last_s))]
    model.apply(pack([readings[0], Event(9, 101.5, "hello", {}), *readings[1:]]))
    charts = DashboardCharts()
    qtbot.addWidget(charts)
    charts.show_model(model)
    plot = charts.memory.plot
    assert plot.lines[0].x[0] == 0.0
    assert (plot.x_word, plot.x_ticks) == (word, tick)
    bottom = plot._plot.getAxis("bottom")
    assert bottom.tickStrings([1.0, 2.0], 1.0, 1.0) == [tick.replace("%1", "1"), tick.replace("%1", "2")]


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
    tiles = page.header.findChildren(StatTile)
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


def test_announcements_keep_a_pause(qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(announcer.QAccessible, "updateAccessibility", lambda event: said.append(event.message()))
    monkeypatch.setattr(announcer, "PAUSE_S", 0.3)
    speaker = QWidget()
    qtbot.addWidget(speaker)
    voice = announcer.Announcer(speaker)
    for text in ("one", "two", "three"):
        voice.say(text)
    assert said == ["one"]
    qtbot.waitUntil(lambda: said == ["one", "three"], timeout=3000)


@pytest.mark.parametrize(("variable", "watched"), [("TUNESMITH_DEBUG", True), ("CI", True), ("", False)])
def test_watchdog_runs_where_it_is_asked_for(
    variable: str, watched: bool, monkeypatch: pytest.MonkeyPatch, qtbot: Any
) -> None:
    for name in ("TUNESMITH_DEBUG", "CI"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    owner = QObject()
    watchdog = watch_if_asked(lambda: "", owner)
    assert (watchdog is not None) == watched
    if watchdog is not None:
        watchdog.shutdown()


def test_settings_used_come_from_the_frozen_spec_and_mark_changes(open_dashboard: Any) -> None:
    page = open_dashboard(make_run("set", "happy", micro_batch_size=7))
    tree = page.settings_used
    groups = [tree.topLevelItem(place) for place in range(tree.topLevelItemCount())]
    rows = [group.child(place) for group in groups for place in range(group.childCount())]
    row = next(each for each in rows if each.text(0) == "Micro-batch size")
    assert (row.text(1), row.text(2)) == ("7 examples", "changed, default is 2")


def test_runs_page_lists_filters_and_opens(context: Any, qtbot: Any) -> None:
    run = make_run("alpha", "happy")
    make_run("beta", "oom")
    page = RunsPage(context)
    qtbot.addWidget(page)
    page.resize(1200, 700)
    page.show()
    page.on_shown()
    qtbot.waitUntil(lambda: page.proxy.rowCount() == 2, timeout=10_000)
    page.filter.setText("alph")
    assert page.proxy.rowCount() == 1
    page.table.selectRow(0)
    opened: list[tuple[str, Any]] = []
    page.navigate.connect(lambda name, argument: opened.append((name, argument)))
    page.card.open.click()
    assert opened == [("dashboard", run.id)]
    page.filter.clear()
    page.states.set_value("failed")
    assert page.proxy.rowCount() == 1
    assert page.proxy.index(0, Column.STATE).data() == "Failed"


def test_runs_page_says_what_to_do_when_there_are_none(context: Any, qtbot: Any) -> None:
    page = RunsPage(context)
    qtbot.addWidget(page)
    page.show()
    page.on_shown()
    qtbot.waitUntil(lambda: context.library.loaded)
    assert "No runs yet" in texts(page._stack.currentWidget())
    asked: list[tuple[str, Any]] = []
    page.navigate.connect(lambda name, argument: asked.append((name, argument)))
    page._empty.secondary.click()
    (name, paths) = asked[0]
    assert (name, paths[0].is_file()) == ("train", True)


def row(name: str, **values: Any) -> RunRow:
    return RunRow(id=name, path=Path("/runs") / name, name=name, state=values.pop("state", RunState.FINISHED), **values)


def test_table_model_keeps_qt_rules_and_sorts(qtmodeltester: Any, capsys: Any) -> None:
    del capsys
    model = RunTableModel()
    newest = row("c", created_at=3.0, best_eval_loss=1.0)
    model.set_rows([row("b", created_at=1.0, best_eval_loss=2.0), row("a", created_at=2.0), newest])
    qtmodeltester.check(model, force_py=True)
    assert [each.name for each in model.rows] == ["c", "a", "b"]
    model.sort(Column.EVAL_LOSS)
    assert [each.name for each in model.rows] == ["c", "b", "a"]


def test_filter_keeps_qt_rules_and_the_order_of_the_model(qtmodeltester: Any, capsys: Any) -> None:
    del capsys
    model = RunTableModel()
    model.set_rows([row("b", model="Qwen"), row("a", model="Llama"), row("c", state=RunState.FAILED)])
    proxy = RunFilter(model)
    qtmodeltester.check(proxy, force_py=True)
    proxy.sort(Column.NAME)
    assert [proxy.index(place, 0).data() for place in range(3)] == ["a", "b", "c"]
    proxy.set_words("qw")
    assert [proxy.index(place, 0).data() for place in range(proxy.rowCount())] == ["b"]
    proxy.set_words("")
    proxy.set_states(frozenset({RunState.FAILED}))
    assert proxy.rowCount() == 1


def test_only_differing_settings_are_compared() -> None:
    one, two = RunSpec(), RunSpec()
    two.method.rank, two.optimizer.learning_rate = 64, 1e-4
    found = {each.path: each.values for each in differing_settings([one, two])}
    assert found == {"method.rank": ("16", "64"), "optimizer.learning_rate": ("0.0002", "0.0001")}


def test_micro_batch_one_keeps_the_effective_batch_size() -> None:
    spec = RunSpec()
    smaller = micro_batch_one_spec(spec)
    assert smaller is not None
    assert (smaller.schedule.micro_batch_size, smaller.schedule.gradient_accumulation_steps) == (1, 8)
    assert spec.schedule.micro_batch_size == 2
    assert micro_batch_one_spec(smaller) is None


def test_csv_disarms_formulas() -> None:
    lines = runs_csv([row("=cmd()", best_eval_loss=1.5)]).splitlines()
    assert lines[1].startswith("'=cmd(),'=cmd(),finished")


def test_sparkline_needs_two_losses_and_stays_short() -> None:
    assert sparkline([1.0, None]) == ()
    assert len(sparkline(float(i) for i in range(10_000))) == 48


def test_deleting_for_good_removes_the_folder(context: Any, qtbot: Any) -> None:
    run = make_run("gone", "happy")
    with qtbot.waitSignal(context.runs.runs_changed, timeout=5000):
        context.runs.delete([run.id])
    qtbot.waitUntil(lambda: not run.path.exists())
