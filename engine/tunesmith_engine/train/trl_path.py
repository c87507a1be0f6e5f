"""Objectives of TRL's own trainers: they say what is minimised of a micro-batch, and our loop does everything else.

A trainer gets our model, our rows and our device and is asked for its loss only. Its loop, its optimizer, its saving
and its log are never used, so a run that it drives stops, saves, resumes and runs out of memory as any other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.data import Example
from tunesmith_engine.model.folder import padding_id
from tunesmith_engine.train.rating_path import RatingPath

if TYPE_CHECKING:
    from tunesmith_engine.train.assembly import Parts

TrlRow = dict[str, Any]  # Any: what a trainer's rows hold


@dataclass(frozen=True, slots=True)
class TrlObjective:
    """What a method takes from TRL.

    Attributes:
        load: returns the classes of trainer and settings; TRL is imported no sooner.
        row_of: makes a row of the trainer of one of ours.
        metrics: our names of the trainer's numbers, by its own.
        settings: of the trainer beside the usual ones.
    """

    load: Callable[[], tuple[Any, Any]]
    row_of: Callable[[Example], TrlRow]
    metrics: Mapping[str, str]
    settings: Mapping[str, Any]


class TrlPath(RatingPath):
    """Padded micro-batches through a trainer of TRL, whose losses and metrics are means over rows. See LossPath."""

    def __init__(self, objective: TrlObjective, parts: Parts, micro_batch_size: int) -> None:
        trainer_class, _ = objective.load()
        super().__init__(
            parts.model,
            parts.compute,
            padding_id(parts.tokenizer, parts.model.get_base_model().config),
            micro_batch_size,
            parts.spec.hardware.activation_checkpointing,
            Message("{trainer} of TRL computes this objective.", trainer=trainer_class.__name__),
            parts.method,
        )
        self._row_of, self._names = objective.row_of, objective.metrics
        self._trainer = _trainer(objective, parts, self._pad_token_id)

    def _means(self, portion: list[Example]) -> torch.Tensor:
        """Return the loss and each metric of a micro-batch, means over its rows, float32 [1 + metrics]."""
        device = self._compute.device
        batch = self._trainer.data_collator([self._row_of(example) for example in portion])
        inputs = {name: values.to(device) for name, values in batch.items()}
        self._rotary.forget_lengths()
        with self._compute.autocast():
            loss = self._trainer.compute_loss(self._model, inputs)
        told = self._told()
        metrics = torch.tensor([told[name] for name in self._names], device=device)
        return torch.cat([loss.float().reshape(1), metrics.float()])

    def _told(self) -> dict[str, float]:
        """Return the numbers that the trainer has noted, and have it forget them."""
        told: dict[str, float] = {}
        for noted in self._trainer._metrics.values():
            told |= {name: float(values[-1]) for name, values in noted.items()}
            noted.clear()
        return told


def _trainer(objective: TrlObjective, parts: Parts, pad_token_id: int) -> Any:  # Any: a trainer of TRL
    """Make a trainer that takes the model as it is and leaves nothing on the disk."""
    # A trainer takes its rows as nothing else.
    from datasets import Dataset  # type: ignore[import-untyped]  # noqa: TID251

    trainer_class, config_class = objective.load()
    # TRL would report each trainer that is made to the hub.
    silent = type(trainer_class.__name__, (trainer_class,), {"_send_telemetry": lambda _trainer: None})
    weights = {parameter: parameter.data for parameter in parts.model.parameters() if parameter.requires_grad}
    rows = [objective.row_of(parts.data.train[0])]
    with tempfile.TemporaryDirectory(prefix="tunesmith-", ignore_cleanup_errors=True) as folder:
        settings = config_class(
            output_dir=folder,
            seed=parts.spec.schedule.seed,
            use_cpu=parts.compute.device.type == "cpu",
            bf16=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            log_level="error",
            # Activations are kept as our own path says.
            activation_checkpointing=False,
            **objective.settings,
        )
        parts.tokenizer.pad_token = parts.tokenizer.convert_ids_to_tokens(pad_token_id)
        dataset = Dataset.from_list(rows)
        trainer = silent(model=parts.model, args=settings, train_dataset=dataset, processing_class=parts.tokenizer)
    for parameter, data in weights.items():
        # TRL rounds what is trained on 4-bit weights.
        parameter.data = data
    return trainer
