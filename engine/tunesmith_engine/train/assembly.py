"""What trains: model, adapter, the way gradients come about, and what applies them. Run, plan check and bench alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.device import Compute
from tunesmith_engine.methods import Method, method_of
from tunesmith_engine.model.first_prediction import check_predicts
from tunesmith_engine.model.folder import check_token_ids, load_tokenizer, model_folder, num_rows, padding_id
from tunesmith_engine.model.initial_values import StillHalf, begin, has_still_half
from tunesmith_engine.model.load import check_row_lengths, load_config
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.model.vocabulary import growth_of, words_of
from tunesmith_engine.preparation import Preparation
from tunesmith_engine.train.loss import Totals
from tunesmith_engine.train.loss_paths import LossPath, open_path, totals_of
from tunesmith_engine.train.optim import Updater

if TYPE_CHECKING:
    from tunesmith_engine.train.full_optim import FullOptimizer
    from tunesmith_engine.train.fused_path import Timing

TRIED_TOKENS = 8
"""Of the first row, for which the base model predicts before anything else is done with it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a method makes of a spec: its rows, and the model with what is trained of it."""

    spec: RunSpec
    compute: Compute
    method: Method
    folder: Path
    tokenizer: Any  # a transformers tokenizer; None where rows are tokens already
    data: PreparedData
    model: Any  # PEFT's model or FullModel

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what is told of a step beside its loss."""
        return self.method.metrics(self.spec)

    def open_path(
        self, micro_batch_size: int, warn: Callable[[str, str], None], timing: Timing | None = None
    ) -> LossPath:
        """Return the way in which the objective's gradients come about; see `loss_paths.open_path`."""
        if path := self.method.own_path(self, micro_batch_size):
            return path
        pad_token_id = padding_id(self.tokenizer, self.model.get_base_model().config) if self.tokenizer else 0
        return open_path(
            self.model,
            self.spec,
            self.compute,
            self.data,
            pad_token_id,
            micro_batch_size,
            warn,
            self.method,
            timing,
        )


def make_parts(
    spec: RunSpec,
    compute: Compute,
    preparation: Preparation,
    *,
    enter: Callable[[str], bool] = lambda _: True,
    should_stop: Callable[[], bool] = lambda: False,
    folder: Path | None = None,
) -> Parts | None:
    """Take the data of a spec and load its model.

    The data comes before the weights: its mistakes are the likelier ones and show within a second.

    Args:
        spec: the run.
        compute: its device.
        preparation: of its data.
        enter: told the phase that begins, "data" or "model"; returns False to end here, with None.
        should_stop: asked while the data is awaited; returns True to end here, with None.
        folder: of the base model, where it was found and checked already.
    """
    method = method_of(spec.objective.kind)
    folder = folder or model_folder(spec.model)
    preparation.begin(folder)
    config = load_config(folder)
    if not preparation.wait_for_tokenizer(should_stop):
        return None
    tokenizer = load_tokenizer(folder, spec.model.chat_template, words_of(spec))
    if growth := growth_of(folder, spec):
        growth.configure(config)
    if not enter("data"):
        return None
    data = preparation.data(should_stop)
    if data is None:
        return None
    if data.classes:
        # What the data is found to hold belongs to the model from here on.
        spec = replace(spec, objective=replace(spec.objective, classes=data.classes))
    examples = (*data.train, *data.eval)
    highest = max(int(sequence.input_ids.max()) for example in examples for sequence in example.sequences)
    check_token_ids(highest, tokenizer, num_rows(config), folder)
    if not enter("model"):
        return None
    model = method.load(folder, spec, compute)
    check_row_lengths(data.stats.longest_tokens, model.get_base_model(), folder)
    with model.disable_adapter() if spec.adapter.kind != FULL else contextlib.nullcontext():
        tried = torch.from_numpy(data.train[0].input_ids[:TRIED_TOKENS]).long()
        check_predicts(model.get_base_model(), compute, tried, folder)
    return Parts(spec, compute, method, folder, tokenizer, data, model)


class Assembly:
    """A model that can take a step.

    Attributes:
        model: with its adapter, or trained itself.
        path: computes gradients.
        parameters: what is trained, by name.
        updater: applies gradients.
        still: what no update changes of adapters that start from frozen weights, None where there is no such half.
    """

    def __init__(self, parts: Parts, path: LossPath) -> None:
        self.model, self.path = parts.model, path
        self.parameters = trainable(parts.model)
        device, dtype = parts.compute.device, parts.compute.dtype
        full = _full_optimizer(self.parameters, parts.spec)
        by_layer = full is not None and path.can_go_by_layer
        self.updater = Updater(self.parameters, parts.spec.optimizer, device, dtype, path.arena, full, by_layer)
        decays = parts.spec.optimizer.weight_decay > 0
        self.still = StillHalf(self.parameters, path.arena, decays) if has_still_half(parts.spec) else None

    def begin(self, parts: Parts) -> None:
        """Put computed initial values into an adapter that has not been trained yet; see `initial_values.begin`."""
        with self.path.out_of_the_way():
            begin(parts.model, parts.spec, parts.compute, parts.data.train)
        self.weights_were_set()

    def weights_were_set(self) -> None:
        """Take note of weights that come from elsewhere than an update."""
        if self.still:
            self.still.weights_were_set()
        self.path.weights_changed()

    def update(
        self,
        examples: list[Example],
        learning_rate: float,
        at_rest: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        num_rows: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Do one update and return its loss with the metrics of its objective, and the gradient norm, on the device.

        Args:
            examples: rows of the step.
            learning_rate: of the step.
            at_rest: makes the context of the gradients, in which nothing that is saved changes.
            num_rows: of which some may have been left out; 0 for as many as examples.
        """
        portions = self.path.portions(examples)
        if self.updater.goes_by_layer and len(portions) == 1:
            # Weights change on the way, so nothing is at rest.
            with self.updater.by_layer(learning_rate):
                share = self.path.add_gradients(portions[0], self._totals(examples, num_rows), self.updater)
            self.path.weights_changed()
            return share, self.updater.norm
        with at_rest():
            totals = self._totals(examples, num_rows)
            shares = [
                self.path.add_gradients(portion, totals, self.updater) for portion in portions
            ]
        if self.still:
            self.still.before_update()
        grad_norm = self.updater.update(learning_rate)
        if self.still:
            self.still.after_update()
        self.path.weights_changed()
        return reduce(torch.add, shares), grad_norm

    def _totals(self, examples: list[Example], num_rows: int) -> Totals:
        totals = totals_of(self.path, examples)
        return replace(totals, num_rows=num_rows or totals.num_rows)


def _full_optimizer(parameters: dict[str, torch.nn.Parameter], spec: RunSpec) -> FullOptimizer | None:
    """Return what updates whole weights by their gradients, None for those of an adapter."""
    if spec.adapter.kind != FULL:
        return None
    # Not imported for an adapter.
    from tunesmith_engine.train.full_optim import FullOptimizer

    return FullOptimizer(parameters, spec.optimizer, spec.schedule.seed)
