"""Texts with labels: how their rows are read, what is refused, and what is said of a run that learned them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tiny_run import make_tiny_run
from tunesmith_core import datafmt, evaluations, sorting
from tunesmith_core.datafmt.held import held_label, number_of
from tunesmith_core.errors import UserError
from tunesmith_core.protocol import Event
from tunesmith_core.report.facts import Facts, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.spec import RunSpec
from tunesmith_core.verdict import Measured, Outcome, judge

SETUP = {"num_train_rows": 1000, "num_distinct_rows": 990, "num_eval_rows": 50, "steps_per_epoch": 10}
CLASSES = (
    {"accuracy": 0.3, "macro_f1": 0.2, "calibration_error": 0.1},
    {"accuracy": 0.9, "macro_f1": 0.85, "calibration_error": 0.04},
)
NUMBERS = ({"rmse": 2.0, "correlation": 0.0}, {"rmse": 0.5, "correlation": 0.91})


def spec_of(**objective: Any) -> RunSpec:
    values: dict[str, Any] = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d.csv"}]}}
    return RunSpec.from_dict(values | {"objective": {"kind": "classify", **objective}})


def test_rows_are_read_as_texts_with_labels_without_being_told() -> None:
    assert spec_of().data.sources[0].format == "labeled"


@pytest.mark.parametrize(
    ("kind", "format_name", "objective", "words"),
    [
        ("classify", "text", {}, "must be Text with label"),
        ("sft", "labeled", {}, "only the objective Classes or numbers"),
        ("classify", "auto", {"classes": ["a"]}, "at least two different names"),
        ("classify", "auto", {"classes": ["a", "a"]}, "at least two different names"),
        ("classify", "auto", {"classes": ["a", "b"], "regression": True}, "must be empty where labels are numbers"),
    ],
)
def test_what_does_not_go_together_is_named(
    kind: str, format_name: str, objective: dict[str, Any], words: str
) -> None:
    values = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d.csv", "format": format_name}]}}
    with pytest.raises(UserError, match=words):
        RunSpec.from_dict(values | {"objective": {"kind": kind, **objective}})


def read(row: dict[str, Any]) -> datafmt.Conversation:
    layout = datafmt.resolve_layout([row], "labeled", {}, "a.jsonl")
    return datafmt.to_messages(row, layout, "a.jsonl, line 1")


def test_a_row_is_a_text_or_an_answer_with_its_question() -> None:
    assert read({"sentence": "Hi", "category": 3}) == datafmt.Labeled(datafmt.Text("Hi"), "3")
    asked = read({"prompt": "Why?", "answer": "So.", "label": True})
    assert asked == datafmt.Labeled(datafmt.PromptCompletion("Why?", "So."), "true")
    layout = datafmt.resolve_layout([{"sentence": "Hi", "category": 3}], "labeled", {}, "a.jsonl")
    assert datafmt.recognition(layout) == (
        'Text with label: the column "sentence" is read, and "category" says its class or its number.'
    )
    with pytest.raises(UserError, match='column "label": must hold a single label'):
        read({"text": "Hi", "label": ["a", "b"]})


def test_rows_with_labels_are_never_guessed() -> None:
    assert datafmt.resolve_layout([{"text": "Hi", "label": "good"}], "auto", {}, "a.jsonl").format == "text"


def test_labels_are_texts_and_some_are_numbers() -> None:
    assert [held_label(value) for value in (" a ", 1.5, False, None, {})] == ["a", "1.5", "false", "", ""]
    assert [number_of(label) for label in ("1.5", "a", "nan")] == [1.5, None, None]


def measured(losses: dict[int, float], labels: tuple[dict[str, float], ...]) -> Measured:
    return Measured(losses, setup=SETUP, labels=dict(zip(losses, labels, strict=True)))


def test_an_improvement_is_told_in_texts_that_are_sorted_rightly() -> None:
    verdict = judge(measured({0: 1.1, 10: 0.3}, CLASSES))
    assert verdict.outcome is Outcome.MUCH
    assert verdict.sentence == (
        "Improved a lot. 90% of the held-out texts are sorted into the right class (before training: 30%)."
    )
    assert verdict.evidence == (
        "Macro F1, in which every class counts the same, is 0.85. The model's confidence is off by 4% on average "
        "(calibration error)."
    )
    assert verdict.advice == "Try it on texts that are not among the rows before you rely on it."
    little = judge(measured({0: 1.1, 10: 1.05}, CLASSES))
    assert little.sentence.startswith("Improved a little. 90% of the held-out texts")
    nothing = judge(measured({0: 1.1, 10: 1.1}, CLASSES))
    assert "90% of the held-out texts" in nothing.evidence


def test_numbers_are_told_by_how_far_they_are_off() -> None:
    verdict = judge(measured({0: 4.0, 10: 0.25}, NUMBERS))
    assert verdict.sentence == "Improved a lot. Held-out numbers are off by 0.5 on average (RMSE; before training: 2)."
    assert verdict.evidence == "The correlation with the right numbers is 0.91."
    assert sorting.Sorting.of({0: NUMBERS[0], 10: {"rmse": 0.5}}) is None


STEPS = {"step_accuracy": 0.28, "macro_f1": 0.217, "calibration_error": 0.3}


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (STEPS, STEPS | {"calibration_error": 0.1}, Outcome.NOTHING),
        (STEPS, STEPS | {"step_accuracy": 0.3}, Outcome.MUCH),
        (STEPS, STEPS | {"macro_f1": 0.4}, Outcome.MUCH),
        (CLASSES[0], CLASSES[0] | {"accuracy": 0.2}, Outcome.NOTHING),
        (CLASSES[0] | {"accuracy": 1.0}, CLASSES[0] | {"accuracy": 1.0}, Outcome.MUCH),
        (NUMBERS[1], NUMBERS[1] | {"rmse": 0.6}, Outcome.NOTHING),
        (NUMBERS[0], NUMBERS[1], Outcome.MUCH),
    ],
)
def test_a_lower_loss_without_more_right_labels_is_no_improvement(
    before: dict[str, float], after: dict[str, float], outcome: Outcome
) -> None:
    verdict = judge(Measured({0: 1.4, 10: 0.98}, setup=SETUP, labels={0: before, 10: after}))
    assert verdict.outcome is outcome
    if outcome is Outcome.NOTHING:
        assert "although the held-out loss fell from 1.400 to 0.980" in verdict.sentence


def test_a_loss_is_explained_by_its_objective() -> None:
    assert evaluations.loss_help(spec_of().objective) == sorting.CLASS_LOSS_HELP
    assert evaluations.loss_help(spec_of(regression=True).objective) == sorting.NUMBER_LOSS_HELP
    assert evaluations.loss_help(RunSpec().objective) == evaluations.LOSS_HELP
    reward = RunSpec()
    reward.objective.kind = "reward"
    assert evaluations.loss_help(reward.objective) == evaluations.PAIR_LOSS_HELP


@pytest.mark.parametrize(("labels", "words"), [(CLASSES, ("right class", "90%", "0.85")), (NUMBERS, ("RMSE", "0.91"))])
def test_a_report_tells_each_evaluation(
    tmp_path: Path, labels: tuple[dict[str, float], ...], words: tuple[str]
) -> None:
    run, facts = make_tiny_run(tmp_path / "run"), Facts()
    facts.fold(Event(1, 0.0, "setup", {**SETUP, "classes": ["good", "bad"]}))
    for step, numbers in zip((0, 10), labels, strict=True):
        facts.fold(Event(2 + step, 0.0, "eval", {"step": step, "loss": 1.0 / (1 + step), **numbers}))
    text = page(run, spec_of(regression="rmse" in labels[0]), facts, verdict_on(facts))
    assert [word for word in words if word.lower() not in text.lower()] == []
    assert "good, bad" in text
    facts.fold(Event(99, 0.0, "hello", {"resumed_from_step": 5}))
    assert list(facts.labels) == [0]
