"""The judge itself: it passes what is as good as the usual code and no worse."""

from __future__ import annotations

import pytest
import torch

from tests.engine.numerics import judge, mutants_fail


def _setting() -> tuple[torch.Tensor, torch.Tensor]:
    exact = torch.randn(64, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return exact, exact.bfloat16()


def test_the_usual_rounding_passes_and_mutants_fail() -> None:
    exact, usual = _setting()
    judge("rounding", usual, usual, exact, torch.bfloat16)
    mutants_fail(lambda mutant: judge("rounding", mutant, usual, exact, torch.bfloat16), usual)


@pytest.mark.parametrize("wrong", ["one number", "not a number", "double rounding everywhere", "shape"])
def test_worse_fails(wrong: str) -> None:
    exact, usual = _setting()
    ours = usual.clone()
    if wrong == "one number":
        ours[3, 4] += 0.1
    elif wrong == "not a number":
        ours[3, 4] = float("nan")
    elif wrong == "shape":
        ours = ours[1:]
    else:
        ours = usual * (1 + 3 * torch.finfo(torch.bfloat16).eps)
    with pytest.raises(AssertionError, match="wrong"):
        judge("wrong", ours, usual, exact, torch.bfloat16)


def test_a_judgement_that_lets_all_pass_is_named() -> None:
    exact, _ = _setting()
    with pytest.raises(pytest.fail.Exception, match="zeros"):
        mutants_fail(lambda mutant: None, exact)
