"""The next token of each row by its logits, on their device; nothing waits for it.

The order of the filters is transformers' own (generation.utils): penalty, temperature, top-k, top-p, min-p.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tunesmith_core.sampling import Sampling
from tunesmith_engine.kernels.argmax import argmax


class Chooser:
    """Chooses tokens for some rows, one step after another."""

    def __init__(self, sampling: Sampling, prompts: Sequence[Sequence[int]], num_tokens: int, device: torch.device):
        """Begin with the prompts.

        Args:
            sampling: how.
            prompts: of each row, whose tokens are penalised, too.
            num_tokens: V, that there are.
            device: of the logits.
        """
        self._sampling = sampling
        self._generator = torch.Generator(device).manual_seed(sampling.seed)
        self._occurred: torch.Tensor | None = None
        if sampling.repetition_penalty != 1.0:
            occurred = torch.zeros(len(prompts), num_tokens, dtype=torch.bool)
            for row, prompt in zip(occurred, prompts, strict=True):
                row[torch.tensor(list(prompt))] = True
            self._occurred = occurred.to(device)

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the next token of each row, [M] int64, for logits [M, V]."""
        if self._sampling.temperature == 0.0 and self._occurred is None:
            return argmax(logits)
        scores = logits.float()
        if self._occurred is not None:
            penalty = self._sampling.repetition_penalty
            penalised = torch.where(scores < 0, scores * penalty, scores / penalty)
            scores = torch.where(self._occurred, penalised, scores)
        chosen = argmax(scores) if self._sampling.temperature == 0.0 else self._draw(scores)
        if self._occurred is not None:
            self._occurred.scatter_(1, chosen[:, None], True)
        return chosen

    def _draw(self, scores: torch.Tensor) -> torch.Tensor:
        sampling = self._sampling
        scores = scores / sampling.temperature
        if 0 < sampling.top_k < scores.shape[1]:
            least = scores.topk(sampling.top_k, dim=1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if sampling.top_p < 1.0:
            ordered, places = scores.sort(dim=1, descending=True)
            shares = ordered.softmax(dim=1)
            # The most likely token is always kept.
            beyond = shares.cumsum(dim=1) - shares >= sampling.top_p
            beyond[:, 0] = False
            scores = scores.masked_fill(beyond.scatter(1, places, beyond), -torch.inf)
        shares = scores.softmax(dim=1)
        if sampling.min_p > 0.0:
            shares = shares.masked_fill(shares < sampling.min_p * shares.amax(dim=1, keepdim=True), 0.0)
        # The first of exponential arrivals at these rates is a draw of these probabilities.
        arrivals = torch.empty_like(shares).exponential_(generator=self._generator)
        return argmax(shares / arrivals)
