"""The divergence in chunks: TRL's own number and gradients, whatever fits into memory at once."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tunesmith_engine.distillation import divergence as module
from tunesmith_engine.distillation.divergence import divergence


def _by_definition(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    """Equation 1 of arXiv:2306.13649, with its limits as the KL divergences themselves."""
    p, q = teacher.softmax(-1), student.softmax(-1)

    def kl(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a * (a.log() - b.log())).sum()

    if beta == 0:
        return kl(p, q)
    if beta == 1:
        return kl(q, p)
    mixture = beta * p + (1 - beta) * q
    return beta * kl(p, mixture) + (1 - beta) * kl(q, mixture)


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_the_divergence_is_that_of_the_paper(beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPARED_TOKENS", 3)
    generator = torch.Generator().manual_seed(1)
    student, teacher = (torch.randn(10, 23, generator=generator, dtype=torch.float64) * 3 for _ in range(2))
    ours, theirs = (student.clone().requires_grad_() for _ in range(2))
    found = divergence(ours, teacher, beta)
    expected = _by_definition(theirs, teacher, beta)
    torch.testing.assert_close(found[0], expected, rtol=1e-12, atol=0)
    assert found[1] == (student.argmax(-1) == teacher.argmax(-1)).sum()
    found[0].backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


def test_16_bit_logits_are_compared_in_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPARED_TOKENS", 4)
    generator = torch.Generator().manual_seed(2)
    student, teacher = (torch.randn(9, 31, generator=generator).bfloat16() for _ in range(2))
    ours = student.clone().requires_grad_()
    found = divergence(ours, teacher, 0.5)
    exact = student.double().requires_grad_()
    expected = divergence(exact, teacher.double(), 0.5)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
    found[0].backward()
    expected[0].backward()
    assert ours.grad is not None
    assert exact.grad is not None
    assert ours.grad.dtype == torch.bfloat16
    rounded = exact.grad.bfloat16().float()
    assert functional.mse_loss(ours.grad.float(), rounded) <= 1e-4 * rounded.square().mean()
    with torch.no_grad():
        assert torch.equal(divergence(student, teacher, 0.5), found.detach())
