"""Right and wrong steps of solutions: the cross-entropy where each step ends, and how well whole sets are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data.collate import collate
from tunesmith_engine.evaluation.class_figures import class_figures
from tunesmith_engine.model.folder import padding_id
from tunesmith_engine.train.loss import Totals, num_trained_tokens
from tunesmith_engine.train.rating_path import RatingPath

if TYPE_CHECKING:
    from tunesmith_engine.train.assembly import Parts


class StepPath(RatingPath):
    """See LossPath. What is told are means over steps, as in TRL's trainer of process reward models.

    Raises:
        UserError: `dataset-classes` where all steps are right, or all wrong.
    """

    def __init__(self, parts: Parts, micro_batch_size: int) -> None:
        _check_both(parts.data.train)
        super().__init__(
            parts.model,
            parts.compute,
            padding_id(parts.tokenizer, parts.model.get_base_model().config),
            micro_batch_size,
            parts.spec.hardware.activation_checkpointing,
            Message("The head of transformers computes this objective."),
            parts.method,
        )
        self._seen: list[tuple[np.ndarray, np.ndarray]] = []

    def begin_set(self) -> None:
        """See RatingPath."""
        self._seen.clear()

    def figures(self) -> dict[str, float]:
        """Return macro F1 and calibration error of the steps."""
        told, right = (np.concatenate(each) for each in zip(*self._seen, strict=True))
        return class_figures(told, right)

    def _share(self, portion: list[Example], totals: Totals) -> float:
        return num_trained_tokens(portion) / totals.num_trained_tokens

    def _means(self, portion: list[Example]) -> torch.Tensor:
        device = self._compute.device
        batch = {name: values.to(device) for name, values in collate(portion, self._pad_token_id).items()}
        learned = batch["labels"] != IGNORED_LABEL
        self._rotary.forget_lengths()
        with self._compute.autocast():
            inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
            logits = self._model(**inputs, use_cache=False).logits
        logits, right = logits[learned].float(), batch["labels"][learned].long()
        accuracy = (logits.argmax(dim=-1) == right).float().mean()
        if not torch.is_grad_enabled():
            self._seen.append((logits.double().cpu().numpy(), right.double().cpu().numpy()))
        return torch.stack([functional.cross_entropy(logits, right), accuracy])


def _check_both(rows: list[Example]) -> None:
    labels = np.concatenate([row.labels for row in rows])
    found = set(labels[labels != IGNORED_LABEL].tolist())
    if len(found) < 2:
        words = Message("right") if 1 in found else Message("wrong")
        raise TunesmithError(
            "dataset-classes", "Every step of the training rows is {label}, so there is nothing to learn.", label=words
        )
