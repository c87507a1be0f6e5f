"""The judge of numerics: how far a result may be from the exact one, measured by what the usual code makes of it.

No bare tolerance stands in a test. The usual formula in the same number format is as far from the exact result as that
format lets it be; ours may be 1.25 times as far, and by a small share of the format's own step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

FACTOR = 1.25
"""Ours may be farther from the exact result than the usual code is by this."""

REDUCTION = 4.0
"""The `c` of results that are long sums, whose order may differ."""


def judge(
    name: str,
    ours: torch.Tensor,
    reference_same_dtype: torch.Tensor | tuple[torch.Tensor, ...],
    oracle_fp64: torch.Tensor,
    dtype: torch.dtype,
    c: float = 1.0,
) -> None:
    """Hold a result to the error of a reference, in maximum, in the mean and in relative L2, each for itself.

    Args:
        name: what is judged, for the message.
        ours: the result; any device.
        reference_same_dtype: what the usual code (transformers, PEFT) gives in the tested number format; of several
            ways in which it computes the same, each figure is measured by the least exact.
        oracle_fp64: what the plain formula gives in float64.
        dtype: the number format whose step is allowed on top.
        c: how many of those steps, at the root mean square of the oracle; `REDUCTION` for long sums.

    Raises:
        AssertionError: It is too far, not finite where the oracle is, or of another shape; with the three figures.
    """
    assert oracle_fp64.dtype == torch.float64, f"{name}: the oracle is {oracle_fp64.dtype}"
    references = reference_same_dtype if isinstance(reference_same_dtype, tuple) else (reference_same_dtype,)
    shapes = {tuple(tensor.shape) for tensor in (ours, *references, oracle_fp64)}
    assert len(shapes) == 1, f"{name}: shapes {shapes}"
    if oracle_fp64.numel() == 0:
        return
    exact = oracle_fp64.detach().cpu()
    step = c * torch.finfo(dtype).eps
    scale = exact.square().mean().sqrt().item()
    figures = []
    usual_errors = [_errors(reference, exact) for reference in references]
    for label, our_error in _errors(ours, exact).items():
        usual_error = max(errors[label] for errors in usual_errors)
        allowed = FACTOR * usual_error + step * (1.0 if label == "relative L2" else scale)
        # Written so that a NaN fails.
        verdict = "ok" if our_error <= allowed else "TOO FAR"
        figures.append(f"{label} {our_error:.3e}, allowed {allowed:.3e} (usual code {usual_error:.3e}): {verdict}")
    assert not any("TOO FAR" in figure for figure in figures), f"{name} in {dtype}: " + "; ".join(figures)


def mutants_fail(judge_call: Callable[[torch.Tensor], None], ours: torch.Tensor) -> None:
    """Check that a judgement is able to fail: zeros and the flipped sign must not pass.

    Args:
        judge_call: judges a tensor in place of the result: `lambda mutant: judge(name, mutant, usual, exact, dtype)`.
        ours: a result that passed.

    Raises:
        AssertionError: A wrong result passed.
    """
    for label, mutant in (("zeros", torch.zeros_like(ours)), ("the flipped sign", -ours)):
        try:
            judge_call(mutant)
        except AssertionError:
            continue
        pytest.fail(f"The judgement lets {label} pass.")


def _errors(result: torch.Tensor, exact: torch.Tensor) -> dict[str, float]:
    """Return the errors of a result against the exact one, by name; a relative one of zeros is absolute."""
    difference = (result.detach().cpu().double() - exact).abs()
    length = exact.norm().item()
    return {
        "maximum": difference.max().item(),
        "mean": difference.mean().item(),
        "relative L2": difference.norm().item() / (length if length > 0 else 1.0),
    }
