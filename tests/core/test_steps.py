"""Solutions in steps: how their rows are read, what is refused, and what is said of a run that learned them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_sorting import SETUP
from tests.tiny_run import make_tiny_run
from tunesmith_core import datafmt, evaluations, sorting
from tunesmith_core.datafmt import Stepped
from tunesmith_core.errors import UserError
from tunesmith_core.protocol import Event
from tunesmith_core.report.facts import Facts, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.spec import RunSpec, usual_format
from tunesmith_core.verdict import Measured, Outcome, judge

STEPS = (
    {"step_accuracy": 0.5, "macro_f1": 0.4, "calibration_error": 0.1},
    {"step_accuracy": 0.92, "macro_f1": 0.85, "calibration_error": 0.04},
)


def read(row: dict[str, Any]) -> datafmt.Conversation:
    layout = datafmt.resolve_layout([row], "steps", {}, "a.jsonl")
    return datafmt.to_messages(row, layout, "a.jsonl, line 1")


@pytest.mark.parametrize("labels", [[True, False], [1, 0], ["+", "-"], ["True", "false"], "[true, false]"])
def test_labels_are_read_as_they_are_in_use(labels: object) -> None:
    row = {"prompt": "2 + 2?", "completions": ["It is 4.", "Or 5."], "labels": labels}
    assert read(row) == Stepped("2 + 2?", ("It is 4.", "Or 5."), (True, False))


def test_columns_of_other_names_are_taken() -> None:
    row = {"problem": "2 + 2?", "steps": ["4"], "ratings": [1]}
    assert read(row) == Stepped("2 + 2?", ("4",), (True,))
    layout = datafmt.resolve_layout([row], "steps", {}, "a.jsonl")
    words = datafmt.recognition(layout, [row])
    assert 'the column "problem" holds the problem, "steps" the steps' in str(words)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"completions": "It is 4."}, 'column "completions": must be a list of texts, the steps'),
        ({"completions": ["It is 4.", " "]}, "must be a list of texts"),
        ({"completions": []}, "is empty"),
        ({"labels": True}, 'column "labels": must be a list of true or false'),
        ({"labels": ["good", "bad"]}, "must be a list of true or false"),
        ({"labels": [0.5, 1]}, "must be a list of true or false"),
        ({"labels": [True]}, "must have one label for each step. Labels: 1, steps: 2"),
        ({"prompt": " "}, 'column "prompt": is empty'),
    ],
)
def test_wrong_rows_are_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read({"prompt": "2 + 2?", "completions": ["It is 4.", "So 4."], "labels": [True, True]} | changed)


def test_rows_are_never_guessed_to_be_steps_and_read_as_such_where_they_are_learned() -> None:
    row = {"prompt": "2 + 2?", "completion": "4", "completions": ["4"], "labels": [True]}
    assert datafmt.resolve_layout([row], "auto", {}, "a.jsonl").format != "steps"
    assert (usual_format("prm"), usual_format("classify"), usual_format("sft")) == ("steps", "labeled", "auto")
    values: dict[str, Any] = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d.jsonl"}]}}
    assert RunSpec.from_dict(values | {"objective": {"kind": "prm"}}).data.sources[0].format == "steps"


@pytest.mark.parametrize(
    ("kind", "format_name", "words"),
    [("prm", "text", "must be Solution steps with labels"), ("sft", "steps", "only a process reward model")],
)
def test_what_does_not_go_together_is_named(kind: str, format_name: str, words: str) -> None:
    values = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d.csv", "format": format_name}]}}
    with pytest.raises(UserError, match=words):
        RunSpec.from_dict(values | {"objective": {"kind": kind}})


def test_a_verdict_and_a_report_tell_of_steps(tmp_path: Any) -> None:
    verdict = judge(Measured({0: 0.7, 10: 0.2}, {}, SETUP, labels={0: STEPS[0], 10: STEPS[1]}))
    assert verdict.outcome is Outcome.MUCH
    assert "92% of the steps in held-out solutions are judged rightly (before training: 50%)" in verdict.sentence
    facts = Facts()
    for step, numbers in zip((0, 10), STEPS, strict=True):
        facts.fold(Event(step, 0.0, "eval", {"step": step, "loss": 0.7 - step / 20, **numbers}))
    run = make_tiny_run(tmp_path / "run")
    values: dict[str, Any] = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d.jsonl"}]}}
    spec = RunSpec.from_dict(values | {"objective": {"kind": "prm"}})
    html = page(run, spec, facts, verdict_on(facts))
    assert "<th>Right steps</th>" in html
    assert "<td>92%</td>" in html
    assert "per step" in evaluations.loss_help(spec.objective)
    assert sorting.shown(STEPS[1]) == ["92%", "0.85", "0.04"]
