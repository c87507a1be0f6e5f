"""Blind votes: drawn by chance, kept whatever happens, and counted once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_adapter_folders import write_adapter
from tests.tiny_run import make_tiny_run
from tunesmith_core import cli, datafmt, files, votes
from tunesmith_core.errors import TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_core.protocol import Event, JournalWriter
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.votes import BASE_MODEL, CHOICES, Contender, Contest, Given, Kept, Vote

TUNED_MODEL = Contender()
PROMPT = [{"role": "user", "content": "Who?"}]


@pytest.fixture
def run(home: Path) -> Run:
    (home / "runs").mkdir()
    return make_tiny_run(home / "runs" / "tiny-01")


def vote(choice: str = "a", question: str = "Who?", a: int = 60, b: int = 0, words: str = "Me.") -> Vote:
    return Vote(votes.prompt(question, ""), Given(a, words), Given(b, "You."), choice, 1.8e9)


def piece(text: str, **data: Any) -> Event:
    return Event(1, 0.0, "piece", {"text": text, **data})


def done(**data: Any) -> Event:
    return Event(1, 0.0, "done", {"status": "end", "tokens": 2, "step": 60, **data})


def answered(contest: Contest) -> Contest:
    for words in ("from the first", "from the second"):
        contest.take(piece("Hm.", thinking=True))
        contest.take(piece(words))
        contest.take(done())
    return contest


def test_who_is_a_is_drawn_for_every_question() -> None:
    places = set()
    for _ in range(200):
        contest = answered(Contest(PROMPT, (TUNED_MODEL, BASE_MODEL)))
        a, b = contest.shown()
        assert {(a.step, a.text), (b.step, b.text)} == {(60, "from the first"), (0, "from the second")}
        places.add(a.step)
    assert places == {0, 60}


def test_a_question_without_two_whole_answers_is_not_voted_on() -> None:
    contest = Contest(PROMPT, (TUNED_MODEL, BASE_MODEL))
    assert not contest.is_over
    contest.take(done(status="canceled"))
    assert not contest.is_over
    contest.take(done())
    assert contest.is_over
    assert not contest.is_answered
    contest.take(done())
    failed = Contest(PROMPT, (TUNED_MODEL, BASE_MODEL))
    failed.take(done(status="failed", error=TunesmithError("chat-too-long", "Too long.").to_dict()))
    failed.take(done())
    assert not failed.is_answered
    assert failed.error is not None
    assert failed.error.code == "chat-too-long"


def test_the_same_weights_are_not_compared_with_themselves() -> None:
    contest = answered(Contest(PROMPT, (TUNED_MODEL, Contender(checkpoint=60))))
    assert not contest.is_answered
    assert contest.error is not None
    assert "step 60" in contest.error.message


def test_votes_are_kept_one_after_another_beside_lines_that_cannot_be_read(run: Run) -> None:
    assert votes.load(run) == Kept()
    cast = vote("b")
    votes.save(run, cast)
    path = run.path / votes.FILE
    damaged = [
        b"{", b"[]", b"3", b"\xff", b"{}", b'{"version": 2}',
        *(json.dumps(values).encode() for values in _foreign(path.read_bytes())),
    ]  # fmt: skip
    path.write_bytes(path.read_bytes() + b"\n".join(damaged))
    other = answered(Contest(votes.prompt("Sure?", "Be brief."), (TUNED_MODEL, BASE_MODEL))).vote("same")
    votes.save(run, other)
    kept = votes.load(run)
    assert kept == Kept([cast, other], len(damaged))
    told = f"{len(damaged)} lines of votes.jsonl can't be read and are not counted. They stay in the file."
    assert kept.warning == told
    assert all(line in path.read_bytes() for line in damaged)
    assert kept.to_dict()["unreadable"] == len(damaged)


def _foreign(line: bytes) -> list[dict[str, Any]]:
    good = json.loads(line)
    return [
        good | change
        for change in (
            {"choice": "c"}, {"at": "now"}, {"prompt": []}, {"prompt": [{"role": "user"}]}, {"prompt": 3},
            {"b": good["a"]},
            {"a": {"step": -1, "text": "Me."}}, {"a": {"step": True, "text": "Me."}}, {"a": {"step": 1, "text": 3}},
            {"prompt": [{"role": "user", "content": None}]},
        )
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_or_written_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (run.path / votes.FILE).mkdir()
    with pytest.raises(TunesmithError):
        votes.load(run)
    with pytest.raises(TunesmithError):
        votes.save(run, vote())
    with pytest.raises(TunesmithError):
        votes.save_pairs(run.path / "missing" / "pairs.jsonl", Kept([vote()]))
    monkeypatch.setattr(votes, "LOCK_PATIENCE_S", 0.0)
    (run.path / votes.FILE).rmdir()
    with FileLock(votes.paths.locks_dir() / "votes.lock"), pytest.raises(TunesmithError):
        votes.save(run, vote())
    votes.save(run, vote())
    assert len(votes.load(run).votes) == 1


def test_a_crash_while_a_vote_is_written_keeps_those_before(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    votes.save(run, vote())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "replace", fail)
    with pytest.raises(TunesmithError):
        votes.save(run, vote("b", "Sure?"))
    assert len(votes.load(run).votes) == 1


def test_votes_are_counted_by_the_two_that_were_compared() -> None:
    cast = [vote(choice, f"Question {number}") for number, choice in enumerate(["a", "a", "b", "same", "bad"])]
    # The same two in the other order, and two checkpoints.
    cast += [Vote(PROMPT, Given(0, "You."), Given(60, "Me."), "a"), vote("b", a=20, b=60)]
    checkpoints, base = sorted(Kept(cast).counts(), key=lambda count: count.num_votes)
    assert (base.later, base.earlier, base.better, base.worse, base.same, base.bad) == (60, 0, 2, 2, 1, 1)
    assert (checkpoints.later, checkpoints.earlier, checkpoints.better, checkpoints.worse) == (60, 20, 1, 0)
    assert Kept(cast).counts()[0].earlier == 0
    assert Kept(cast).to_dict()["counts"][0]["better"] == 2
    assert Kept(cast).warning is None


def test_the_last_vote_on_the_same_answers_counts() -> None:
    again = Vote(PROMPT, Given(0, "You."), Given(60, "Me."), "a")
    (count,) = Kept([vote("a"), vote("a"), again]).counts()
    assert (count.better, count.worse) == (0, 1)
    (count,) = Kept([vote("a"), vote("a", words="Another answer.")]).counts()
    assert count.better == 2


def test_a_vote_for_one_of_two_same_answers_says_how_it_counts() -> None:
    assert vote("a", words="You.").note == "Both answers are the same word for word, so this counts as the same."
    assert [vote("same", words="You.").note, vote("bad", words="You.").note, vote("b").note] == [None] * 3


def test_of_answers_that_read_the_same_none_is_better() -> None:
    (count,) = Kept([vote("a", words="You."), vote("bad", "Sure?", words="You.")]).counts()
    assert (count.better, count.worse, count.same, count.bad) == (0, 0, 1, 1)


def test_preferred_answers_become_preference_pairs(run: Run) -> None:
    cast = [vote("a"), vote("b", "Sure?"), vote("same", "Well?"), vote("bad", "Hm?"), vote("a", "Same?", words="You.")]
    path = run.path / "pairs.jsonl"
    assert votes.save_pairs(path, Kept(cast)) == 2
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == {
        "prompt": [{"role": "user", "content": "Who?"}],
        "chosen": [{"role": "assistant", "content": "Me."}],
        "rejected": [{"role": "assistant", "content": "You."}],
    }
    assert second["chosen"][0]["content"] == "You."


def test_held_out_questions_are_those_that_the_run_asked(run: Run) -> None:
    assert votes.held_out_questions(run) == []
    journal = JournalWriter(run.journal_path)
    told = [{"prompt": prompt, "expected": "E", "answer": "A"} for prompt in ("Who?", "", "Sure?")]
    for step in (0, 2):
        journal.write("answers", step=step, answers=told, seconds=1.0)
    journal.close()
    assert votes.held_out_questions(run) == ["Who?", "Sure?"]
    assert len(CHOICES) == 4


def test_the_report_tells_how_the_votes_stand(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "tiny-01"]) == 0
    assert "Blind votes" not in run.report_path.read_text()
    votes.save(run, vote())
    with (run.path / votes.FILE).open("a") as file:
        file.write("damaged\n")
    assert cli.main(["report", "tiny-01"]) == 0
    page = run.report_path.read_text()
    assert "<h3>Votes on step 60 and the model before this run</h3>" in page
    assert "The trained model was better in 1 of 1 votes" in page
    assert "1 lines of votes.jsonl can&#x27;t be read" in page
    assert capsys.readouterr().err == ""


def test_votes_become_a_run_that_learns_from_them(run: Run, home: Path) -> None:
    spec = votes.spec_to_train(run, Kept([vote("a"), vote("bad", "Hm?"), vote("b", "How?")]))
    (source,) = spec.data.sources
    assert (spec.objective.kind, source.format, spec.problems()) == ("dpo", "preference", [])
    assert (spec.model, spec.adapter) == (run.load_spec().model, run.load_spec().adapter)
    assert spec.adapter.start_from == "", "the folder holds no adapter that can be continued"
    path = Path(source.path)
    assert path == home / "votes" / "tiny-01-2.jsonl"
    assert datafmt.check_head(source, in_pairs=True) == (2, 0)
    before = path.read_bytes()
    more = votes.spec_to_train(run, Kept([vote("a"), vote("b", "How?"), vote("a", "Why?")]))
    assert (more.data.sources[0].path != source.path, path.read_bytes() == before) == (True, True)


def test_who_trains_on_votes_continues_the_adapter_that_was_voted_on(run: Run) -> None:
    write_adapter(run.adapter_path, rank=4)
    spec = votes.spec_to_train(run, Kept([vote("a")]))
    assert (spec.adapter.start_from, spec.adapter.rank) == (str(run.adapter_path), 4)
    assert spec.problems() == []


def test_few_votes_are_told() -> None:
    many = [vote("a", f"Question {number}?") for number in range(21)]
    assert "One vote teaches the model next to nothing." in (votes.too_few(Kept(many[:1])) or "")
    assert "20 votes teach the model little." in (votes.too_few(Kept(many[:20])) or "")
    assert votes.too_few(Kept(many)) is None


def test_votes_without_a_preference_are_no_run(run: Run, home: Path) -> None:
    with pytest.raises(TunesmithError, match="No vote prefers an answer yet"):
        votes.spec_to_train(run, Kept([vote("same")]))
    (home / "votes").write_text("in the way")
    with pytest.raises(TunesmithError):
        votes.spec_to_train(run, Kept([vote("a")]))


def test_the_command_writes_settings_to_train_with(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    votes.save(run, vote("a"))
    target = run.path / "spec-of-votes.json"
    assert cli.main(["vote", "tiny-01", "--result", "--spec", str(target)]) == 0
    told = capsys.readouterr().err
    assert f"To train on these votes: tunesmith train {target}" in told
    assert "One vote teaches the model next to nothing." in told
    assert RunSpec.from_dict(files.read_json(target)).objective.kind == "dpo"
    assert cli.main(["vote", "tiny-01", "--result", "--spec", str(run.path / "missing" / "a.json")]) != 0
    for number in range(20):
        votes.save(run, vote("a", f"Question {number}?"))
    assert cli.main(["vote", "tiny-01", "--result", "--spec", str(target)]) == 0
    assert "teach" not in capsys.readouterr().err
