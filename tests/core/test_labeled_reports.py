"""What is said of a run that learned from labeled answers, and which of its settings are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core.test_preferences import SETUP, UNTRAINED, numbers
from tunesmith_core import cli_runs, cli_specs, evaluations
from tunesmith_core.preferences import Preferences, in_brief
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_objective import ObjectiveSpec
from tunesmith_core.verdict import FEW_PAIRS, Measured, Outcome, judge

BEFORE = UNTRAINED | {"kl": 0.0}


def after(margin: float, accuracy: float = 0.9, chosen: float = -100.0) -> dict[str, float]:
    return numbers(accuracy, margin, chosen, level=0.1) | {"kl": 2.0}


def measured(losses: dict[int, float], last: dict[str, float], num_held_out: int = 50) -> Measured:
    setup = SETUP | {"num_eval_rows": num_held_out}
    return Measured(losses, setup=setup, pairs=dict(zip(losses, (BEFORE, last), strict=True)))


def test_an_improvement_is_told_in_answers() -> None:
    verdict = judge(measured({0: 0.5, 10: 0.3}, after(1.5)))
    assert verdict.outcome is Outcome.MUCH
    assert verdict.sentence == (
        "Improved a lot. Of the held-out answers the model rates 90% on the right side: good ones up, bad ones down, "
        "compared with the reference."
    )
    assert verdict.evidence == "The reward margin, by how much it rates good answers above bad ones, is 1.50."


def test_few_held_out_rows_say_that_but_not_by_how_much() -> None:
    verdict = judge(measured({0: 0.5, 10: 0.1}, after(1.5), FEW_PAIRS - 1))
    assert verdict.outcome is Outcome.LITTLE
    assert verdict.sentence.startswith("Improved, but 19 held-out rows are too few to say by how much.")
    assert [step.name for step in verdict.next_steps] == ["hold-out"]


def test_swapped_labels_are_suspected() -> None:
    worse = judge(measured({0: 0.5, 10: 0.8}, after(-1.0)))
    assert (worse.outcome, "good and bad may be swapped" in worse.advice) == (Outcome.WORSE, True)
    unlearned = judge(measured({0: 0.5, 10: 0.3}, after(-0.1)))
    assert (unlearned.outcome, "good and bad may be swapped" in unlearned.advice) == (Outcome.NOTHING, True)


def test_good_answers_that_become_unlikely_are_told() -> None:
    found = Preferences(BEFORE, after(1.0, chosen=-200.0)).displacement
    assert found is not None
    assert found.startswith("Caution: good answers became much less likely, too.")


def test_a_line_of_progress_names_answers() -> None:
    assert in_brief(after(1.5)) == "rated on the right side 90%  margin 1.50"
    assert [label for label, _ in cli_runs._preferred(after(1.5))] == ["held-out answers"]
    assert cli_runs._preferred({}) == []
    assert evaluations.loss_help(ObjectiveSpec(kind="kto")) is evaluations.LABEL_LOSS_HELP
    assert evaluations.loss_help(ObjectiveSpec(kind="dpo")) is evaluations.PAIR_LOSS_HELP
    assert evaluations.loss_help(ObjectiveSpec(kind="sft")) is evaluations.LOSS_HELP


def test_a_preview_says_which_answers_are_good(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"place": "", "line": 2, "num_tokens": 9, "num_trained_tokens": 3, "segments": []}
    assert cli_specs.show_preview({"rows": [row | {"answer": each} for each in ("good", "bad")]}, as_json=False) == 0
    out = capsys.readouterr().out
    assert "line 2, good answer: 3 of 9" in out
    assert "line 2, bad answer: 3 of 9" in out


def test_a_preview_says_labels_and_which_steps_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"place": "", "line": 2, "num_tokens": 9, "num_trained_tokens": 2, "label": "billing"}
    parts: list[dict[str, object]] = [{"text": "1 + 1 = 2", "trained": False}]
    for is_right in (True, False):
        parts.append({"text": "\n", "trained": True, "is_right": is_right})
    assert cli_specs.show_preview({"rows": [row | {"segments": parts}]}, as_json=False) == 0
    assert "1 + 1 = 2 [[+]]\n [[-]]\n\nLabel: billing\n" in capsys.readouterr().out


def test_what_labels_can_t_be_learned_with_is_refused(make_spec: Callable[..., RunSpec], tmp_path: Path) -> None:
    del tmp_path
    spec = make_spec("a")
    spec.objective.kind = "kto"
    assert spec.problems() == []
    spec.data.train_on = "all"
    spec.schedule.micro_batch_size = spec.schedule.gradient_accumulation_steps = 1
    spec.objective.good_weight = spec.objective.bad_weight = 0.0
    assert [problem.path for problem in spec.problems()] == [
        "data.train_on",
        "schedule.micro_batch_size",
        "objective.good_weight",
    ]
    spec.objective.kto_loss = "apo_zero_unpaired"
    assert len(spec.problems()) == 2, "a single answer is enough for it"
    spec.objective.kind = "sft"
    assert spec.problems() == []
