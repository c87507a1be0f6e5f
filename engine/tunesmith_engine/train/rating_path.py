"""Micro-batches of models that rate texts: losses and numbers that are means over rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch

from tunesmith_engine.data import Example
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import PlainPath
from tunesmith_engine.train.optim import Updater


class RatingPath(PlainPath, ABC):
    """Padded micro-batches through the transformers model with a head. See LossPath."""

    def add_gradients(self, portion: list[Example], totals: Totals, updater: Updater) -> torch.Tensor:
        """See LossPath."""
        shares = self._means(portion) * self._share(portion, totals)
        updater.backward(shares[0])
        return shares.detach()

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        """See LossPath."""
        with torch.no_grad(), self._adapter(with_adapter):
            return self._means(portion).double() * self._share(portion, totals)

    def _share(self, portion: list[Example], totals: Totals) -> float:
        """Return the share of a micro-batch in what the whole is a mean over."""
        return len(portion) / totals.num_rows

    def begin_set(self) -> None:
        """Begin to look at a set of rows as a whole."""

    def figures(self) -> Mapping[str, float]:
        """Return what is known of the set that is no mean over its rows."""
        return {}

    @abstractmethod
    def _means(self, portion: list[Example]) -> torch.Tensor:
        """Return the loss and each metric of a micro-batch, means over its rows, float32 [1 + metrics]."""
