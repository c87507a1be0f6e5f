"""Ways to train. A method is one file in this folder, named as its objective is.

The file defines METHOD, an instance of Method. Nothing else has to know of it: the list of objectives is this folder.
It loads PyTorch inside its functions only, for the process that prepares the data has none.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tunesmith_core.messages import Message
from tunesmith_core.model_notes import untrained_experts
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL

if TYPE_CHECKING:
    import torch

    from tunesmith_core.operations.limits import Portions
    from tunesmith_engine.data import Prepared, PreparedData
    from tunesmith_engine.data.rows_file import RowsWriter
    from tunesmith_engine.device import Compute
    from tunesmith_engine.model.full import TrainedModel
    from tunesmith_engine.train.assembly import Parts
    from tunesmith_engine.train.fused_path import RowLengths
    from tunesmith_engine.train.loss import Batch, Objective
    from tunesmith_engine.train.loss_paths import LossPath
    from tunesmith_engine.train.trl_path import TrlObjective


class Method:
    """What distinguishes one way to train from another; the conductor does what all have in common.

    Attributes:
        fused: whether the fused path computes this objective; else it runs as plain PyTorch.
        from_rewards: whether the model writes what it is trained on, see `reinforcement`.
        has_teacher: whether a bigger model is learned from, see `distillation`.
        writes: whether the model writes texts; else it has a head and rates them.
    """

    fused = False
    from_rewards = False
    has_teacher = False
    writes = True

    def prepare(
        self, spec: RunSpec, tokenizer: Any, rows: RowsWriter, portions: Portions
    ) -> Prepared:  # Any: a transformers tokenizer
        """Write the rows that are trained and held out; return which are which. Called in the limited child."""
        from tunesmith_engine.data import prepare

        return prepare(spec, tokenizer, rows, portions)

    def load(self, folder: Path, spec: RunSpec, compute: Compute) -> Any:  # Any: PEFT's model or FullModel
        """Return the base model with what is trained of it."""
        from tunesmith_engine.model.expert_places import host_room
        from tunesmith_engine.model.heads import head_of
        from tunesmith_engine.model.load import load_model
        from tunesmith_engine.model.lora import attach_adapter, compare_with_others
        from tunesmith_engine.model.vocabulary import grown, growth_of

        if spec.adapter.kind == FULL:
            from tunesmith_engine.model.full import check_exportable, load_full

            model = load_full(folder, spec, compute)
            check_exportable(model, folder)
            return model
        four_bit, eight_bit = spec.quantization.kind == "nf4", spec.quantization.kind == "int8"
        growth = growth_of(folder, spec)
        room = host_room(folder, spec, compute)
        base = load_model(folder, compute, four_bit, head_of(spec), eight_bit=eight_bit, host_room=room)
        model = grown(base, growth)
        adapted = attach_adapter(model, spec, growth.new_rows if growth else ())
        compare_with_others(adapted, spec)
        return adapted

    def described(self, model: Any, spec: RunSpec) -> list[str]:  # Any: PEFT's model or FullModel
        """Return sentences about what is trained."""
        if spec.adapter.kind == FULL:
            from tunesmith_engine.model.full import described as described_full

            return described_full(model, spec)
        from tunesmith_engine.model.targets import described

        return described(model)

    def left_out(self, model: Any, spec: RunSpec) -> list[tuple[str, Message]]:  # Any: PEFT's model or FullModel
        """Return warnings, with their codes, about what is not trained though its name suggests that it is."""
        if spec.adapter.kind == FULL:
            return []
        from tunesmith_engine.model.targets import experts_left_out

        if not experts_left_out(model, spec.adapter):
            return []
        return [("experts-without-adapter", untrained_experts(spec.adapter))]

    def objective(self, spec: RunSpec) -> Objective | None:
        """Return what is minimised, where that is a function of the log-probabilities of tokens.

        None where it is the mean of `summed_loss` over the trained tokens.

        Args:
            spec: the run.
        """
        del spec
        return None

    def temperature(self, spec: RunSpec) -> float:
        """Return what logits are divided by before they are probabilities.

        Args:
            spec: the run.
        """
        del spec
        return 1.0

    def row_lengths(self, spec: RunSpec, data: PreparedData) -> RowLengths:
        """Return how long the sequences of a run are, which are the same after a resume."""
        from tunesmith_engine.train.fused_path import RowLengths
        from tunesmith_engine.train.schedule import StepPlan

        return RowLengths.of(data, StepPlan.of(spec.schedule, data))
    def trl(self, spec: RunSpec) -> TrlObjective | None:
        """Return what is taken from a trainer of TRL, None where this program computes the objective itself.

        Args:
            spec: the run.
        """
        del spec
        return None

    def own_path(self, parts: Parts, micro_batch_size: int) -> LossPath | None:
        """Return the way in which gradients come about where it is the method's own; None for the usual ones.

        Args:
            parts: of the run.
            micro_batch_size: rows that go through the model together at most.
        """
        theirs = self.trl(parts.spec)
        if theirs is None:
            return None
        from tunesmith_engine.train.trl_path import TrlPath

        return TrlPath(theirs, parts, micro_batch_size)

    def metrics(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the names of what is told of a step beside its loss."""
        if theirs := self.trl(spec):
            return tuple(theirs.metrics.values())
        objective = self.objective(spec)
        return objective.metrics if objective else ()

    def summed_loss(self, model: TrainedModel, batch: Batch, some_positions: bool) -> torch.Tensor:
        """Return what is minimised of a batch summed over its trained tokens, a float32 scalar on the device.

        That is their cross-entropy in nats, and what the model adds for an even use of its experts.

        Args:
            model: with its adapter.
            batch: rows, and the places whose next token is trained.
            some_positions: whether the model can compute logits at chosen places only.
        """
        from torch.nn.functional import cross_entropy

        from tunesmith_engine.data import IGNORED_LABEL
        from tunesmith_engine.train.loss import balances_experts, logits_of, own_summed_loss

        if balances_experts(model):
            return own_summed_loss(model, batch)
        logits = logits_of(model, batch, some_positions)
        return cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
        )

    def report(self, parts: Parts) -> dict[str, Any]:  # Any: JSON values
        """Return what the journal's "setup" event says about data and model."""
        from dataclasses import asdict

        from tunesmith_engine.data.overlap import num_distinct, num_leaked
        from tunesmith_engine.model.load import num_parameters
        from tunesmith_engine.model.lora import trainable

        stats = parts.data.stats
        return {
            "num_train_rows": len(parts.data.train),
            "num_eval_rows": len(parts.data.eval),
            "num_distinct_rows": num_distinct(parts.data.train),
            "num_leaked_rows": num_leaked(parts.data.train, parts.data.eval),
            "sources": [asdict(source) for source in parts.data.sources],
            "row_format": stats.row_format,
            "system_prompt": parts.data.system_prompt,
            "num_skipped_rows": stats.num_skipped_rows,
            "num_truncated_rows": stats.num_truncated_rows,
            "num_open_rows": stats.num_open_rows,
            "num_trained_tokens": stats.num_trained_tokens,
            "num_parameters": num_parameters(parts.model.get_base_model()),
            "writes": self.writes,
            "classes": parts.data.classes,
            "num_trainable_parameters": sum(each.numel() for each in trainable(parts.model).values()),
        }

    def save(self, model: Any, tokenizer: Any, card: str, target: Path, tmp: Path) -> dict[str, str]:
        """Write what the run has made into a folder; `export_adapter` describes arguments and result."""
        from tunesmith_engine.export.adapter import export_adapter

        return export_adapter(model, tokenizer, card, target, tmp)


def method_of(objective: str) -> Method:
    """Import and return the method of an objective."""
    method: Method = importlib.import_module(f"{__name__}.{objective}").METHOD
    return method
