"""The inverses of chunks' systems, in place, against float64's triangular solution."""

from __future__ import annotations

import pytest
import torch

from tests.engine.kernels.conftest import INTERPRETED, ON_GPU
from tests.engine.numerics import judge, mutants_fail
from tunesmith_engine.kernels.chunk_inverse import CHUNK, invert

pytestmark = [
    pytest.mark.skipif(not (INTERPRETED or ON_GPU), reason="needs Triton's interpreter or a GPU"),
    pytest.mark.usefixtures("tensor_cores"),
]

KINDS = {"random": 16.0, "alike": 64.0, "nothing": 16.0}
"""With the steps that an inverse T of 1 + A may be away: sums of 64 products in another order. What rounding can do is
in proportion to |T| |1 + A| |T| (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section 14.2):
where keys are alike, that is 16 times T, as float64 has it, so 16 times `REDUCTION` are allowed. PyTorch's own solution
there is as good as exact on a processor, whose sums from left to right cancel one by one, but not on a GPU."""


def systems(kind: str, num_heads: int, num_tokens: int) -> torch.Tensor:
    """Return strictly lower triangular matrices by their rows, [H, T, CHUNK]."""
    generator = torch.Generator().manual_seed(0)
    chunks = -(-num_tokens // CHUNK)
    a = torch.randn(num_heads, chunks, CHUNK, CHUNK, generator=generator) * 0.15
    if kind == "alike":
        # Keys that are all but equal: of whole numbers near 1 the inverse is a difference of neighbours.
        a = 1 + 0.01 * a
    a = (a * (kind != "nothing")).tril(-1)
    return a.flatten(1, 2)[:, :num_tokens].contiguous()


def inverses(a: torch.Tensor) -> torch.Tensor:
    """Return the inverses in the matrices' own number format, each chunk by itself."""
    found = []
    for rows in a.split(CHUNK, 1):
        length = rows.shape[1]
        ones = torch.eye(length, dtype=a.dtype).expand(len(a), -1, -1)
        inverse = torch.linalg.solve_triangular(ones + rows[..., :length], ones, upper=False, unitriangular=True)
        found.append(torch.nn.functional.pad(inverse, (0, CHUNK - length)))
    return torch.cat(found, 1)


@pytest.mark.parametrize("num_tokens", [CHUNK, 3 * CHUNK - 23, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_each_chunk_by_itself(device: torch.device, kind: str, num_tokens: int) -> None:
    a = systems(kind, 2, num_tokens)
    ours = a.clone().to(device)
    invert(ours)
    usual, exact = inverses(a), inverses(a.double())
    judge(kind, ours, usual, exact, torch.float32, KINDS[kind])
    if kind != "nothing":
        mutants_fail(lambda mutant: judge(kind, mutant, usual, exact, torch.float32, KINDS[kind]), ours)


def test_same_bits_in_every_run(device: torch.device) -> None:
    found = []
    for _ in range(3):
        found.append(systems("random", 3, 4 * CHUNK).to(device))
        invert(found[-1])
    assert all(torch.equal(other, found[0]) for other in found[1:])
