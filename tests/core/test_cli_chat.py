"""`tunesmith ask` and `tunesmith chat`: text streams to standard output, everything else goes to standard error."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.core.fake_chat import Engine, Tell, say_yes, type_in
from tests.tiny_run import make_tiny_run
from tunesmith_core import chat_process, cli, cli_chat, conversations
from tunesmith_core.errors import EXIT_DONE, TunesmithError, UserError
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.chat import AskSpec, ChatSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.runs import Run


@pytest.fixture
def run(home: Path) -> Run:
    (home / "runs").mkdir()
    return make_tiny_run(home / "runs" / "tiny-01")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    result = Engine(tmp_path)
    result.answer = say_yes
    for module in (cli_chat, chat_process):
        monkeypatch.setattr(module, "conduct", result.conduct)
    return result


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


@pytest.mark.parametrize("question", ["", " \n"])
def test_an_empty_question_is_refused(
    question: str, run: Run, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", run.id, question]) == UserError.exit_code
    assert "The question is empty." in capsys.readouterr().err
    assert engine.specs == []


def test_both_sides_are_named(run: Run, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.path.is_dir()
    assert engine.asked == []
    assert cli.main(["ask", "tiny-01", "Who?", "--both"]) == EXIT_DONE
    assert capsys.readouterr().out == "Trained model:\nYes, tuned.\nBefore this run:\nYes, base.\n"


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
    engine.answer = lambda _data, _tell: talk._process._news.put(Outcome(OperationState.FAILED, 1))
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

    class Waiting(chat_process.queue.Queue):  # type: ignore[type-arg]
        def get(self, *arguments: Any, **named: Any) -> Any:
            while asking and not engine.asked:
                time.sleep(0.005)
            if asking and (error := next(interrupts, None)):
                raise error
            return super().get(*arguments, **named)

    asking: list[bool] = []
    monkeypatch.setattr(chat_process.queue, "Queue", Waiting)

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

    class Interrupted(chat_process.queue.Queue):  # type: ignore[type-arg]
        def get(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr(chat_process.queue, "Queue", Interrupted)
    assert cli.main(["chat", "tiny-01"]) == EXIT_DONE
    assert engine.asked == []
    assert capsys.readouterr().out == ""
