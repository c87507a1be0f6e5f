"""The divergence from soft targets and its gradient in place, with the scales and caps of the model families."""

from __future__ import annotations

import pytest
import torch

from tests.engine.kernels.test_cross_entropy import DTYPES, FAMILIES, _transformed
from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.cross_entropy import cross_entropy
from tunesmith_engine.kernels.soft_targets import divergence

Soft = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Logits, targets, ids and shares."""


def _case(device: torch.device, dtype: torch.dtype) -> Soft:
    """Return rows of 1 to 5 tokens with a share, the first and last of the vocabulary among them; one is ignored."""
    vocabulary, num_rows, size = 211, 6, 8.0
    generator = torch.Generator().manual_seed(5)
    logits = (torch.randn(num_rows, vocabulary + 13, generator=generator) * size).to(dtype)[:, :vocabulary]
    ids = torch.stack([torch.randperm(vocabulary, generator=generator)[:5] for _ in range(num_rows)])
    ids[0] = torch.tensor([vocabulary - 1, 0, 7, 8, 9])
    weights = torch.rand(num_rows, 5, generator=generator) + 0.1
    # That of the written token may be 0, and what fills up repeats it.
    weights[1, 0] = 0.0
    for row, num in enumerate([5, 3, 1, 5, 2, 4]):
        ids[row, num:], weights[row, num:] = ids[row, 0], 0.0
    shares = weights / weights.sum(1, keepdim=True)
    targets = ids[:, 0].clone()
    targets[num_rows // 2], shares[num_rows // 2] = -100, 0.0
    return logits.to(device), targets.to(device), ids.to(device), shares.to(device)


def _by_autograd(case: Soft, family: str, scale: torch.Tensor, wide: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return losses in `wide` and the gradient, by PyTorch's kl_div over the whole vocabulary."""
    logits, targets, ids, shares = case
    leaf = logits.clone().requires_grad_()
    whole = torch.zeros(logits.shape, dtype=wide, device=logits.device).scatter_add_(1, ids, shares.to(wide))
    log_q = _transformed(leaf, family).to(wide).log_softmax(-1)
    losses = torch.nn.functional.kl_div(log_q, whole, reduction="none").sum(1) * (targets != -100)
    (losses * scale).sum().backward()
    assert leaf.grad is not None
    return losses.detach(), leaf.grad


def _run(case: Soft, scale: torch.Tensor | None, family: str = "Llama") -> tuple[torch.Tensor, torch.Tensor]:
    """Return losses and what became of the logits."""
    logits, targets, ids, shares = case
    losses = torch.full((len(targets),), float("nan"), device=logits.device)
    changed = torch.empty_like(logits).copy_(logits)
    divergence(changed, targets, ids, shares, losses, scale, *FAMILIES[family])
    return losses, changed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradient(family: str, dtype: torch.dtype, device: torch.device) -> None:
    case = _case(device, dtype)
    scale = torch.linspace(0.25, 1.5, 6, device=device)
    exact = _by_autograd((case[0].double(), *case[1:]), family, scale, torch.float64)
    usual = _by_autograd(case, family, scale, torch.float32)
    ours = _run(case, scale, family)
    # The loss is float32 whatever the logits are.
    losses, shares = [ours[0], usual[0], exact[0]], [each.gather(1, case[2]) for each in (ours[1], usual[1], exact[1])]
    for parts, step in ((losses, torch.float32), (shares, dtype)):
        judge(family, *parts, step, REDUCTION)

        def call(mutant: torch.Tensor, what: tuple[object, ...] = (*parts[1:], step)) -> None:
            judge("mutant", mutant, *what, REDUCTION)  # type: ignore[arg-type]

        mutants_fail(call, parts[0])
    # Everywhere else it is what the kernel of cross-entropy makes of it, to the bit.
    changed = torch.empty_like(case[0]).copy_(case[0])
    cross_entropy(changed, case[1], torch.empty_like(ours[0]), scale, *FAMILIES[family])
    elsewhere = torch.ones_like(changed, dtype=torch.bool).scatter_(1, case[2], False)
    assert torch.equal(ours[1][elsewhere], changed[elsewhere])


def test_without_gradient_logits_stay(device: torch.device) -> None:
    case = _case(device, torch.float32)
    losses, same = _run(case, None)
    assert torch.equal(same, case[0])
    assert torch.equal(losses, _run(case, torch.ones((), device=device))[0])


def test_a_single_token_is_cross_entropy(device: torch.device) -> None:
    """Where all of the share is the written token's, loss and gradient are the usual ones."""
    logits, targets, ids, shares = _case(device, torch.float32)
    shares = torch.zeros_like(shares)
    shares[:, 0] = 1.0
    scale = torch.tensor(0.5, device=device)
    losses, gradient = _run((logits, targets, ids, shares), scale)
    usual, changed = torch.empty_like(losses), torch.empty_like(logits).copy_(logits)
    cross_entropy(changed, targets, usual, scale)
    assert torch.allclose(losses, usual, rtol=1e-6, atol=1e-6)
    assert torch.allclose(gradient, changed, rtol=1e-5, atol=1e-6)


def test_a_model_that_has_learned_it_stays(device: torch.device) -> None:
    """At the targets themselves the divergence is 0, and so is its gradient."""
    shares = torch.tensor([[0.5, 0.25, 0.25]], device=device)
    logits = torch.full((1, 40), -1e4, device=device)
    ids = torch.tensor([[3, 39, 0]], device=device)
    logits.scatter_(1, ids, shares.log())
    losses, gradient = _run((logits, ids[:, 0], ids, shares), torch.ones((), device=device))
    assert losses.abs().max() < 1e-6
    assert gradient.abs().max() < 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
def test_ignored_rows_are_not_learned(dtype: torch.dtype, device: torch.device) -> None:
    logits = torch.full((3, 70), float("nan"), dtype=dtype, device=device)
    nothing = torch.zeros(3, 4, dtype=torch.int64, device=device)
    targets = torch.full((3,), -100, device=device)
    losses, gradient = _run((logits, targets, nothing, nothing.float()), torch.ones((), device=device))
    assert torch.equal(losses, torch.zeros(3, device=device))
    assert torch.equal(gradient, torch.zeros_like(gradient))
