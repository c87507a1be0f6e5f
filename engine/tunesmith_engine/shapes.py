"""What a decoder model looks like to the fused path: names of parts and numbers, no family names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tunesmith_core.messages import MessageError


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation over the last dimension.

    Attributes:
        weight: [width], or None where the norm has no weight.
        eps: added to the variance.
        plus_one: the weight is stored less one (Gemma). Where the mean is subtracted, too, the sum of weight and one is
            rounded to the weight's number format (Nemotron).
        centred: the mean is subtracted first (LayerNorm, Cohere).
        cast_last: the weight is multiplied in float32 and the product rounded once (Gemma, OLMo 2); else the
            normalised value is rounded first, then multiplied (Llama).
        trained: the parameter whose values `weight` has, or None where it is frozen.
        bias: [width], added at last, or None.
        trained_bias: the parameter whose values `bias` has, or None where it is frozen.
    """

    weight: torch.Tensor | None
    eps: float
    plus_one: bool = False
    centred: bool = False
    cast_last: bool = False
    trained: nn.Parameter | None = None
    bias: torch.Tensor | None = None
    trained_bias: nn.Parameter | None = None

    @property
    def trained_parameters(self) -> list[nn.Parameter]:
        """Those that get gradients."""
        return [parameter for parameter in (self.trained, self.trained_bias) if parameter is not None]


@dataclass(frozen=True, slots=True)
class Piece:
    """Columns of a product that belong together: `count` times `width` columns, each `stride` behind the last."""

    start: int
    count: int
    stride: int
    width: int


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention of one layer.

    Attributes:
        inputs: the modules q, k, v in this order, or one merged module; each may be a PEFT LoRA layer.
        output: the output projection.
        scale: factor of the scores before the softmax.
        softcap: scores become softcap * tanh(score / softcap); None without.
        window: a token sees itself and window - 1 tokens before it; None for all.
        query_norm, key_norm: norms of width head_dim (each head alone) or of the whole projection (OLMo 2).
        rotary: rotary embedding is applied (some layers of some models have none).
        interleaved: rotation pairs neighbouring numbers (Cohere) instead of halves.
        output_gate: q gives each head's queries and, behind them, its gate; the output is multiplied by sigmoid(gate).
        pieces: where q, k, v and the gates lie in what the inputs give (GPT-NeoX, Falcon, CodeGen, Qwen3-Next); None
            where they lie in this order.
    """

    inputs: tuple[nn.Module, ...]
    output: nn.Module
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    scale: float
    softcap: float | None = None
    window: int | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    rotary: bool = True
    interleaved: bool = False
    output_gate: bool = False
    pieces: tuple[Piece, ...] | None = None

    @property
    def numbers_per_token(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.head_dim

    @property
    def num_groups(self) -> int:
        """Groups of heads that can be computed apart."""
        return self.num_key_value_heads

    @property
    def whole_width_norms(self) -> tuple[Norm, Norm] | None:
        """The norms of queries and keys where they span all heads, as OLMo 2's do."""
        query, key = self.query_norm, self.key_norm
        if query is None or key is None or query.weight is None or query.weight.numel() == self.head_dim:
            return None
        return query, key

    @property
    def norms_apart(self) -> tuple[Norm, Norm] | None:
        """The norms of queries and keys that don't run in one pass with the rotation: wide ones, or with a mean."""
        query, key = self.query_norm, self.key_norm
        if query is None or key is None or not query.centred:
            return self.whole_width_norms
        return query, key


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """What Qwen3-Next has in most layers in attention's place: heads with a state, by the gated delta rule.

    The inputs give q, k, v, z, b and a. A short convolution with SiLU goes over q, k and v; each value head then has
    the rule's output o for decays exp(-exp(decay_log) softplus(a + decay_bias)) and strengths sigmoid(b), and the
    block's output is output(norm(o) * silu(z)); see kernels/delta_rule.py.

    Attributes:
        inputs: modules whose outputs, side by side, have what is named above.
        pieces: where q, k, v, z, b and a lie in them; None where they lie in this order.
        output: the output projection.
        num_key_heads, key_dim: of queries and of keys.
        num_heads, value_dim: of values; each key head serves consecutive ones.
        convolution: [channels, width] over the channels of q, k and v, the token itself last.
        convolution_bias: [channels] or None.
        decay_log, decay_bias: [num_heads].
        norm: over value_dim.
    """

    inputs: tuple[nn.Module, ...]
    pieces: tuple[Piece, ...] | None
    output: nn.Module
    num_key_heads: int
    num_heads: int
    key_dim: int
    value_dim: int
    convolution: torch.Tensor
    convolution_bias: torch.Tensor | None
    decay_log: torch.Tensor
    decay_bias: torch.Tensor
    norm: Norm

    @property
    def num_channels(self) -> int:
        """Width of q, k and v together."""
        return 2 * self.num_key_heads * self.key_dim + self.numbers_per_token

    @property
    def numbers_per_token(self) -> int:
        """Width of all value heads together."""
        return self.num_heads * self.value_dim

    @property
    def num_groups(self) -> int:
        """Groups of heads that can be computed apart."""
        return self.num_key_heads


