"""The model behind the chat page: loaded once, switched in place, unloaded, and loaded ahead where there is room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PySide6.QtCore import QObject, Signal

from tests.gui.run_folders import make_run
from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.chat import SIDES
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, RunState
from tunesmith_core.sampling import Sampling
from tunesmith_core.votes import BASE_MODEL, Contender, Contest
from tunesmith_gui.chat import service as service_module
from tunesmith_gui.chat.service import ChatService, ModelState

GIB = 1 << 30


class Task(QObject):
    """Stands for an operation: what it is told is noted, what it says a test tells."""

    happened, ended = Signal(object), Signal(object)
    made: ClassVar[list[Task]] = []

    def __init__(self, _kind: object, spec: Any, _parent: QObject) -> None:
        super().__init__()
        self.spec, self.posted, self.over, self.described = spec, [], "", ("", False)
        Task.made.append(self)

    def describe(self, doing: Callable[[], str], *, rests: bool = False) -> None:
        self.described = doing(), rests

    def start(self) -> None:
        """Starts nothing."""

    def post(self, command: str, **data: object) -> None:
        self.posted.append((command, data))

    def cancel(self) -> None:
        self.over = "canceled"

    def abandon(self) -> None:
        self.over = "abandoned"

    def says(self, kind: str, **data: Any) -> None:
        self.happened.emit(Event(1, 0.0, kind, data))


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    monkeypatch.setattr(Task, "made", [])
    monkeypatch.setattr(service_module, "OperationTask", Task)
    return Task.made


@pytest.fixture
def run(home: Path, model_folder: Path) -> Run:
    assert home.is_dir()
    return make_loadable("done", model_folder)


def make_loadable(name: str, model_folder: Path) -> Run:
    run = make_run(name, "happy")
    spec = run.load_spec()
    spec.model.path = str(model_folder)
    files.atomic_write_json(run.spec_path, spec.to_dict())
    return run


@pytest.fixture
def service(tasks: list[Task]) -> ChatService:
    assert tasks == []
    return ChatService()


def has_free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    cpu = Hardware("cpu", "CPU", 64 * GIB, free_bytes, 64 * GIB, free_bytes)
    monkeypatch.setattr(service_module, "detect_hardware", lambda: [cpu])
    monkeypatch.setattr("tunesmith_core.devices.nvidia_present", lambda: False)


def test_a_model_is_loaded_once_and_switched_in_place(
    service: ChatService, tasks: list[Task], run: Run, qtbot: Any
) -> None:
    service.open(run)
    service.open(run)
    (task,) = tasks
    assert service.state is ModelState.LOADING
    task.says("ready", step=30, device="cpu")
    assert service.state is ModelState.READY
    assert service.ready["step"] == 30
    service.open(run, 20)
    qtbot.waitUntil(lambda: task.posted == [("switch", {"checkpoint": 20})], timeout=5000)
    failures: list[TunesmithError] = []
    service.failed.connect(failures.append)
    task.says("ack", command="switch", ok=False, message="Damaged.")
    assert service.state is ModelState.READY
    assert failures[0].message == "Damaged."
    service.open(run, 20, "cpu")
    assert task.over == "canceled"
    assert tasks[1].spec.device == "cpu"


def test_questions_and_stops_are_posted_and_answers_told(
    service: ChatService, tasks: list[Task], run: Run, qtbot: Any
) -> None:
    told: list[tuple[object, str]] = []
    service.happened.connect(lambda asker, event: told.append((asker, event.type)))
    service.ask(("tuned",), {"tuned": []}, Sampling(), "nobody")
    service.open(run)
    (task,) = tasks
    service.ask(("tuned",), {"tuned": [{"role": "user", "content": "Who?"}]}, Sampling(9), "chat")
    qtbot.waitUntil(lambda: len(task.posted) == 1, timeout=5000)
    assert task.posted[0][1]["sampling"]["max_tokens"] == 9
    service.stop_answer()
    qtbot.waitUntil(lambda: task.posted[-1][0] == "cancel", timeout=5000)
    for kind in ("phase", "piece", "done", "piece"):
        task.says(kind)
    assert told == [("chat", "piece"), ("chat", "done")]
    service.close()
    task.says("piece")
    task.ended.emit(Outcome(OperationState.STOPPED, 5))
    assert len(told) == 2
    assert service.state is ModelState.OFF


def test_who_asked_first_is_told_first_and_two_checkpoints_are_switched_between(
    service: ChatService, tasks: list[Task], run: Run, qtbot: Any
) -> None:
    told: list[object] = []
    service.happened.connect(lambda asker, _event: told.append(asker))
    service.open(run)
    (task,) = tasks
    contest = Contest([], (Contender(), Contender(checkpoint=20)))
    service.ask(SIDES, {side: [] for side in SIDES}, Sampling(), "chat")
    service.ask_contest(contest, Sampling())
    service.ask_contest(Contest([], (Contender(checkpoint=20), BASE_MODEL)), Sampling())
    qtbot.waitUntil(lambda: len(task.posted) == 6, timeout=5000)
    assert [data.get("checkpoint", data.get("sides")) for _name, data in task.posted] == [
        ["tuned", "base"],
        ["tuned"],
        20,
        ["tuned"],
        ["tuned"],
        ["base"],
    ]
    for kind in ("done", "done", "piece", "done", "done"):
        task.says(kind)
    assert told == ["chat", "chat", contest, contest, contest]


def test_a_command_that_cannot_be_written_is_told_and_the_next_is_sent(
    service: ChatService, tasks: list[Task], run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[TunesmithError] = []
    service.failed.connect(failures.append)
    service.open(run)
    (task,) = tasks

    def fail(_command: str, **_data: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(task, "post", fail)
        service.ask(("tuned",), {"tuned": []}, Sampling(), "chat")
        qtbot.waitUntil(lambda: len(failures) == 1, timeout=5000)
    service.stop_answer()
    qtbot.waitUntil(lambda: task.posted == [("cancel", {})], timeout=5000)


def test_how_it_ended_is_told(service: ChatService, tasks: list[Task], run: Run) -> None:
    failures: list[TunesmithError] = []
    service.failed.connect(failures.append)
    service.open(run)
    tasks[0].ended.emit(Outcome(OperationState.FINISHED, 0, {"reason": "idle"}))
    assert service.state is ModelState.OFF
    assert failures == []
    service.open(run)
    tasks[1].ended.emit(Outcome(OperationState.FAILED, 2, error=TunesmithError("gpu-busy", "No room.")))
    assert [error.code for error in failures] == ["gpu-busy"]
    service.open(run)
    service.shutdown()
    service.shutdown()
    assert tasks[2].over == "abandoned"


def test_a_run_that_ends_is_loaded_ahead_where_there_is_room(
    service: ChatService, tasks: list[Task], run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_free(monkeypatch, GIB)
    service.warm(run)
    qtbot.waitUntil(lambda: not service._warming, timeout=5000)
    assert tasks == [], "it would take more than a quarter of what is free"
    has_free(monkeypatch, 32 * GIB)
    service.warm(run)
    service.warm(run)
    qtbot.waitUntil(lambda: len(tasks) == 1, timeout=5000)
    # The run has ended meanwhile: its last weights take the place of those that were there.
    service.warm(run)
    qtbot.waitUntil(lambda: tasks[0].posted == [("switch", {"checkpoint": 0})], timeout=5000)
    # That of another run takes the place of one that nobody has asked, and stays once somebody has.
    other = make_loadable("other", Path(run.load_spec().model.path))
    service.warm(other)
    qtbot.waitUntil(lambda: len(tasks) == 2, timeout=5000)
    assert service.run == other
    service.ask(("tuned",), {"tuned": []}, Sampling(), "chat")
    service.warm(run)
    qtbot.wait(50)
    assert len(tasks) == 2


def test_a_run_that_cannot_be_read_is_not_loaded_ahead(
    service: ChatService, tasks: list[Task], run: Run, qtbot: Any
) -> None:
    run.spec_path.write_text("{", encoding="utf-8")
    service.warm(run)
    qtbot.waitUntil(lambda: not service._warming, timeout=5000)
    assert tasks == []


@pytest.mark.parametrize("watched", [True, False])
def test_the_page_of_a_run_loads_ahead_at_its_end_and_offers_to_try_it(
    watched: bool, context: Any, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunesmith_gui.dashboard.model import pack
    from tunesmith_gui.dashboard.page import DashboardPage

    warmed: list[Run] = []
    service = ChatService()
    monkeypatch.setattr(service, "warm", warmed.append)
    context.__dict__["chat"] = service
    journal = run.journal_path.read_bytes().splitlines(keepends=True)
    run.journal_path.write_bytes(b"".join(line for line in journal if b'"type":"result"' not in line))
    page = DashboardPage(context)
    qtbot.addWidget(page)
    page.show()
    page.on_shown(run.id)
    qtbot.waitUntil(lambda: page._knows_all, timeout=5000)
    assert warmed == []
    page.model.status.state = RunState.RUNNING
    if not watched:
        page.on_hidden()
    page._receive([pack([Event(99, 2e9, "result", {"status": "finished", "artifacts": {"adapter": "adapter"}})])][0])
    assert warmed == [run] * watched
    page._repaint()
    assert page.header.try_it.isVisible()
    assert page.header.try_it.property("kind") == "primary"
    with qtbot.waitSignal(page.navigate, timeout=5000) as went:
        page.header.try_it.click()
    assert went.args == ["chat", run.id]


@pytest.mark.parametrize("reason", ["stays", "leaves", "trains", "loaded"])
def test_the_page_of_an_ended_run_loads_ahead_for_who_stays(
    reason: str, context: Any, run: Run, qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunesmith_gui.dashboard import page as page_module

    warmed: list[Run] = []
    service = ChatService()
    monkeypatch.setattr(service, "warm", warmed.append)
    monkeypatch.setattr(service, "is_loaded", lambda _run: reason == "loaded")
    monkeypatch.setattr(page_module, "STAY_MS", 300)
    context.__dict__["chat"] = service
    if reason == "trains":
        monkeypatch.setattr(context.runs, "live_runs", lambda: ["another"])
    page = page_module.DashboardPage(context)
    qtbot.addWidget(page)
    page.show()
    page.on_shown(run.id)
    assert page._stay.isActive()
    if reason == "leaves":
        page.on_hidden()
    qtbot.waitUntil(lambda: page._knows_all and not page._stay.isActive(), timeout=5000)
    assert warmed == [run] * (reason == "stays")
