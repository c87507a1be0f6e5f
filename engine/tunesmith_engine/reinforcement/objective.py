"""What runs that learn from rewards minimise of a micro-batch, and the numbers that tell how the model moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tunesmith_core.rewards import OF_UPDATES
from tunesmith_engine.reinforcement.losses import Clip, PolicyLoss, Written, divergence, is_clipped

if TYPE_CHECKING:
    from tunesmith_engine.packed.answers import Answers


@dataclass(frozen=True, slots=True)
class PolicyObjective:
    """The loss of the answers of a round.

    Attributes:
        loss: of each token.
        ratio_of: what is compared with the model that wrote it: "token"; "answer", by the mean over its tokens, GSPO,
            Zheng et al. 2025 (arXiv:2507.18071); "whole", by their sum.
        average: how tokens become a loss: over all tokens ("dapo"), over the means of the answers ("grpo"), over
            answers of the longest length ("dr_grpo"), or as sums over the answers ("luspo", arXiv:2602.05261).
        clip: bounds of the ratio.
        beta: factor of the divergence from the base model, which is a part of the loss; 0 compares with none.
        max_tokens: longest length of an answer.
    """

    loss: PolicyLoss
    ratio_of: str
    average: str
    clip: Clip
    beta: float
    max_tokens: int

    metrics = OF_UPDATES

    @property
    def has_reference(self) -> bool:
        """Whether the base model's log-probabilities are needed."""
        return self.beta != 0.0

    def __call__(
        self,
        now: torch.Tensor,
        then: torch.Tensor | None,
        reference: torch.Tensor | None,
        advantages: torch.Tensor,
        answers: Answers,
        num_answers_of_step: int,
        num_tokens_of_step: int,
    ) -> torch.Tensor:
        """Return the share of a micro-batch in the step's loss and in each of `metrics`, float32 [1 + metrics].

        Args:
            now: log-probabilities of the tokens of its answers, [T].
            then: those by the model that wrote them; None where it is the same one.
            reference: those by the base model; None where nothing is compared.
            advantages: of its answers, [answers].
            answers: which token belongs to which.
            num_answers_of_step, num_tokens_of_step: of all micro-batches of the step.
        """
        before = now.detach() if then is None else then
        written = Written(now, self._log_ratio(now - before, answers), answers.spread(advantages))
        losses = self.loss(written, self.clip)
        distances = torch.zeros_like(now)
        if reference is not None:
            distances = divergence(now, reference)
            losses = losses + self.beta * distances
        shares = self._shares(answers, num_answers_of_step, num_tokens_of_step)
        with torch.no_grad():
            seen = (distances, -before, is_clipped(written, self.clip))
            means = torch.stack([each.sum() for each in seen]) / num_tokens_of_step
        return torch.cat([(losses * shares).sum().reshape(1), means])

    def _log_ratio(self, log_ratio: torch.Tensor, answers: Answers) -> torch.Tensor:
        if self.ratio_of == "token":
            return log_ratio
        sums = answers.sums(log_ratio)
        return answers.spread(sums if self.ratio_of == "whole" else sums / answers.num_tokens.clamp(min=1.0))

    def _shares(self, answers: Answers, num_answers: int, num_tokens: int) -> torch.Tensor | float:
        """Return by what the loss of a token is multiplied."""
        if self.average == "grpo":
            return answers.spread(1.0 / (answers.num_tokens.clamp(min=1.0) * num_answers))
        return {
            "dapo": 1.0 / num_tokens,
            "dr_grpo": 1.0 / (num_answers * self.max_tokens),
            "luspo": 1.0 / num_answers,
        }[self.average]
