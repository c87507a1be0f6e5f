"""Classes and numbers of texts: cross-entropy or squared error of a head, and how well whole sets are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from tunesmith_core.messages import Message
from tunesmith_engine.data import Example
from tunesmith_engine.data.collate import collate
from tunesmith_engine.evaluation.class_figures import class_figures, number_figures
from tunesmith_engine.model.folder import padding_id
from tunesmith_engine.train.rating_path import RatingPath

if TYPE_CHECKING:
    from tunesmith_engine.train.assembly import Parts


class ClassPath(RatingPath):
    """See LossPath."""

    def __init__(self, parts: Parts, micro_batch_size: int) -> None:
        super().__init__(
            parts.model,
            parts.compute,
            padding_id(parts.tokenizer, parts.model.get_base_model().config),
            micro_batch_size,
            parts.spec.hardware.activation_checkpointing,
            Message("The head of transformers computes this objective."),
            parts.method,
        )
        self._are_numbers = parts.spec.objective.regression
        self._seen: list[tuple[np.ndarray, np.ndarray]] = []

    def begin_set(self) -> None:
        """See RatingPath."""
        self._seen.clear()

    def figures(self) -> dict[str, float]:
        """Return macro F1 and calibration error of classes, or RMSE and correlation of numbers."""
        told, right = (np.concatenate(each) for each in zip(*self._seen, strict=True))
        return number_figures(told[:, 0], right) if self._are_numbers else class_figures(told, right)

    def _means(self, portion: list[Example]) -> torch.Tensor:
        device = self._compute.device
        batch = collate(portion, self._pad_token_id)
        inputs = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
        ends = np.array([row.labels[-1] for row in portion], dtype=np.int32)
        self._rotary.forget_lengths()
        with self._compute.autocast():
            logits = self._model(**inputs, use_cache=False).logits.float()
        if self._are_numbers:
            right = torch.from_numpy(ends.view(np.float32).copy()).to(device)
            numbers = functional.mse_loss(logits[:, 0], right).reshape(1)
        else:
            right = torch.from_numpy(ends).long().to(device)
            accuracy = (logits.argmax(dim=-1) == right).float().mean()
            numbers = torch.stack([functional.cross_entropy(logits, right), accuracy])
        if not torch.is_grad_enabled():
            self._seen.append((logits.double().cpu().numpy(), right.double().cpu().numpy()))
        return numbers
