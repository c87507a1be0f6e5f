"""Experts beside a layer's MLP, each with norms of its own (Gemma 4): read as one block in the MLP's place.

The layer's code then has an MLP without a norm before it, and a norm behind it, which is understood.
"""

from __future__ import annotations

import torch
from torch import nn

from tunesmith_core.messages import Message
from tunesmith_engine.fused.recognise.parts import read_norm
from tunesmith_engine.fused.recognise.per_layer import GATE, OUTPUT
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Mixer,
    StandIns,
    accepted,
    agrees,
    copied,
    replaced,
    result_of,
)
from tunesmith_engine.shapes import BranchNorms, NotFusableError

SWITCH = "enable_moe_block"
MLP, ROUTER, EXPERTS, ATTENTION = "mlp", "router", "experts", "self_attn"
BEFORE, BEHIND = "pre_feedforward_layernorm", "post_feedforward_layernorm_1"
BEFORE_EXPERTS, BEHIND_EXPERTS = "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2"
INSIDE = (MLP, ROUTER, EXPERTS, BEFORE, BEHIND, BEFORE_EXPERTS, BEHIND_EXPERTS)


class Branches(nn.Module):
    """The sum of an MLP and of experts, from the stream itself.

    Attributes:
        router, experts, shared_mlp: named as in other mixtures of experts.
        before, behind, before_experts, behind_experts: see `BranchNorms`.
    """

    reason = Message("Experts with norms of their own beside an MLP are not supported.")

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.router, self.experts, self.shared_mlp = (getattr(layer, role) for role in (ROUTER, EXPERTS, MLP))
        self.before, self.behind = (getattr(layer, role) for role in (BEFORE, BEHIND))
        self.before_experts, self.behind_experts = (getattr(layer, role) for role in (BEFORE_EXPERTS, BEHIND_EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum; the router reads the stream as it is."""
        flat = x.reshape(-1, x.shape[-1])
        _, weights, chosen = self.router(flat)
        of_experts = self.experts(self.before_experts(flat), chosen, weights).reshape(x.shape)
        total: torch.Tensor = self.behind(self.shared_mlp(self.before(x))) + self.behind_experts(of_experts)
        return total


def read_branch_norms(name: str, block: Branches) -> BranchNorms:
    """Return what the norms of both branches compute.

    Raises:
        NotFusableError: one of them is not understood.
    """
    return BranchNorms(
        before=read_norm(f"{name}.{BEFORE}", block.before),
        behind=read_norm(f"{name}.{BEHIND}", block.behind),
        before_experts=read_norm(f"{name}.{BEFORE_EXPERTS}", block.before_experts),
        behind_experts=read_norm(f"{name}.{BEHIND_EXPERTS}", block.behind_experts),
    )


def as_one_mlp(name: str, layer: nn.Module) -> nn.Module:
    """Return a layer with the same code whose MLP is both branches; the layer itself where it has no experts beside.

    Raises:
        NotFusableError: its own code combines them in another way.
    """
    if not getattr(layer, SWITCH, False):
        return layer
    missing = [role for role in (*INSIDE, ATTENTION) if not isinstance(getattr(layer, role, None), nn.Module)]
    if not missing:
        twin = _rewritten(layer)
        make = StandIns()
        parts = _stand_ins(layer, make)
        x, own = make.numbers(1, NUM_TOKENS, WIDTH), make.numbers(1, NUM_TOKENS, WIDTH)
        usual = dict.fromkeys(("attention_mask", "position_embeddings", "position_ids"))
        given = {"hidden_states": x} | accepted(layer, usual, {"per_layer_input": own, "shared_kv_states": None})
        found = [
            result_of(name, lambda run=run: run(**given))  # type: ignore[misc]
            for run in (replaced(layer, parts, {}), _rewritten(replaced(layer, parts, {})))
        ]
        if agrees(*found):
            return twin
    raise NotFusableError("{name} has experts beside its MLP, which is not supported.", name=name)


def _rewritten(layer: nn.Module) -> nn.Module:
    """Return a layer whose MLP is both branches."""
    twin = copied(layer, type(layer))
    kept = {role: part for role, part in layer._modules.items() if role not in INSIDE}
    twin._modules = {**kept, MLP: Branches(layer), BEFORE: nn.Identity()}
    setattr(twin, SWITCH, False)
    return twin


class _Experts(nn.Module):
    """Stands for experts: tells tokens, choices and weights apart."""

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Return numbers in which all that it is given shows, also behind a norm, which a factor would not."""
        return torch.cos(2 * x + (weights * (1 + 0.1 * chosen)).sum(-1, keepdim=True))


class _Router(nn.Module):
    """Stands for a router: its weights show what it reads."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return probabilities that nobody reads, weights and choices."""
        weights = x[:, :2].sigmoid()
        return x, weights, torch.arange(2 * len(x)).view(len(x), 2)


def _stand_ins(layer: nn.Module, make: StandIns) -> dict[str, nn.Module]:
    """Return stand-ins for all parts of a layer."""
    norms = [role for role, _ in layer.named_children() if "norm" in role]
    others = [role for role, _ in layer.named_children() if role in (GATE, OUTPUT)]
    return {
        ATTENTION: Mixer(make.matrix(WIDTH, WIDTH).weight, 2),
        MLP: make.matrix(WIDTH, WIDTH),
        ROUTER: _Router(),
        EXPERTS: _Experts(),
        **{role: make.matrix(WIDTH, WIDTH) for role in others},
        **{role: make.norm(getattr(layer, role), WIDTH) for role in norms},
    }
