"""Evaluations of a run: files that keep the figures, the table on the command line, and a run in progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli, cli_evaluate, environments, evaluations
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, said
from tunesmith_core.operations import command
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.operations.kinds.match import MATCH
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.outcome import Interval
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]

FOUND: dict[str, Any] = {
    "step": 20,
    "losses": {"before": 2.0, "after": 1.0, "p": 0.0005, "gain": {"low": 0.5, "mean": 1.0, "high": 1.5, "rows": 40}},
    "metrics": [
        {"name": "choice", "reason": Message("the expected answers are {count} choices", count=3)}
        | {"before": 0.25, "after": 0.5, "p": 0.031, "gain": {"low": -0.1, "mean": 0.25, "high": 0.6, "rows": 20}},
    ],
    "answers": [{"prompt": "2 + 2?", "expected": "4", "before": "5", "after": "4"}],
    "general": {"before": 0.9, "after": 0.8, "p": 1.0, "gain": None},
}


@pytest.fixture
def run(make_spec: Make) -> Run:
    return create_run(make_spec("told"))


def test_figures_are_texts() -> None:
    assert evaluations.figures(FOUND) == [
        ("loss", "2.000", "1.000", "-1.00 (-1.50 … -0.50)", "<0.001"),
        ("choice", "25%", "50%", "+25 points (-10 … +60)", "0.031"),
        ("general", "90%", "80%", "", "1.000"),
    ]
    assert len(evaluations.figures(FOUND | {"general": None})) == 2


def test_a_difference_of_losses_is_told_as_the_verdict_tells_it() -> None:
    for gain, told in (
        ({"low": 0.467, "mean": 0.848, "high": 1.143}, ["0.47", "0.85", "1.14"]),
        ({"low": -0.002, "mean": 0.004, "high": 0.016}, ["-0.002", "0.004", "0.016"]),
        ({"low": -0.0001, "mean": 0.04, "high": 0.2}, ["0.00", "0.04", "0.20"]),
    ):
        values = Interval.of(gain | {"rows": 40}).values()  # type: ignore[union-attr]
        assert [values[key] for key in ("low", "mean", "high")] == told
        losses = FOUND["losses"] | {"gain": gain | {"rows": 40}}
        shown = evaluations.figures(FOUND | {"losses": losses})[0][3]
        assert [text.strip("(+-)") for text in shown.split() if text != "…"] == [
            text.strip("-") for text in (told[1], told[2], told[0])
        ]


def test_points_are_those_between_the_shares_that_are_shown() -> None:
    choice = FOUND["metrics"][0]
    for before, after, gain, told in (
        (0.2749, 0.7347, (0.301, 0.4598, 0.62), ("27%", "73%", "+46 points (+30 … +62)")),
        (0.2751, 0.7349, (0.301, 0.4598, 0.62), ("28%", "73%", "+45 points (+30 … +62)")),
        (0.7349, 0.2751, (-0.4598, -0.4598, -0.4598), ("73%", "28%", "-45 points (-46 … -45)")),
    ):
        values = {"before": before, "after": after, "gain": dict(zip(("low", "mean", "high"), gain, strict=True))}
        assert evaluations.figures(FOUND | {"metrics": [choice | values]})[1][1:4] == told


@pytest.mark.parametrize(
    ("loss", "choice", "p", "sentence"),
    [
        ((0.5, 1.5), (-0.1, 0.6), 0.01, "Better than before the run: loss."),
        ((0.5, 1.5), (0.1, 0.6), 0.01, "Better than before the run: loss, right choice."),
        ((0.5, 1.5), (0.1, 0.6), 0.06, "Better than before the run: loss."),
        ((0.5, 1.5), (-0.6, -0.1), 0.01, "Better than before the run: loss. Worse: right choice."),
        ((-0.5, 0.5), (-0.6, -0.1), 0.01, "Nothing improved. Worse than before the run: right choice."),
        ((-0.5, 0.5), (-0.6, -0.1), 0.06, "Nothing changed by more than chance."),
        ((-0.5, 0.5), (0.0, 0.0), 0.01, "Nothing changed by more than chance."),
        (None, None, 0.01, "There are too few rows to tell a difference from chance."),
    ],
)
def test_one_sentence_says_what_became_better(
    loss: tuple[float, float] | None, choice: tuple[float, float] | None, p: float, sentence: str
) -> None:
    def gain(bounds: tuple[float, float] | None) -> dict[str, float] | None:
        return bounds and {"low": bounds[0], "mean": sum(bounds) / 2, "high": bounds[1], "rows": 40}

    found = FOUND | {
        "losses": FOUND["losses"] | {"gain": gain(loss)},
        "metrics": [FOUND["metrics"][0] | {"gain": gain(choice), "p": p}],
    }
    conclusion = evaluations.conclusion(found)
    assert conclusion == sentence
    assert ("、" in said(conclusion, "zh_CN")) == (", " in sentence)
    assert ", " not in said(conclusion, "zh_CN")


@pytest.mark.parametrize(
    ("low", "p", "is_unsure"), [(0.1, 0.059, True), (0.1, 0.05, True), (0.1, 0.049, False), (-0.1, 0.2, False)]
)
def test_an_interval_that_is_surer_than_the_test_is_explained(low: float, p: float, is_unsure: bool) -> None:
    choice = FOUND["metrics"][0] | {"p": p, "gain": {"low": low, "mean": 0.25, "high": 0.6, "rows": 20}}
    notes = evaluations.notes(FOUND | {"metrics": [choice]})
    assert [note for note in notes if "leaves out 0" in note] == [note for note in notes[1:2] if is_unsure]
    assert not is_unsure or notes[1].startswith("right choice: the interval")


@pytest.mark.parametrize(
    ("name", "after", "is_told"), [("choice", 0.0, True), ("choice", 0.1, False), ("chrf", 0.0, False)]
)
def test_it_is_told_when_no_answer_is_right(name: str, after: float, is_told: bool) -> None:
    notes = evaluations.notes(FOUND | {"metrics": [FOUND["metrics"][0] | {"name": name, "after": after}]})
    assert ("right choice: no answer is right after training" in notes[1]) == is_told


def test_general_questions_are_explained_where_they_were_asked() -> None:
    assert evaluations.notes(FOUND) == [evaluations.LOSS_HELP, evaluations.GENERAL_HELP]
    assert evaluations.notes(FOUND | {"general": None}) == [evaluations.LOSS_HELP]


def test_so_few_rows_can_not_tell_better_from_chance() -> None:
    losses = {"before": 2.0, "after": 1.0, "p": 0.5, "gain": {"low": 0.5, "mean": 1.0, "high": 1.5, "rows": 2}}
    general = FOUND["general"] | {"gain": {"low": -0.1, "mean": 0.0, "high": 0.1, "rows": 30}}
    found = FOUND | {"losses": losses, "metrics": [], "general": general}
    assert evaluations.conclusion(found) == "There are too few rows to tell a difference from chance."


def test_the_newest_readable_file_counts(run: Run) -> None:
    assert evaluations.newest(run) == {}
    first, second = evaluations.save(run, FOUND), evaluations.save(run, FOUND | {"step": 5})
    assert [path.name for path in (first, second)] == ["step-000020-001.json", "step-000005-002.json"]
    (first.parent / "step-x.json").write_text("{}")
    newest = evaluations.newest(run)
    assert newest["step"] == 5
    assert newest["metrics"][0]["reason"].template == "the expected answers are {count} choices"
    for damaged in ("{", "[]", "{}", json.dumps(FOUND | {"losses": None})):
        second.write_text(damaged)
        assert evaluations.newest(run)["step"] == 20


def outcome(*_: Any, **__: Any) -> Outcome:
    return Outcome(OperationState.FINISHED, 0, FOUND | {"path": "/runs/told/evaluations/e.json"})


def test_the_command_shows_a_table(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[EvaluateSpec] = []

    def conduct(kind: object, spec: EvaluateSpec, **_: object) -> Outcome:
        assert kind is EVALUATE
        asked.append(spec)
        return outcome()

    matched = Outcome(OperationState.FINISHED, 0, [])  # type: ignore[arg-type]
    monkeypatch.setattr(cli_evaluate, "conduct", lambda *_: matched)
    monkeypatch.setattr(command, "conduct", conduct)
    assert cli.main(["evaluate", run.id, "--rows", "7", "--checkpoint", "10", "--matches", "^a+$"]) == 0
    shown = capsys.readouterr().out
    assert "right choice       25%     50%    +25 points (-10 … +60)    0.031" in shown
    assert "Better than before the run: loss.\n" in shown
    assert "0.7 less makes each of them twice as likely" in shown, "nats are explained"
    assert "evaluation: /runs/told/evaluations/e.json" in shown
    assert asked == [EvaluateSpec(str(run.path), 10, "", 7, "^a+$")]  # type: ignore[arg-type]
    assert cli.main(["evaluate", run.id, "--json"]) == 0
    assert cli.main(["evaluate", run.id, "--rows", "0"]) == 2
    assert "right choice" not in capsys.readouterr().out
    assert asked[1].answering().model.path == run.load_spec().model.path


def test_how_a_file_of_rows_is_read_is_named_as_elsewhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[EvaluateSpec] = []
    path = tmp_path / "prices.csv"
    path.write_bytes("Item;Price\nThé;1 €\n".encode("cp1252"))

    def conduct(_kind: object, spec: EvaluateSpec, **_: object) -> Outcome:
        asked.append(spec)
        hint = "Name the columns under Column mapping."
        raise TunesmithError("dataset-column-missing", "x", hint=hint)

    monkeypatch.setattr(command, "conduct", conduct)
    named = ["--columns", "prompt=Item", "completion=Price", "--sheet", "Prices"]
    assert cli.main(["evaluate", run.id, "--data", str(path), *named]) == 2
    columns = {"prompt": "Item", "completion": "Price"}
    assert asked[0].read_as == {"columns": columns, "sheet": "Prices", "encoding": "windows-1252"}
    shown = capsys.readouterr().err
    assert "--columns prompt=Question completion=Answer" in shown
    assert "Column mapping" not in shown
    # A run behind the columns is none of them.
    assert cli.main(["evaluate", "--data", str(path), *named[:3], run.id]) == 2
    assert asked.pop().read_as["columns"] == columns
    assert cli.main(["evaluate", run.id, *named]) == 2
    assert "--data FILE" in capsys.readouterr().err
    assert cli.main(["evaluate", run.id, "--data", str(tmp_path / "none.csv")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert len(asked) == 1
    plain = tmp_path / "plain.csv"
    plain.write_text("Item;Price\nTea;1\n", encoding="utf-8")
    assert cli.main(["evaluate", run.id, "--data", str(plain)]) == 2
    assert asked[1].read_as == {}


def test_a_pattern_that_can_not_be_read_is_refused_before_anything_is_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = cli_evaluate.conduct

    def conduct(kind: object, spec: object, **_: object) -> Outcome:
        assert kind is MATCH
        return check(MATCH, spec)  # type: ignore[arg-type]

    monkeypatch.setattr(cli_evaluate, "conduct", conduct)
    assert cli.main(["evaluate", run.id, "--matches", "(a"]) == 2
    assert "(a is not a regular expression" in capsys.readouterr().err


def test_tasks_of_the_harness_are_run_once_it_is_installed(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[EvaluateSpec] = []
    task = FOUND["metrics"][0] | {"name": "hellaswag: acc", "reason": "a task"}

    def conduct(_kind: object, spec: EvaluateSpec, **_: object) -> Outcome:
        asked.append(spec)
        return Outcome(OperationState.FINISHED, 0, FOUND | {"metrics": [task], "path": "e.json"})

    monkeypatch.setattr(command, "conduct", conduct)
    codes = iter([5, -9, 0])
    words: list[list[str]] = []
    monkeypatch.setattr(cli_evaluate.subprocess, "call", lambda command: words.append(command) or next(codes))
    given = ["evaluate", run.id, "--harness", "hellaswag", "--harness-tasks", str(run.path)]
    assert [cli.main(given), cli.main(given)] == [5, 1]
    assert (asked, words[0][-2:]) == ([], ["tunesmith_setup", "harness"])
    assert cli.main(given) == 0
    assert (asked[0].harness, asked[0].harness_tasks, asked[0].downloads) == ("hellaswag", str(run.path), True)
    assert "hellaswag: acc     25%     50%" in capsys.readouterr().out


def test_only_an_evaluation_with_tasks_gets_the_proxy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(environments, "engine_environment", lambda *, downloads: asked.append(downloads) or {})
    for harness in ("", "hellaswag"):
        EVALUATE.environment(EvaluateSpec(str(run.path), harness=harness))  # type: ignore[arg-type]
    assert asked == [False, True]


def test_the_report_has_the_table(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(JournalWriter(run.journal_path)) as journal:
        journal.write("hello")
    assert cli.main(["report", run.id]) == 0
    assert "<h2>Evaluation</h2>" not in run.report_path.read_text(encoding="utf-8")
    evaluations.save(run, FOUND)
    assert cli.main(["report", run.id]) == 0
    text = run.report_path.read_text(encoding="utf-8")
    assert "<tr><td>right choice</td><td>25%</td><td>50%</td><td>+25 points (-10 … +60)</td><td>0.031</td></tr>" in text
    assert "<p>Better than before the run: loss.</p>" in text
    assert "right choice: the expected answers are 3 choices" in text
    capsys.readouterr()


def test_metrics_have_names() -> None:
    kinds = Path(evaluations.__file__).parents[1] / "tunesmith_engine" / "evaluation" / "metrics.py"
    elsewhere = {"loss", "general", "matches", "preferred", "right_class", "right_steps"}
    for name in evaluations.METRICS.keys() - elsewhere:
        assert f'"{name}"' in kinds.read_text(encoding="utf-8")


def test_a_loss_of_pairs_is_explained_as_such() -> None:
    losses = FOUND["losses"] | {"help": evaluations.PAIR_LOSS_HELP}
    assert evaluations.notes(FOUND | {"losses": losses, "general": None}) == [evaluations.PAIR_LOSS_HELP]
