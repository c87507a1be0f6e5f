"""`tunesmith ask` and `tunesmith chat`: text streams to standard output, everything else goes to standard error."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_run import make_tiny_run
from tunesmith_core import cli, cli_chat, conversations
from tunesmith_core.errors import EXIT_DONE, TunesmithError
from tunesmith_core.operations.folder import Operation, OperationState
from tunesmith_core.operations.kinds.chat import ASK, CHAT, AskSpec, ChatSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event, pending_commands, read_command
from tunesmith_core.runs import Run

Tell = Callable[..., None]


class Engine:
    """Stands for the child: tells what a script says when a command comes."""

    def __init__(self, folder: Path) -> None:
        self.operation = Operation(folder / "operation")
        self.operation.control_path.mkdir(parents=True)
        self.asked: list[dict[str, Any]] = []
        self.specs: list[Any] = []
        self.answer: Callable[[dict[str, Any], Tell], None] = lambda _data, _tell: None
        self.ends: Outcome | None = None
        self.fails: TunesmithError | None = None

    def conduct(
        self,
        kind: Any,
        spec: Any,
        *,
        on_event: Callable[[Event], object],
        on_created: Callable[[Operation], object] = lambda _operation: None,
        cancel: threading.Event | None = None,
    ) -> Outcome:
        def tell(type_name: str, **data: Any) -> None:
            on_event(Event(1, 0.0, type_name, data))

        self.specs.append(spec)
        if self.fails:
            raise self.fails
        on_created(self.operation)
        tell("phase", name="model")
        tell("warning", message="slow")
        tell("log", text="nothing")
        if kind is ASK:
            self.answer({"sides": spec.sides()}, tell)
            return Outcome(OperationState.FINISHED, 0, {"answers": {}})
        assert kind is CHAT
        assert cancel is not None
        if self.ends:
            return self.ends
        tell("ready", step=3)
        while not cancel.wait(0.005):
            for path in pending_commands(self.operation.control_path):
                command = read_command(path)
                path.unlink()
                assert command is not None
                self.asked.append({"command": command.name, **command.data})
                self.answer({"command": command.name, **command.data}, tell)
        return Outcome(OperationState.STOPPED, 5)


def say_yes(data: dict[str, Any], tell: Tell) -> None:
    for side in data["sides"]:
        tell("piece", side=side, text="Hm", thinking=True)
        tell("piece", side=side, text="Ye", thinking=False)
        tell("piece", side=side, text=f"s, {side}.", thinking=False)
        tell("done", side=side, status="end", tokens=4, first_s=0.25, tokens_per_s=12.5)


@pytest.fixture
def run(home: Path) -> Run:
    (home / "runs").mkdir()
    return make_tiny_run(home / "runs" / "tiny-01")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    result = Engine(tmp_path)
    result.answer = say_yes
    monkeypatch.setattr(cli_chat, "conduct", result.conduct)
    return result


def type_in(monkeypatch: pytest.MonkeyPatch, text: str, *, tty: bool = False) -> None:
    stream = io.StringIO(text)
    monkeypatch.setattr(stream, "isatty", lambda: tty)
    monkeypatch.setattr("sys.stdin", stream)


def test_a_question_is_answered_as_a_stream(run: Run, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ask", "tiny-01", "Who?", "--temperature", "0.5", "--base"]) == EXIT_DONE
    told = capsys.readouterr()
    assert told.out == "Yes, base.\n"
    assert told.err.splitlines() == [
        "Loading the model…",
        "slow",
        "Hm",
        "4 tokens, the first after 0.2 s, 12.5 tokens/s",
    ]
    (spec,) = engine.specs
    assert (spec.run, spec.question, spec.temperature) == (str(run.path), "Who?", 0.5)
    assert spec.chat() == ChatSpec(spec.run, 0, "auto")


def test_both_sides_are_named(run: Run, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.path.is_dir()
    assert engine.asked == []
    assert cli.main(["ask", "tiny-01", "Who?", "--both"]) == EXIT_DONE
    assert capsys.readouterr().out == "Trained model:\nYes, tuned.\nBase model:\nYes, base.\n"


def test_programs_get_every_event(run: Run, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.path.is_dir()
    assert engine.asked == []
    assert cli.main(["ask", "tiny-01", "Who?", "--json"]) == EXIT_DONE
    types = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
    assert types == ["phase", "warning", "log", "piece", "piece", "piece", "done"]


def test_a_setting_out_of_range_is_refused_before_anything_is_loaded(
    run: Run, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.path.is_dir()
    assert cli.main(["ask", "tiny-01", "Who?", "--top-p", "2"]) == 2
    assert cli.main(["chat", "tiny-01", "--top-p", "2"]) == 2
    assert engine.specs == []
    assert "top_p" in capsys.readouterr().err


def test_a_chat_remembers_what_was_said_and_is_kept(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(monkeypatch, "Who?\n\nSure?\n", tty=True)
    assert cli.main(["chat", "tiny-01", "--system", "Be brief."]) == EXIT_DONE
    told = capsys.readouterr()
    assert told.out == "Yes, tuned.\nYes, tuned.\n"
    assert told.err.count("> ") == 4
    assert [message["content"] for message in engine.asked[1]["messages"]["tuned"]] == [
        "Be brief.",
        "Who?",
        "Yes, tuned.",
        "Sure?",
    ]
    (kept,) = conversations.load(run)
    assert [turn.answers["tuned"].text for turn in kept.turns] == ["Yes, tuned.", "Yes, tuned."]
    assert kept.turns[0].answers["tuned"].thinking == "Hm"


def test_an_answer_that_fails_is_told_and_the_chat_goes_on(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.path.is_dir()

    def fail_once(data: dict[str, Any], tell: Tell) -> None:
        engine.answer = lambda _data, tell: tell("done", side="tuned", status="end", tokens=1)
        error = TunesmithError("chat-too-long", "Too long.").to_dict()
        tell("done", side="tuned", status="failed", error=error)

    engine.answer = fail_once
    type_in(monkeypatch, "Who?\nSure?\n")
    assert cli.main(["chat", "tiny-01"]) == EXIT_DONE
    told = capsys.readouterr().err
    assert "error[chat-too-long]" in told
    assert "1 tokens, the first after 0.0 s" in told


def test_a_model_that_is_unloaded_ends_the_chat(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.path.is_dir()
    type_in(monkeypatch, "Who?\n")
    engine.ends = Outcome(OperationState.FINISHED, 0, {"reason": "gpu-needed"})
    assert cli.main(["chat", "tiny-01"]) == EXIT_DONE
    assert "A run needs the GPU" in capsys.readouterr().err
    engine.ends = Outcome(OperationState.FAILED, 2, error=TunesmithError("gpu-busy", "No room."))
    assert cli.main(["chat", "tiny-01"]) == 2
    assert "error[gpu-busy]" in capsys.readouterr().err
    engine.fails = TunesmithError("environment-missing", "None.")
    assert cli.main(["chat", "tiny-01"]) == 3
    assert "error[environment-missing]" in capsys.readouterr().err


def test_a_process_that_ends_under_way_ends_the_chat(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "Who?\nSure?\n")
    talk = cli_chat._Talk(AskSpec(str(run.path), ""), lambda _event: None)
    engine.answer = lambda _data, _tell: talk._news.put(Outcome(OperationState.FAILED, 1))
    talk.converse()
    talk.close()
    assert len(engine.asked) == 1


def test_an_interrupt_stops_the_answer_and_then_the_chat(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.path.is_dir()
    interrupts = iter([KeyboardInterrupt()])

    def answer(data: dict[str, Any], tell: Tell) -> None:
        if data["command"] == "cancel":
            tell("done", side="tuned", status="canceled", tokens=0)

    engine.answer = answer

    class Waiting(cli_chat.queue.Queue):  # type: ignore[type-arg]
        def get(self, *arguments: Any, **named: Any) -> Any:
            while asking and not engine.asked:
                time.sleep(0.005)
            if asking and (error := next(interrupts, None)):
                raise error
            return super().get(*arguments, **named)

    asking: list[bool] = []
    monkeypatch.setattr(cli_chat.queue, "Queue", Waiting)

    class Typed:
        def __init__(self) -> None:
            self.lines = iter(["Who?\n"])

        def isatty(self) -> bool:
            return False

        def readline(self) -> str:
            asking.append(True)
            line = next(self.lines, None)
            if line is None:
                raise KeyboardInterrupt
            return line

    monkeypatch.setattr("sys.stdin", Typed())
    assert cli.main(["chat", "tiny-01"]) == EXIT_DONE
    assert [each["command"] for each in engine.asked] == ["ask", "cancel"]
    assert capsys.readouterr().out == "\n"


def test_an_interrupt_while_the_model_loads_ends_the_chat(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.path.is_dir()

    class Interrupted(cli_chat.queue.Queue):  # type: ignore[type-arg]
        def get(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr(cli_chat.queue, "Queue", Interrupted)
    assert cli.main(["chat", "tiny-01"]) == EXIT_DONE
    assert engine.asked == []
    assert capsys.readouterr().out == ""
