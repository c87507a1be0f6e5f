"""What a model sees of a text, tried on rows of the data before the first step.

One that sees the next token while it learns to predict it learns nothing.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from tunesmith_core.errors import UserError
from tunesmith_engine.data import Example
from tunesmith_engine.device import Compute

if TYPE_CHECKING:
    from tunesmith_engine.model.full import TrainedModel

NUM_ROWS = 4
NUM_PADDING = 4
MOST_TOKENS = 32
LARGEST_SHARE = {torch.float32: 1e-3, torch.bfloat16: 2e-2, torch.float16: 5e-3}
"""How much the first half may move beside the second, in each number format: rounding differs where experts take their
tokens in other groups. Encoders moved it by 0.04 to 0.6."""


def check_looks_back_only(model: TrainedModel, compute: Compute, examples: Sequence[Example]) -> None:
    """Change the second half of some rows and see whether a prediction in the first half moves.

    Raises:
        UserError: `model-kind-unsupported` when one does in every row, or there is no prediction for each token.
    """
    rows = _rows(examples)
    with _in_evaluation(model, compute):
        # Where a tie between two experts is decided another way, a row moves that should not; hardly all of them.
        looks_ahead = bool(rows) and all(_first_half_moves(model, compute, row) for row in rows)
    if looks_ahead:
        raise UserError(
            "model-kind-unsupported",
            "{kind} is not a causal model: changing a token also changed the predictions before it.",
            kind=type(model.get_base_model()).__name__,
        )


def feels_padding(model: TrainedModel, compute: Compute, examples: Sequence[Example], pad_token_id: int) -> bool:
    """Return whether what stands behind a row changes its predictions, although the model looks back only."""
    rows = _rows(examples)
    with _in_evaluation(model, compute):
        return bool(rows) and all(_padding_moves(model, compute, row, pad_token_id) for row in rows)


@contextlib.contextmanager
def _in_evaluation(model: TrainedModel, compute: Compute) -> Iterator[None]:
    """Switch dropout off and put modes and random states back afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.random.fork_rng([compute.device] if compute.device.type == "cuda" else []), torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _rows(examples: Sequence[Example]) -> list[torch.Tensor]:
    """Return the start of the longest rows: tokens of the data, because others may stand for images or sounds."""
    longest = sorted(examples, key=lambda example: -len(example.input_ids))
    rows = (torch.from_numpy(example.input_ids[:MOST_TOKENS]).long() for example in longest)
    return list(itertools.islice((row for row in rows if not torch.equal(row, _changed(row))), NUM_ROWS))


def _changed(row: torch.Tensor) -> torch.Tensor:
    """Put other tokens into the second half, not the same ones in another order: a model may hardly see the order."""
    middle = (len(row) + 1) // 2
    return torch.cat((row[:middle], row[: len(row) - middle].flip(0)))


def _first_half_moves(model: TrainedModel, compute: Compute, row: torch.Tensor) -> bool:
    middle = (len(row) + 1) // 2
    moves = _logits(model, compute, _changed(row)) - _logits(model, compute, row)
    return _spread(moves[:middle]) > LARGEST_SHARE[compute.dtype] * _spread(moves[middle:])


def _padding_moves(model: TrainedModel, compute: Compute, row: torch.Tensor, pad_token_id: int) -> bool:
    # With its padding no longer than it was: a learned table of positions may end there.
    row = row[: max(1, len(row) - NUM_PADDING)]
    alone = _logits(model, compute, row)
    padded = _logits(model, compute, functional.pad(row, (0, NUM_PADDING), value=pad_token_id))
    return _spread(padded[: len(row)] - alone) > LARGEST_SHARE[compute.dtype] * _spread(alone - alone.mean())


def _logits(model: TrainedModel, compute: Compute, row: torch.Tensor) -> torch.Tensor:
    with compute.autocast():
        logits = model(input_ids=row[None].to(compute.device), use_cache=False).logits
    if logits.shape[:2] != (1, len(row)):
        raise UserError(
            "model-kind-unsupported",
            "{kind} gives no prediction for each token of a text.",
            kind=type(model.get_base_model()).__name__,
        )
    return logits[0].float()


def _spread(numbers: torch.Tensor) -> float:
    return float(numbers.square().mean().sqrt()) if numbers.numel() else 0.0
