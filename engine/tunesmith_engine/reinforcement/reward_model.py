"""A reward model beside the model that is trained: it scores prompt and answer as a chat, as TRL does it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence

from tunesmith_core import reward_models
from tunesmith_core.errors import TunesmithError
from tunesmith_core.reward_models import RewardModel
from tunesmith_core.rollout_memory import SCORED_ROWS
from tunesmith_core.spec_rollouts import MODEL, RewardSpec
from tunesmith_engine.export.trained import Trained, find_trained
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.heads import Head, head_of
from tunesmith_engine.model.load import load_model
from tunesmith_engine.model.lora import attach_adapter
from tunesmith_engine.train.oom import is_out_of_memory

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_engine.device import Compute
    from tunesmith_engine.reinforcement.scoring import Answered
    from tunesmith_engine.train.assembly import Parts


class _KeptHead(Head):
    """The head that a model's files hold."""

    def begin(self, model: Any, folder: Path) -> None:  # Any: a transformers model
        """Leave the weights as they were read."""


class RewardScores:
    """Scores of a reward model.

    Args:
        model: with a head of one number, on its device.
        compute: of the run.
        squash: whether a score becomes a number between 0 and 1.
    """

    def __init__(self, model: Any, compute: Compute, squash: bool) -> None:  # Any: a transformers or PEFT model
        self._model, self._compute, self._squash = model.eval(), compute, squash
        self._rows_at_once = SCORED_ROWS
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._pad = int(base.config.get_text_config().pad_token_id)

    def __call__(self, answers: Sequence[Answered]) -> list[float]:
        """Return the score of each answer, which is read as a whole chat."""
        found: list[float] = []
        while len(found) < len(answers):
            some = answers[len(found) : len(found) + self._rows_at_once]
            try:
                found += self._scores([each.tokens for each in some])
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self._rows_at_once == 1:
                    raise
                self._rows_at_once = max(1, len(some) // 2)
                torch.cuda.empty_cache()
        return found

    def _scores(self, texts: Sequence[Sequence[int]]) -> list[float]:
        rows = [torch.tensor(list(tokens)) for tokens in texts]
        ids = pad_sequence(rows, batch_first=True, padding_value=self._pad).to(self._compute.device)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).to(self._compute.device)
        with torch.inference_mode(), self._compute.autocast():
            scores = self._model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, 0].float()
        return (scores.sigmoid() if self._squash else scores).tolist()


def load_reward_models(parts: Parts) -> dict[int, RewardScores]:
    """Return the reward models of a run by the place of their reward.

    Raises:
        UserError: `reward-failed` where a folder holds none, or one that reads other tokens or another template.
    """
    spec = parts.spec
    wanted = {place: reward for place, reward in enumerate(spec.rollouts.rewards) if reward.kind == MODEL}
    return {place: _opened(reward, parts) for place, reward in wanted.items()}


def _opened(reward: RewardSpec, parts: Parts) -> RewardScores:
    found = reward_models.find(reward.model)
    trained = find_trained(found.run, 0) if found.run else None
    _check_alike(found, trained, parts)
    four_bit, eight_bit = (parts.spec.quantization.kind == kind for kind in ("nf4", "int8"))
    if trained is None:
        head = _KeptHead(0)
        model = load_model(found.folder, parts.compute, four_bit, head, eight_bit=eight_bit)
    else:
        model = _of_run(trained, found.folder, parts.spec, parts.compute)
    model.requires_grad_(False)
    return RewardScores(model, parts.compute, reward.squash)


def _check_alike(found: RewardModel, trained: Trained | None, parts: Parts) -> None:
    """Check what the tokenizers themselves say; files alone were compared before the run."""
    reward_models.check_alike(found, parts.spec, parts.folder)
    theirs = trained.tokenizer(found.folder) if trained else load_tokenizer(found.folder)
    if theirs.get_vocab() != parts.tokenizer.get_vocab():
        raise TunesmithError(
            "reward-failed",
            "{path}: the reward model has other tokens than the model that is trained.",
            path=found.path,
        )


def _of_run(trained: Trained, folder: Path, spec: RunSpec, compute: Compute) -> Any:  # Any: PEFT's model
    """Return the model of a run that learned to score, its base stored as that of the run that learns from it."""
    four_bit, eight_bit = (spec.quantization.kind == kind for kind in ("nf4", "int8"))
    base = load_model(folder, compute, four_bit, head_of(trained.spec), eight_bit=eight_bit)
    model = attach_adapter(base, trained.spec)
    places = dict(model.named_parameters())

    def put(name: str, weight: torch.Tensor) -> None:
        if name in places:
            with torch.no_grad():
                places[name].copy_(weight)

    trained.put_into(model, put)
    return model


