"""Experts that are all handed all tokens, each times the expert's weight, which is 0 for most (Llama 4).

Without biases an expert makes nothing of nothing, so only the chosen ones need to be computed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, agrees, replaced, result_of
from tunesmith_engine.shapes import NotFusableError

ROUTER = "router"


def takes_all(experts: nn.Module) -> bool:
    """Whether experts are handed nothing but rows: all tokens for the first one, then for the next."""
    return len(inspect.signature(inspect.unwrap(type(experts).forward)).parameters) == len(("self", "rows"))


def computes(
    name: str, experts: nn.Module, weights: dict[str, torch.Tensor], expert: Callable[[torch.Tensor, int], torch.Tensor]
) -> bool:
    """Whether the experts' own code gives what a formula does.

    Args:
        name: for messages.
        experts: the module.
        weights: by name, [E, inputs, outputs].
        expert: gives an expert's output for one token, [hidden], by its number.
    """
    num_experts = len(next(iter(weights.values())))
    twin = replaced(experts, {}, {role: nn.Parameter(weight) for role, weight in weights.items()})
    twin.num_experts, twin.hidden_size = num_experts, WIDTH
    x = StandIns().numbers(num_experts * NUM_TOKENS, WIDTH)
    result = result_of(name, lambda: twin(x))
    return agrees(result, torch.stack([expert(row, place // NUM_TOKENS) for place, row in enumerate(x)]))


def scores_of(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the weights of all experts for x, [T, hidden], [T, E]: the first result of the block's router."""
    found = getattr(block, ROUTER)(x)
    scores: torch.Tensor = found[0] if isinstance(found, tuple) else found
    return scores


def chosen_of(scores: torch.Tensor, per_token: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts that are chosen, integers [T, k], and their weights."""
    weights, experts = scores.topk(per_token, dim=-1)
    return experts, weights


class TriedRows(nn.Module):
    """Stands for the experts in a trial: makes nothing of nothing, and tells rows and experts apart."""

    def __init__(self, num_experts: int) -> None:
        super().__init__()
        self._num_experts = num_experts

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return numbers in which all that it is given shows."""
        of_each = rows.view(self._num_experts, -1, rows.shape[-1])
        factors = 1 + 0.1 * torch.arange(self._num_experts, device=rows.device)
        return (torch.sin(2 * of_each.float()) * factors[:, None, None]).to(rows.dtype).view_as(rows)


def mixed(x: torch.Tensor, scores: torch.Tensor, per_token: int) -> torch.Tensor:
    """Return the sum of what `TriedRows` makes of the chosen experts' rows, [T, hidden]."""
    experts, weights = chosen_of(scores, per_token)
    rows = (x[:, None] * weights[..., None].to(x.dtype)).float()
    return (torch.sin(2 * rows) * (1 + 0.1 * experts[..., None])).sum(1).to(x.dtype)


def per_token_of(name: str, scores: Any, num_experts: int) -> int:
    """Return how many experts each token has.

    Raises:
        NotFusableError: they are not as many for each, or not all experts have a weight.
    """
    counts = (scores != 0).sum(-1) if scores.dim() == 2 and scores.shape[1] == num_experts else torch.zeros(1)
    if int(counts.min()) != int(counts.max()) or not int(counts.max()):
        raise NotFusableError("{name} ({kind}) combines its experts in an unsupported way.", name=name, kind="scores")
    return int(counts.max())

