"""What a model adds to its loss for an even use of its experts, and which of a router's results it takes for that.

The formula is held against the model's own code on made-up logits. The routers are those that the model's class names
for its recorder; what they give on a short text is held against what the model itself records there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.balance import Balance
from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.body import Body
from tunesmith_engine.fused.recognise.sparse import seeded
from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, StandIns, agrees
from tunesmith_engine.shapes import (
    AnyModel,
    BalanceShape,
    LayerShape,
    NotFusableError,
    SparseShape,
    UnfusedLayer,
)

RECORDED = "router_logits"
OTHER_INDEX = 1
"""Of a router's results where its class alone is named."""

FIRST_TOKEN = 11
"""Of the text on which routers are recorded; the lowest ones may stand for padding."""

Losses = Callable[[tuple[torch.Tensor, ...], torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""The model's loss and the cross-entropy in it, from its layers' logits and a mask of its tokens."""


def read_balance(
    whole: AnyModel, body: Body, layers: Sequence[LayerShape | UnfusedLayer], losses: Losses
) -> BalanceShape | None:
    """Return what a model adds to its loss for its experts; None where it adds nothing.

    Args:
        whole: the model.
        body: its decoder.
        layers: what is read of its layers.
        losses: runs the model's own code around its decoder.

    Raises:
        NotFusableError: it adds something else.
    """
    config = whole.config.get_text_config()
    if "output_router_logits" not in words.words(whole) or not getattr(config, "output_router_logits", False):
        return None
    sparse = [layer.mlp for layer in layers if isinstance(layer.mlp, SparseShape)]
    recorders = getattr(body.module, "_can_record_outputs", None) or {}
    recorder = recorders.get(RECORDED)
    kind = recorder if isinstance(recorder, type) else getattr(recorder, "target_class", None)
    index = OTHER_INDEX if kind is recorder else getattr(recorder, "index", 0)
    if not sparse or kind is None:
        raise NotFusableError("The loss includes a term that balances the experts (output_router_logits).")
    shape = BalanceShape(
        float(getattr(config, "router_aux_loss_coef", 0.0)), sparse[0].num_experts, sparse[0].per_token, kind, index
    )
    routers = [module for module in body.module.modules() if isinstance(module, kind)]
    ours = [router for mlp in sparse for router in mlp.module.modules() if isinstance(router, kind)]
    alike = {(mlp.num_experts, mlp.per_token) for mlp in sparse}
    same = len(ours) == len(sparse) == len(routers) and all(map(_is, ours, routers)) and len(alike) == 1
    if not (same and _gives(shape, losses) and _records(whole, shape, ours)):
        raise NotFusableError("The loss includes a term that balances the experts (output_router_logits).")
    return shape


def _is(first: nn.Module, second: nn.Module) -> bool:
    return first is second


def _gives(shape: BalanceShape, losses: Losses) -> bool:
    """Whether the model adds to its loss what a shape says, padding left out."""
    make = StandIns()
    logits = tuple(make.numbers(NUM_TOKENS, shape.num_experts) for _ in range(2))
    mask = torch.ones(1, NUM_TOKENS, dtype=torch.long)
    mask[0, -1] = 0
    balance = Balance(shape)
    balance.begin(mask.device)
    for each in logits:
        balance.add(each[:-1])
    found, usual = losses(logits, mask)
    return agrees(found - usual, balance.loss)


def _records(whole: AnyModel, shape: BalanceShape, routers: Sequence[nn.Module]) -> bool:
    """Whether the routers' results are those that the model records."""
    device = whole.get_input_embeddings().weight.device
    ids = torch.arange(FIRST_TOKEN, FIRST_TOKEN + NUM_TOKENS, device=device)[None]
    found: list[torch.Tensor] = []
    handles = [watched(router, shape.index, found.append) for router in routers]
    try:
        result = seeded("model", device, lambda: whole(input_ids=ids, use_cache=False, output_router_logits=True))
    finally:
        for handle in handles:
            handle.remove()
    recorded = getattr(result, RECORDED, None)
    if recorded is None or len(recorded) != len(found):
        return False
    return all(torch.equal(own, theirs) for own, theirs in zip(found, recorded, strict=True))


def watched(router: nn.Module, index: int, take: Callable[[torch.Tensor], None]) -> Any:  # Any: a handle
    """Let a router's result at a place, or its only one, be taken whenever it runs, until the handle is removed."""
    return router.register_forward_hook(
        lambda _, __, output: take(output[index] if isinstance(output, tuple) else output)
    )


def cross_entropy(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of the next tokens, [1, T, V] and [1, T]."""
    return functional.cross_entropy(logits[0, :-1], ids[0, 1:])
