"""What GRPO and RLOO have in common: prompts are answered by the model itself, and the answers are what is trained."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tunesmith_engine.methods import Method

if TYPE_CHECKING:
    from tunesmith_core.operations.limits import Portions
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.data import Prepared, PreparedData
    from tunesmith_engine.data.rows_file import RowsWriter
    from tunesmith_engine.reinforcement.advantages import Floats
    from tunesmith_engine.train.fused_path import RowLengths
    from tunesmith_engine.train.loss import Objective


class Reinforcement(Method):
    """Learns from rewards for the answers that the model writes."""

    fused = True
    from_rewards = True

    def temperature(self, spec: RunSpec) -> float:
        """Return what logits are divided by before they are probabilities: that at which answers are drawn."""
        return spec.rollouts.temperature

    @abstractmethod
    def objective(self, spec: RunSpec) -> Objective:
        """Return the loss of the answers of a round."""

    @abstractmethod
    def advantages(self, spec: RunSpec, rewards: Floats) -> Floats:
        """Return how much better than the others each answer is, [prompts, answers] as the rewards."""

    def beta_of_reward(self, spec: RunSpec) -> float:
        """Return by how much the divergence from the base model lessens a reward, in place of a part of the loss."""
        del spec
        return 0.0

    def prepare(
        self, spec: RunSpec, tokenizer: Any, rows: RowsWriter, portions: Portions
    ) -> Prepared:  # Any: a transformers tokenizer
        """Write the rows as for SFT, but none that is cut: its answer would not be the right one any more."""
        whole = replace(spec, data=replace(spec.data, overlong="skip", train_on="assistant"))
        return super().prepare(whole, tokenizer, rows, portions)

    def row_lengths(self, spec: RunSpec, data: PreparedData) -> RowLengths:
        """Return how long prompts and answers together may get."""
        from tunesmith_engine.data.asked import question_in
        from tunesmith_engine.train.fused_path import RowLengths
        from tunesmith_engine.train.schedule import StepPlan

        asked = [question_in(example) for example in data.train]
        longest = max((len(each.prompt) for each in asked if each), default=1) + spec.rollouts.max_tokens
        rows = StepPlan.of(spec.schedule, data).rows_per_step
        return RowLengths.of_steps(longest, [rows * spec.rollouts.group_size * longest])