@dataclass(frozen=True, slots=True)
class MlpShape:
    """An MLP: down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.

    Attributes:
        inputs: the modules gate, up in this order, or one merged module with the gate's rows first, or up alone.
        activation: "silu", "gelu" (exact), "gelu_tanh", "quick_gelu", "relu" or "relu2" (its square).
        function: an activation without a name, which is run as it is written; only where there is no gate.
    """

    inputs: tuple[nn.Module, ...]
    down: nn.Module
    activation: str
    width: int
    gated: bool = True
    function: nn.Module | None = None

    @property
    def inner_width(self) -> int:
        """Outputs of `inputs` together."""
        return 2 * self.width if self.gated else self.width


@dataclass(frozen=True, slots=True)
class Gate:
    """What an expert does with gate and up.

    Attributes:
        activation: as in `MlpShape`, or "clamped" as gpt-oss has it (OpenAI 2025, arXiv 2508.10925): with
            g = min(gate, limit) and u = clamp(up, limit) it is (u + 1) g sigmoid(alpha g).
        in_turn: gate and up take turns instead of lying behind each other.
        limit, alpha: of the clamped gate.
    """

    activation: str
    in_turn: bool = False
    limit: float = 0.0
    alpha: float = 0.0


@dataclass(frozen=True, slots=True)
class SparseShape:
    """A mixture of experts: scale * the weighted sum of the chosen experts, plus what all tokens go through.

    The router runs as it is written: it is small, and its formula differs from model to model.

    Attributes:
        module: the whole block.
        role: the name of the experts in it.
        experts: what has their weights, [experts, outputs, inputs] in one tensor for each product.
        wrapped: the experts with PEFT's layers around them, if there are any.
        num_experts, width, per_token: experts, numbers of an expert's MLP, experts of each token.
        gate: what an expert does with gate and up.
        transposed: weights lie as [experts, inputs, outputs] (gpt-oss).
        scale: factor of the experts' sum.
        shared: the MLP that all tokens go through, or None.
        shared_module, shared_role: its module and the module's name in the block.
        shared_gate: a linear layer with one output, whose sigmoid multiplies the shared MLP's output; or None.
        returns_pair: the block returns something beside its output.
    """

    module: nn.Module
    role: str
    experts: nn.Module
    wrapped: nn.Module
    num_experts: int
    width: int
    per_token: int
    gate: Gate
    transposed: bool = False
    scale: float = 1.0
    shared: MlpShape | None = None
    shared_module: nn.Module | None = None
    shared_role: str = ""
    shared_gate: nn.Module | None = None
    returns_pair: bool = False


@dataclass(frozen=True, slots=True)
class Unfused:
    """A part that runs as transformers wrote it, and why."""

    module: nn.Module
    reason: str


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One decoder layer: x += scale * post_attention_norm(attention(input_norm(x))), then the same with the MLP.

    Attributes:
        name: as in `named_modules`.
        attention: attention, or what the layer has in its place.
        parallel: attention and MLP read the same input and are added together: through the same norm (Cohere), or the
            MLP through the mlp_norm (GPT-NeoX).
        residual_scale: factor of what a block adds (Granite).
        rotary_kind: key of the rotary table that this layer takes, "" where there is one only.
    """

    name: str
    attention: AttentionShape | DeltaShape
    mlp: MlpShape | SparseShape | Unfused
    input_norm: Norm | None
    post_attention_norm: Norm | None
    mlp_norm: Norm | None
    post_mlp_norm: Norm | None
    parallel: bool = False
    residual_scale: float = 1.0
    rotary_kind: str = ""

    @property
    def norms(self) -> list[Norm]:
        """Those whose weights can be trained, of attention's heads as well."""
        found = [self.input_norm, self.post_attention_norm, self.mlp_norm, self.post_mlp_norm]
        if isinstance(self.attention, AttentionShape):
            found += [self.attention.query_norm, self.attention.key_norm]
        return [norm for norm in found if norm is not None]


@dataclass(frozen=True, slots=True)
class PositionTable:
    """Learned positions: row `position + offset` of a table is added to each embedded token."""

    embedding: nn.Embedding
    offset: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A whole decoder model.

    Attributes:
        embedding: input embedding; its output is multiplied by embedding_scale, in the embedding's own number format.
        rotary: (any tensor of the wanted dtype and device, positions [1, T], rotary_kind) -> cos, sin of
            [1, T, rotary_dim]; None for models without.
        positions: what is added to the embedded tokens, after their factor, or None.
        head: output projection; logits become softcap * tanh(logit_scale * logits / softcap).
        notes: what is not fused and why, a sentence each.
    """

    embedding: nn.Embedding
    embedding_scale: float
    layers: tuple[LayerShape, ...]
    final_norm: Norm
    head: nn.Module
    logit_scale: float
    softcap: float | None
    rotary: Callable[[torch.Tensor, torch.Tensor, str], tuple[torch.Tensor, torch.Tensor]] | None
    hidden_size: int
    positions: PositionTable | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def norms(self) -> list[Norm]:
        """All norms whose weights can be trained."""
        return [self.final_norm, *(norm for layer in self.layers for norm in layer.norms)]

    @property
    def attentions(self) -> list[AttentionShape]:
        """The attention of all layers that have it; every model has one such layer."""
        return [layer.attention for layer in self.layers if isinstance(layer.attention, AttentionShape)]

    @property
    def deltas(self) -> list[DeltaShape]:
        """What the other layers have in its place."""
        return [layer.attention for layer in self.layers if isinstance(layer.attention, DeltaShape)]


class NotFusableError(MessageError):
    """A model whose layers can't be run by the fused path; the message says why in a sentence."""


AnyModel = Any
"""A transformers model, which has no types."""
