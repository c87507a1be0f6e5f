"""Cross entropy and its gradient in place, with the scales and caps of the model families."""

from __future__ import annotations

import pytest
import torch

from tests.engine.numerics import REDUCTION, judge, mutants_fail
from tunesmith_engine.kernels.cross_entropy import cross_entropy

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
FAMILIES = {
    "Llama": (1.0, None),
    "Cohere": (0.0625, None),
    "Granite": (1.0 / 8.0, None),
    "Gemma 2": (1.0, 30.0),
    "both": (0.5, 5.0),
}
"""Logit scale (Granite divides by `logits_scaling`) and softcap."""


def _transformed(logits: torch.Tensor, family: str) -> torch.Tensor:
    """Return logits as transformers changes them, in their own number format.

    Sources: modeling_cohere (logits * logit_scale), modeling_granite (logits / logits_scaling), modeling_gemma2 (divide
    by final_logit_softcapping, tanh, multiply).
    """
    scale, softcap = FAMILIES[family]
    if scale != 1.0:
        logits = logits / (1.0 / scale) if family == "Granite" else logits * scale
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    return logits


def _by_autograd(
    logits: torch.Tensor, targets: torch.Tensor, family: str, gradient_scale: float, wide: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return losses in `wide` and the gradient, as transformers' ForCausalLMLoss makes them of float32 logits."""
    leaf = logits.clone().requires_grad_()
    losses = torch.nn.functional.cross_entropy(_transformed(leaf, family).to(wide), targets, reduction="none")
    (losses.sum() * gradient_scale).backward()
    assert leaf.grad is not None
    return losses.detach(), leaf.grad


def _case(
    device: torch.device, dtype: torch.dtype, vocabulary: int = 211, num_rows: int = 6, size: float = 8.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits whose rows have other columns behind them, and targets of which one is ignored."""
    generator = torch.Generator().manual_seed(5)
    logits = (torch.randn(num_rows, vocabulary + 13, generator=generator) * size).to(dtype).to(device)
    targets = torch.randint(0, vocabulary, (num_rows,), generator=generator)
    targets[num_rows // 2] = -100
    return logits[:, :vocabulary], targets.to(device)


def _run(
    logits: torch.Tensor, targets: torch.Tensor, gradient_scale: float | None, family: str = "Llama"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return losses and what became of the logits."""
    losses = torch.full((len(targets),), float("nan"), device=logits.device)
    changed = torch.empty_like(logits).copy_(logits)
    scale = None if gradient_scale is None else torch.tensor(gradient_scale, device=logits.device)
    cross_entropy(changed, targets, losses, scale, *FAMILIES[family])
    return losses, changed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradient(family: str, dtype: torch.dtype, device: torch.device) -> None:
    logits, targets = _case(device, dtype)
    exact = _by_autograd(logits.double(), targets, family, 0.25, torch.float64)
    usual = _by_autograd(logits, targets, family, 0.25, torch.float32)
    ours = _run(logits, targets, 0.25, family)
    # The loss is float32 whatever the logits are.
    for what, ours_, usual_, exact_, step in zip(
        ("loss", "gradient"), ours, usual, exact, (torch.float32, dtype), strict=True
    ):
        judge(f"{family} {what}", ours_, usual_, exact_, step, REDUCTION)

        def call(mutant: torch.Tensor, what: tuple[object, ...] = (usual_, exact_, step)) -> None:
            judge("mutant", mutant, *what, REDUCTION)  # type: ignore[arg-type]

        mutants_fail(call, ours_)


@pytest.mark.parametrize("family", ["Llama", "both"])
def test_blocks_of_a_wide_vocabulary(family: str, device: torch.device) -> None:
    """Several blocks and an odd end; the largest logits lie in the first block, the last, and between."""
    logits, targets = _case(device, torch.bfloat16, 40_001, 4, 1.0)
    for row, column in enumerate((3, 40_000, 20_000)):
        logits[row, column] = 24.0
    exact = _by_autograd(logits.double(), targets, family, 1.0, torch.float64)
    usual = _by_autograd(logits, targets, family, 1.0, torch.float32)
    ours = _run(logits, targets, 1.0, family)
    judge("loss", ours[0], usual[0], exact[0], torch.float32, REDUCTION)
    judge("gradient", ours[1], usual[1], exact[1], torch.bfloat16, REDUCTION)


def test_without_gradient_logits_stay(device: torch.device) -> None:
    logits, targets = _case(device, torch.float32)
    losses, same = _run(logits, targets, None)
    assert torch.equal(same, logits)
    assert torch.equal(losses, _run(logits, targets, 1.0)[0])


def test_rows_are_their_own(device: torch.device) -> None:
    """The order of rows, and what lies between them, change no bit."""
    logits, targets = _case(device, torch.bfloat16)
    losses, gradient = _run(logits, targets, 1.0)
    order = torch.tensor([4, 0, 5, 2, 1, 3], device=device)
    shuffled = _run(logits[order].contiguous(), targets[order], 1.0)
    assert torch.equal(shuffled[0], losses[order])
    assert torch.equal(shuffled[1], gradient[order])


def test_gradient_rows_sum_to_nothing(device: torch.device) -> None:
    logits, targets = _case(device, torch.float32)
    gradient = _run(logits, targets, 1.0)[1]
    assert torch.all(gradient.sum(1).abs() < REDUCTION * torch.finfo(torch.float32).eps)
    assert gradient.abs().sum() > 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_ignored_rows_are_not_read(dtype: torch.dtype, device: torch.device) -> None:
    logits = torch.full((3, 70), float("nan"), dtype=dtype, device=device)
    losses, gradient = _run(logits, torch.full((3,), -100, device=device), 1.0)
    assert torch.equal(losses, torch.zeros(3, device=device))
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_target_outside_the_vocabulary_is_no_number(device: torch.device) -> None:
    """Such a row is a fault of the data; it must not read a stranger's memory, nor pass unseen."""
    logits, targets = _case(device, torch.float32)
    targets[0], targets[1] = 211, -7
    losses, gradient = _run(logits, targets, 1.0)
    assert losses.isnan().tolist() == [True, True, False, False, False, False]
    assert gradient[:2].isnan().all()
    assert gradient[2:].isfinite().all()


def test_logits_of_minus_infinity(device: torch.device) -> None:
    """Words that a model rules out, a whole first block of them among those."""
    logits, targets = _case(device, torch.float32, 20_000, 4)
    logits[:, :17_000] = float("-inf")
    targets = torch.where(targets < 0, targets, 19_000)
    exact = _by_autograd(logits.double(), targets, "Llama", 1.0, torch.float64)
    usual = _by_autograd(logits, targets, "Llama", 1.0, torch.float32)
    ours = _run(logits, targets, 1.0)
    judge("loss", ours[0], usual[0], exact[0], torch.float32, REDUCTION)
    judge("gradient", ours[1], usual[1], exact[1], torch.float32, REDUCTION)
    assert torch.all(ours[1][:, :17_000] == 0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_largest_float16_logits(family: str, device: torch.device) -> None:
    """Whoever computes in float16 overflows here: 65,504 is its largest number."""
    logits, targets = _case(device, torch.float16)
    logits[0, 7], logits[1, 8], logits[2, 9] = 65504.0, -65504.0, 65504.0
    targets[1], targets[2] = 8, 9
    exact = _by_autograd(logits.double(), targets, family, 1024.0, torch.float64)
    # What float16 itself makes of it is no measure: the usual code in float32, rounded, is.
    usual = _by_autograd(logits.float(), targets, family, 1024.0, torch.float32)
    ours = _run(logits, targets, 1024.0, family)
    judge("loss", ours[0], usual[0], exact[0], torch.float32, REDUCTION)
    judge("gradient", ours[1], usual[1].half(), exact[1], torch.float16, REDUCTION)


@pytest.mark.long
def test_rows_behind_2_to_the_31_numbers(far_rows: torch.Tensor) -> None:
    near = far_rows.clone(memory_format=torch.contiguous_format)
    targets = torch.arange(len(near), device=near.device)
    losses = torch.empty(2, len(near), device=near.device)
    scale = torch.ones((), device=near.device)
    for logits, out in zip((near, far_rows), losses, strict=True):
        cross_entropy(logits, targets, out, scale)
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(far_rows, near)


def test_no_rows(device: torch.device) -> None:
    logits, targets = _case(device, torch.float32)
    losses, gradient = _run(logits[:0], targets[:0], 1.0)
    assert losses.shape == (0,)
    assert gradient.shape == (0, 211)
