"""How many rows are held out, and whether they can judge a run."""

from __future__ import annotations

import pytest

from tunesmith_core import held_out
from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_core.next_steps import NextStep
from tunesmith_core.spec import RunSpec


@pytest.mark.parametrize("num_rows", [12, 20, 33, 60, 119, 400])
def test_holding_out_more_rows_gives_enough_to_judge(num_rows: int) -> None:
    spec = RunSpec()
    percent = NextStep("hold-out").changes(spec, 10, num_rows)["evaluation.percent"]
    assert held_out.num_held_out(num_rows, percent) >= FEWEST_ROWS
    spec.evaluation.percent = percent
    assert held_out.note(spec, num_rows) is None
    assert percent <= 50


def test_the_share_that_is_named_is_the_smallest_that_suffices() -> None:
    note = held_out.note(RunSpec(), 20)
    assert note == (
        "Held-out rows: 1 of 20. With fewer than 6, nobody can tell whether the model improved. Hold out 30% or more."
    )
    assert held_out.num_held_out(20, 30.0) == FEWEST_ROWS
    assert held_out.num_held_out(20, 27.0) < FEWEST_ROWS


def test_so_few_rows_need_more_of_them() -> None:
    note = held_out.note(RunSpec(), 9)
    assert note is not None
    assert note.endswith("Add more rows.")


@pytest.mark.parametrize("num_rows", [None, 0, 200])
def test_nothing_is_said_where_rows_are_unknown_or_enough(num_rows: int | None) -> None:
    assert held_out.note(RunSpec(), num_rows) is None


def test_nothing_is_said_of_a_file_of_its_own_or_without_evaluation() -> None:
    spec = RunSpec()
    spec.evaluation.path = "/held.jsonl"
    assert held_out.note(spec, 20) is None
    spec.evaluation.path, spec.evaluation.percent = "", 0.0
    assert held_out.note(spec, 20) is None


@pytest.mark.parametrize(("num_rows", "percent"), [(None, None), (9, None), (20, 30.0), (40, 15.0), (200, None)])
def test_a_share_is_offered_only_where_it_helps(num_rows: int | None, percent: float | None) -> None:
    assert held_out.advised_percent(RunSpec(), num_rows) == percent


def test_the_button_names_the_share() -> None:
    assert held_out.action(15.0) == "Hold out 15%"
