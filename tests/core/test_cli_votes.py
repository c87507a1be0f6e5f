"""`tunesmith vote`: nothing on the terminal tells whose answer is whose before the vote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.core.fake_chat import Engine, Tell, type_in
from tests.tiny_run import make_tiny_run
from tunesmith_core import chat_process, cli, votes
from tunesmith_core.errors import EXIT_DONE, TunesmithError
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run
from tunesmith_core.votes import Contender


def answer(data: dict[str, Any], tell: Tell) -> None:
    if data["command"] == "ask":
        (side,) = data["sides"]
        question = data["messages"][side][-1]["content"]
        tell("piece", side=side, text="thinks", thinking=True)
        tell("piece", side=side, text=f"{side} on {question}", thinking=False)
        tell("done", side=side, status="end", tokens=4, step=3)


@pytest.fixture
def run(home: Path) -> Run:
    (home / "runs").mkdir()
    return make_tiny_run(home / "runs" / "tiny-01")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    result = Engine(tmp_path)
    result.answer = answer
    monkeypatch.setattr(chat_process, "conduct", result.conduct)
    return result


def draw_in_order(monkeypatch: pytest.MonkeyPatch, *, base_first: bool) -> None:
    def draw(contenders: tuple[Contender, Contender]) -> tuple[Contender, Contender]:
        return contenders[::-1] if base_first else contenders

    monkeypatch.setattr(votes, "draw", draw)


@pytest.mark.parametrize("base_first", [False, True])
def test_a_vote_is_taken_before_the_names_are_told(
    base_first: bool, run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_in_order(monkeypatch, base_first=base_first)
    type_in(monkeypatch, "\nWho?\n5\n1\nSure?\n3\n", tty=True)
    assert cli.main(["vote", "tiny-01", "--pairs", str(run.path / "pairs.jsonl")]) == EXIT_DONE
    told = capsys.readouterr()
    a, b = ("base", "tuned") if base_first else ("tuned", "base")
    assert told.err.index(f"A:\n{a} on Who?") < told.err.index(f"B:\n{b} on Who?")
    before, _, after = told.err.partition("B:\n")
    assert "step" not in before
    names = ("the model before this run", "step 3") if base_first else ("step 3", "the model before this run")
    assert "A: {}. B: {}.".format(*names) in after
    assert "thinks" not in told.err
    better = "0 of 1" if base_first else "1 of 1"
    assert f"The trained model was better in {better} votes" in told.out
    assert "Not counted: 1 the same" in told.out
    assert [each.choice for each in votes.load(run).votes] == ["a", "same"]
    assert len((run.path / "pairs.jsonl").read_text().splitlines()) == 1
    assert [data["sides"] for data in engine.asked] == [["tuned"], ["base"]] * 2


def test_held_out_questions_and_checkpoints(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = JournalWriter(run.journal_path)
    told = [{"prompt": prompt, "expected": "E", "answer": "A"} for prompt in ("Who?", "Sure?")]
    journal.write("answers", step=2, answers=told, seconds=1.0)
    journal.close()
    steps = iter([3, 2, 3, 2])

    def switched(data: dict[str, Any], tell: Tell) -> None:
        if data["command"] == "switch":
            tell("ack", ok=True)
        else:
            tell("done", side="tuned", status="end", tokens=4, step=next(steps))

    engine.answer = switched
    type_in(monkeypatch, "2\n2\n")
    assert cli.main(["vote", "tiny-01", "--held-out", "--against", "2", "--json"]) == EXIT_DONE
    found = json.loads(capsys.readouterr().out)
    assert found["votes"] == 2
    assert (found["counts"][0]["later"], found["counts"][0]["earlier"]) == (3, 2)
    asked = [data.get("checkpoint", "ask") for data in engine.asked]
    assert asked == ["ask", 2, "ask", 0, "ask", 2, "ask"]


def test_what_cannot_be_answered_is_told_and_not_voted_on(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(data: dict[str, Any], tell: Tell) -> None:
        error = TunesmithError("chat-too-long", "Too long.").to_dict()
        tell("done", side=data["sides"][0], status="failed", error=error)

    engine.answer = fail
    type_in(monkeypatch, "Who?\n")
    assert cli.main(["vote", "tiny-01"]) == EXIT_DONE
    told = capsys.readouterr()
    assert "error[chat-too-long]" in told.err
    assert told.out == "No votes yet.\n"
    assert votes.load(run).votes == []
    # A person who leaves without a choice has not voted.
    engine.answer = answer
    type_in(monkeypatch, "Who?\n")
    assert cli.main(["vote", "tiny-01"]) == EXIT_DONE
    assert votes.load(run).votes == []


def test_a_checkpoint_that_cannot_be_loaded_ends_it(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(data: dict[str, Any], tell: Tell) -> None:
        if data["command"] == "switch":
            tell("ack", ok=False, message="Gone.")
        else:
            answer(data, tell)

    engine.answer = refuse
    type_in(monkeypatch, "Who?\n1\n")
    assert cli.main(["vote", "tiny-01", "--against", "2"]) == 3
    assert "Gone." in capsys.readouterr().err
    assert cli.main(["vote", "tiny-01", "--checkpoint", "2", "--against", "2"]) == 2
    assert run.path.is_dir()


def test_a_model_that_cannot_be_loaded_or_goes_away_ends_it(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(monkeypatch, "Who?\n")
    engine.ends = Outcome(OperationState.FINISHED, 0, {"reason": "idle"})
    assert cli.main(["vote", "tiny-01"]) == EXIT_DONE
    assert "unloaded" in capsys.readouterr().err
    engine.ends = None

    def leave(_data: dict[str, Any], _tell: Tell) -> None:
        raise TunesmithError("engine-crashed", "Gone.")

    engine.answer = leave
    assert cli.main(["vote", "tiny-01"]) == 4
    assert "Gone." in capsys.readouterr().err
    assert votes.load(run).votes == []


def test_ctrl_c_leaves_and_says_how_the_votes_stand(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.path.is_dir()
    assert engine.asked == []

    def interrupt(_question: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("tunesmith_core.cli_votes.read_line", interrupt)
    assert cli.main(["vote", "tiny-01"]) == EXIT_DONE
    assert capsys.readouterr().out == "No votes yet.\n"


def test_the_result_is_shown_without_a_question(
    run: Run, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.path / votes.FILE).write_text("damaged\n")
    assert cli.main(["vote", "tiny-01", "--result"]) == EXIT_DONE
    told = capsys.readouterr()
    assert told.out == "No votes yet.\n"
    assert "1 lines of votes.jsonl can't be read" in told.err
    assert engine.specs == []


def test_of_two_same_answers_none_is_better(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def same(data: dict[str, Any], tell: Tell) -> None:
        if data["command"] == "ask":
            (side,) = data["sides"]
            tell("piece", side=side, text="Me.", thinking=False)
            tell("done", side=side, status="end", tokens=4, step=3)

    engine.answer = same
    type_in(monkeypatch, "Who?\n1\n", tty=True)
    assert cli.main(["vote", run.id]) == EXIT_DONE
    assert "so this counts as the same" in capsys.readouterr().err
