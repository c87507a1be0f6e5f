"""Micro-batches of a model that learns from a bigger one: both predict, and what differs is minimised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tunesmith_core.messages import Message
from tunesmith_core.teachers import check_teacher
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.decode import Decoder, open_decoder
from tunesmith_engine.distillation.divergence import divergence
from tunesmith_engine.model.causality import check_looks_back_only, feels_padding
from tunesmith_engine.model.first_prediction import check_predicts
from tunesmith_engine.model.folder import padding_id
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.row_lengths import RotarySwitches
from tunesmith_engine.train.loss import Totals, make_batch, predictions, takes_positions
from tunesmith_engine.train.loss_paths import PlainPath
from tunesmith_engine.train.optim import Updater

if TYPE_CHECKING:
    from tunesmith_engine.train.assembly import Parts

TRIED_TOKENS = 8
"""Of the first row, for which the teacher predicts before anything else is done with it."""


class DistillationPath(PlainPath):
    """Padded micro-batches through both models. See LossPath.

    The loss is the mean divergence over trained tokens, and the metric the share at which both have the same favorite.
    """

    def __init__(self, parts: Parts, micro_batch_size: int) -> None:
        """Load the teacher.

        Raises:
            TunesmithError: what `check_teacher` and `load_model` find.
        """
        spec, compute, student = parts.spec, parts.compute, parts.model
        pad_token_id = padding_id(parts.tokenizer, student.get_base_model().config)
        folder = check_teacher(spec)
        self._teacher = load_model(folder, compute, four_bit=spec.teacher.weights == "nf4").eval()
        first = torch.from_numpy(parts.data.train[0].input_ids[:TRIED_TOKENS]).long()
        check_predicts(self._teacher, compute, first, folder)
        check_looks_back_only(student, compute, parts.data.train)
        feel = [feels_padding(each, compute, parts.data.train, pad_token_id) for each in (student, self._teacher)]
        super().__init__(
            student,
            compute,
            pad_token_id,
            micro_batch_size,
            spec.hardware.activation_checkpointing,
            Message("The model is compared with the bigger one in plain PyTorch."),
            parts.method,
            equal_lengths=any(feel),
        )
        self._beta = spec.teacher.beta
        self._some_of_teacher = takes_positions(self._teacher)
        self._rotary_of_teacher = RotarySwitches(self._teacher)
        self._decoder: Decoder | None = None

    def add_gradients(self, portion: list[Example], totals: Totals, updater: Updater) -> torch.Tensor:
        """See LossPath."""
        shares = self._shares(portion) / totals.num_trained_tokens
        updater.backward(shares[0])
        return shares.detach()

    def losses(self, portion: list[Example], totals: Totals, with_adapter: bool) -> torch.Tensor:
        """See LossPath."""
        with torch.no_grad(), self._adapter(with_adapter):
            return self._shares(portion).double() / totals.num_trained_tokens

    def _shares(self, portion: list[Example]) -> torch.Tensor:
        """Return divergence and agreement summed over the trained tokens, float32 [2]."""
        batch = make_batch(portion, self._pad_token_id, self._compute.device)
        learned = batch.targets.flatten() != IGNORED_LABEL
        with self._compute.autocast():
            with torch.no_grad():
                self._rotary_of_teacher.forget_lengths()
                theirs = predictions(self._teacher, batch, self._some_of_teacher).flatten(0, 1)[learned]
            self._rotary.forget_lengths()
            ours = predictions(self._model, batch, self._some_positions).flatten(0, 1)[learned]
        # Beyond the vocabulary that both have, tables are filled up to a round number.
        size = min(ours.shape[1], theirs.shape[1])
        if ours.shape[1] != theirs.shape[1]:
            ours, theirs = ours[:, :size], theirs[:, :size]
        return divergence(ours, theirs, self._beta)

    def weights_changed(self) -> None:
        """See LossPath."""
        if self._decoder is not None:
            self._decoder.weights_changed()

    def decoder(self) -> Decoder:
        """See LossPath; answers don't wait for the path that trains."""
        if self._decoder is None:
            self._decoder = open_decoder(self._model, self._compute)
        return self._decoder

    def close(self) -> None:
        """See LossPath."""
        if self._decoder is not None:
            self._decoder.close()
        super().close()
