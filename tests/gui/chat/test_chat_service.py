"""The model behind the chat page: loaded once, switched in place, unloaded, and loaded ahead where there is room."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from PySide6.QtCore import QObject, Signal

from tests.gui.run_folders import make_run
from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event
from tunesmith_core.runs import Run, RunState
from tunesmith_core.sampling import Sampling
from tunesmith_gui.chat import service as service_module
from tunesmith_gui.chat.service import ChatService, ModelState

GIB = 1 << 30


class Task(QObject):
    """Stands for an operation: what it is told is noted, what it says a test tells."""

    happened, ended = Signal(object), Signal(object)
    made: ClassVar[list[Task]] = []

    def __init__(self, _kind: object, spec: Any, _parent: QObject) -> None:
        super().__init__()
        self.spec, self.posted, self.over = spec, [], ""
        Task.made.append(self)

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
    run = make_run("done", "happy")
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
    told: list[Event] = []
    service.happened.connect(told.append)
    service.ask(("tuned",), {"tuned": []}, Sampling())
    service.open(run)
    (task,) = tasks
    service.ask(("tuned",), {"tuned": [{"role": "user", "content": "Who?"}]}, Sampling(9))
    qtbot.waitUntil(lambda: len(task.posted) == 1, timeout=5000)
    assert task.posted[0][1]["sampling"]["max_tokens"] == 9
    service.stop_answer()
    qtbot.waitUntil(lambda: task.posted[-1][0] == "cancel", timeout=5000)
    for kind in ("phase", "piece", "done"):
        task.says(kind)
    assert [event.type for event in told] == ["piece", "done"]
    service.close()
    task.says("piece")
    task.ended.emit(Outcome(OperationState.STOPPED, 5))
    assert len(told) == 2
    assert service.state is ModelState.OFF


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
    # Another run's model stays while somebody may talk to it.
    service.warm(make_run("other", "happy"))
    qtbot.wait(50)
    assert len(tasks) == 1


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
