"""What a model adds to its loss for an even use of its experts (Fedus et al. 2021, arXiv 2101.03961, equations 4 to 6).

Over all layers with experts and all tokens of a micro-batch, f[e] is the share of tokens that have expert e among their
chosen ones and p[e] the mean of its probabilities; the sum of E f[e] p[e] is added to the mean loss of the micro-batch
with a weight. f has no gradient, so that of each probability is known once all layers have been gone through.

# T tokens, E experts
"""

from __future__ import annotations

import torch

from tunesmith_engine.shapes import BalanceShape


class Balance:
    """Counts the experts of a micro-batch while it passes through the layers."""

    def __init__(self, shape: BalanceShape) -> None:
        self.shape = shape
        self._counts, self._sums = torch.zeros(0), torch.zeros(0)
        self._num_rows = 0
        self._factor: torch.Tensor | float = 0.0

    def begin(self, device: torch.device) -> None:
        """Forget what was counted."""
        self._counts, self._sums = (torch.zeros(self.shape.num_experts, device=device) for _ in range(2))
        self._num_rows = 0

    def add(self, logits: torch.Tensor) -> None:
        """Count the experts of a layer's tokens, from the logits of all experts, [T, E]."""
        probabilities = logits.detach().float().softmax(dim=-1)
        chosen = probabilities.topk(self.shape.per_token, dim=-1).indices.flatten()
        self._counts.scatter_add_(0, chosen, torch.ones_like(chosen, dtype=self._counts.dtype))
        self._sums += probabilities.sum(dim=0)
        self._num_rows += len(logits)

    @property
    def loss(self) -> torch.Tensor:
        """What is added to the mean loss, a float32 scalar."""
        weight = self.shape.weight * self.shape.num_experts / self._num_rows**2
        return weight * torch.dot(self._counts, self._sums)

    def use(self, factor: torch.Tensor | float) -> None:
        """Let the gradient be that of `loss` times a factor from now on."""
        self._factor = factor

    def gradient(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a layer's probabilities, [T, E], differentiable, and the gradient that they have."""
        with torch.enable_grad():
            probabilities = logits.float().softmax(dim=-1)
        weight = self.shape.weight * self.shape.num_experts / self._num_rows**2
        slopes = (self._counts * weight * self._factor).expand_as(probabilities)
        return probabilities, slopes
