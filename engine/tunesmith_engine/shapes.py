"""What a decoder model looks like to the fused path: names of parts and numbers, no family names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from tunesmith_core.messages import MessageError
from tunesmith_engine.altup_shapes import AltUpEndsShape, AltUpShape, LaurelShape
from tunesmith_engine.mixer_shapes import (
    AttentionShape,
    Branch,
    ChannelDeltaShape,
    ConvolutionShape,
    DeltaShape,
    LatentShape,
    MixerShape,
    Norm,
    StateSpaceShape,
    branches_of,
)


@dataclass(frozen=True, slots=True)
class MlpShape:
    """An MLP: down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.

    Attributes:
        inputs: the modules gate, up in this order, or one merged module with the gate's rows first, or up alone.
        activation: "silu", "gelu" (exact), "gelu_tanh", "quick_gelu", "relu" or "relu2" (its square).
        function: an activation without a name, which is run as it is written; only where there is no gate.
        norm: of what the down projection reads (BitNet), or None.
        scales: factors of gate and of up (Falcon H1), or None.
        cut: the activation reads relu(gate - mean - cut * deviation) instead, with mean and standard deviation over a
            token's gates (Gemma 3n); or None.
    """

    inputs: tuple[nn.Module, ...]
    down: nn.Module
    activation: str
    width: int
    gated: bool = True
    function: nn.Module | None = None
    norm: Norm | None = None
    scales: tuple[float, float] | None = None
    cut: float | None = None

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
class BranchNorms:
    """Norms of experts and of the MLP beside them, where each has its own (Gemma 4).

    Attributes:
        before, behind: of what the MLP reads and gives.
        before_experts, behind_experts: of what the experts read and of their weighted sum.
    """

    before: Norm
    behind: Norm
    before_experts: Norm
    behind_experts: Norm

    @property
    def all(self) -> list[Norm]:
        """All four."""
        return [self.before, self.behind, self.before_experts, self.behind_experts]


@dataclass(frozen=True, slots=True)
class SparseShape:
    """A mixture of experts: scale * the weighted sum of the chosen experts, plus what all tokens go through.

    What all tokens go through may stand in the layer's own code (Granite, Gemma 4).

    The router runs as it is written: it is small, and its formula differs from model to model.

    Attributes:
        module: the block with the router.
        role: the name of the experts in it.
        experts: what has their weights, [experts, outputs, inputs] in one tensor for each product.
        wrapped: the experts with PEFT's layers around them, if there are any.
        num_experts, width, per_token: experts, numbers of an expert's MLP, experts of each token.
        gate: what an expert does with gate and up.
        transposed: weights lie as [experts, inputs, outputs] (gpt-oss).
        scale: factor of the experts' sum.
        shared: the MLP that all tokens go through, or None.
        unfused_shared: why that runs as written, or None.
        shared_module, shared_role: its module and the module's name in the block, "" where it stands beside that.
        shared_scale: factor of its output.
        shared_gate: a linear layer with one output, whose sigmoid multiplies the shared MLP's output; or None.
        returns_pair: the block returns something beside its output.
        scores: name in the block of a router that gives weights of all experts, 0 of those that are not chosen; they
            multiply what experts read (Llama 4). "" for weights of what experts give.
        norm, norm_role: of all that (A.X K1), and its name in the block, or None.
        branch_norms: of the experts and of the MLP, each before and behind; the router reads what the block does. Or
            None.
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
    shared_scale: float = 1.0
    scores: str = ""
    norm: Norm | None = None
    norm_role: str = ""
    branch_norms: BranchNorms | None = None
    unfused_shared: str | None = None

    @property
    def parts(self) -> list[nn.Module]:
        """What has its weights."""
        beside = self.shared_module is not None and not self.shared_role
        return [self.module, self.shared_module] if beside and self.shared_module is not None else [self.module]


class Beside(nn.Module):
    """Parts that read the same and are added up."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of what the parts give."""
        outputs = [part(x) for part in self.parts]
        total: torch.Tensor = sum(output[0] if isinstance(output, tuple) else output for output in outputs)
        return total


@dataclass(frozen=True, slots=True)
class Unfused:
    """A part that runs as transformers wrote it, and why."""

    module: nn.Module
    reason: str


@dataclass(frozen=True, slots=True)
class UnfusedLayer:
    """A decoder layer that runs as transformers wrote it: a layer that is nothing but its mixer, without a residual.

    Attributes:
        name: as in `named_modules`.
        attention: the layer itself.
        residual_scale: factor of what the layer before it adds to the stream.
    """

    name: str
    attention: Unfused
    residual_scale: float = 1.0
    mlp: None = None
    input_norm: None = None
    parallel: bool = False
    rotary_kind: str = ""
    norms: tuple[Norm, ...] = ()
    per_layer: None = None
    output_scale: float = 1.0
    altup: None = None
    laurel: None = None


@dataclass(frozen=True, slots=True)
class PerLayerShape:
    """A third block of a layer, behind the MLP: x += norm(output(activation(gate(x)) * own)) (Gemma 3n and 4).

    Attributes:
        gate, output: linear layers, from the residual stream to `width` numbers and back.
        activation: as in `MlpShape`.
        norm: of the block's output.
        first: column of the layer's own numbers among all layers', see `PerLayerInputs`.
        width: how many they are.
    """

    gate: nn.Module
    output: nn.Module
    activation: str
    norm: Norm
    first: int
    width: int


@dataclass(frozen=True, slots=True)
class PerLayerInputs:
    """Numbers of a token that each layer has of its own: scale * (norm(factor * projection(x)) + row of a table).

    Attributes:
        embedding: the table, [V, L * width]; its output is multiplied by embedding_scale, in its own number format.
        projection: a linear layer that reads the embedded tokens and gives as many.
        factor: of its output.
        norm: over the `width` numbers of a layer.
        scale: of the sum.
        width: numbers of a layer.
        num_rows: of the table that tokens read; those of later ids read the first.
    """

    embedding: nn.Embedding
    embedding_scale: float
    projection: nn.Module
    factor: float
    norm: Norm
    scale: float
    width: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One decoder layer: x += scale * post_attention_norm(attention(input_norm(x))), then the same with the MLP.

    Where norms stand behind the sums, x = norm(x + block(x)), each is the norm before what comes next, and that is
    added to what the norm gives: x = input_norm(x), x += scale * attention(x), and so on. The last norm of a layer is
    the next layer's input_norm, or the model's final one.

    A layer may have one of the two blocks alone (Mamba 2, Nemotron H); the other and its norms are None then.

    Attributes:
        name: as in `named_modules`.
        attention: attention, or what the layer has in its place; what isn't understood runs as it was written.
        parallel: attention and MLP read the same input and are added together: through the same norm (Cohere), or the
            MLP through the mlp_norm (GPT-NeoX).
        residual_scale: factor of what a block adds (Granite).
        rotary_kind: key of the rotary table that this layer takes, "" where there is one only.
        per_layer: a third block, or None.
        output_scale: factor of what leaves the layer (Gemma 4).
        norms_stream: the norms stand behind the sums (BART).
        norm_behind: of the layer's last sum, as long as it is not yet the next layer's input_norm.
        idle: parts through which no text passes, such as attention to an encoder where there is none.
        altup: the layer has several streams, and the others apply to one of them; or None.
        laurel: a branch beside attention, or None.
    """

    name: str
    attention: MixerShape | Unfused | None
    mlp: MlpShape | SparseShape | Unfused | None
    input_norm: Norm | None
    post_attention_norm: Norm | None
    mlp_norm: Norm | None
    post_mlp_norm: Norm | None
    parallel: bool = False
    residual_scale: float = 1.0
    rotary_kind: str = ""
    per_layer: PerLayerShape | None = None
    output_scale: float = 1.0
    norms_stream: bool = False
    norm_behind: Norm | None = None
    idle: tuple[nn.Module, ...] = ()
    altup: AltUpShape | None = None
    laurel: LaurelShape | None = None

    @property
    def norms(self) -> list[Norm]:
        """Those whose weights can be trained, of attention's heads as well."""
        found = [self.input_norm, self.post_attention_norm, self.mlp_norm, self.post_mlp_norm]
        if isinstance(self.attention, AttentionShape | LatentShape):
            found += [self.attention.query_norm, self.attention.key_norm]
        if isinstance(self.attention, AttentionShape):
            found.append(self.attention.output_norm)
        if isinstance(self.mlp, MlpShape):
            found.append(self.mlp.norm)
        if self.per_layer:
            found.append(self.per_layer.norm)
        return [norm for norm in found if norm is not None]


@dataclass(frozen=True, slots=True)
class PositionTable:
    """Positions: row `position + offset` of a table is added to each embedded token.

    Attributes:
        learns: the model lets a gradient reach the table.
    """

    embedding: nn.Embedding
    offset: int
    learns: bool = True

    @property
    def trained(self) -> nn.Parameter | None:
        """The table where it is trained."""
        weight = self.embedding.weight
        return weight if self.learns and weight.requires_grad else None


class Caller(Protocol):
    """Calls what runs as it was written, as the decoder calls it; see `fused.recognise.handed`.

    Attributes:
        uses_embedding: what it hands over is computed from the embedded tokens.
    """

    uses_embedding: bool


@dataclass(frozen=True, slots=True)
class BalanceShape:
    """What a model adds to its mean loss for an even use of its experts, see `fused.balance`.

    Attributes:
        weight: of it.
        num_experts, per_token: of each layer, and of each token as it counts here.
        router: class of the modules in the layers' blocks that give the logits of all experts.
        index: of the logits among their results.
    """

    weight: float
    num_experts: int
    per_token: int
    router: type
    index: int


@dataclass(frozen=True, slots=True)
class Placeholders:
    """Tokens in whose places a model puts images; in a text they are read as padding.

    Attributes:
        ids: of these tokens.
        padding: id of what is read.
    """

    ids: tuple[int, ...]
    padding: int

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the ids of tokens as they are read."""
        is_one = functools.reduce(torch.logical_or, [ids == each for each in self.ids])
        return ids.masked_fill(is_one, self.padding)


@dataclass(frozen=True, slots=True)
class OtherTable:
    """Tokens that a model for images and sounds embeds by a table of their own, also in a text (Gemma 3n).

    Attributes:
        module: gives what is embedded for ids, as it was written.
        first, number: the first of these tokens, and how many there are.
    """

    module: nn.Module
    first: int
    number: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A whole decoder model.

    Attributes:
        embedding: input embedding; its output is multiplied by embedding_scale, in the embedding's own number format.
        rotary: (any tensor of the wanted dtype and device, positions [1, T], rotary_kind) -> cos, sin of
            [1, T, rotary_dim]; None for models without.
        positions: what is added to the embedded tokens, after their factor, or None.
        embedding_norm: a norm of the sum, before the layers (BLOOM), or None.
        per_layer: what each layer's third block reads, or None.
        altup: what makes several streams of one and one of several, or None.
        placeholders: tokens that are read as others, or None.
        other_tables: of tokens that the embedding has no row for.
        balance: what is added to the loss for an even use of experts, or None.
        head: output projection; logits become softcap * tanh(logit_scale * logits / softcap).
        notes: what is not fused and why, a sentence each.
        handing: calls what runs as it was written; None where all is understood.
        begins_as_written: what the first layer is given is computed by the decoder's own code.
    """

    embedding: nn.Embedding
    embedding_scale: float
    layers: tuple[LayerShape | UnfusedLayer, ...]
    final_norm: Norm
    head: nn.Module
    logit_scale: float
    softcap: float | None
    rotary: Callable[[torch.Tensor, torch.Tensor, str], tuple[torch.Tensor, torch.Tensor]] | None
    hidden_size: int
    positions: PositionTable | None = None
    embedding_norm: Norm | None = None
    per_layer: PerLayerInputs | None = None
    altup: AltUpEndsShape | None = None
    placeholders: Placeholders | None = None
    other_tables: tuple[OtherTable, ...] = ()
    balance: BalanceShape | None = None
    notes: list[str] = field(default_factory=list)
    handing: Caller | None = None
    begins_as_written: bool = False

    @property
    def norms(self) -> list[Norm]:
        """All norms whose weights can be trained."""
        first = [self.embedding_norm] if self.embedding_norm else []
        return [*first, self.final_norm, *(norm for layer in self.layers for norm in layer.norms)]

    @property
    def rotary_kinds(self) -> set[str]:
        """Keys of the rotary tables that layers take."""
        mixers = [(layer.rotary_kind, mixer) for layer in self.layers for mixer in branches_of(layer.attention)]
        return {kind for kind, mixer in mixers if isinstance(mixer, AttentionShape | LatentShape) and mixer.rotary}

    @property
    def trained_sinks(self) -> list[nn.Parameter]:
        """The sinks of all layers' attention that are trained."""
        return [each.trained_sinks for each in self.attentions if each.trained_sinks is not None]

    @property
    def mixers(self) -> list[Branch]:
        """What all layers have in attention's place that is understood; parallel ones are two."""
        return [branch for layer in self.layers for branch in branches_of(layer.attention)]

    @property
    def attentions(self) -> list[AttentionShape]:
        """The attention of all layers that have it and are understood."""
        latent = [mixer.inner if isinstance(mixer, LatentShape) else mixer for mixer in self.mixers]
        return [mixer for mixer in latent if isinstance(mixer, AttentionShape)]

    @property
    def latents(self) -> list[LatentShape]:
        """The layers' attention that is latent."""
        return [mixer for mixer in self.mixers if isinstance(mixer, LatentShape)]

    @property
    def deltas(self) -> list[DeltaShape]:
        """The delta rule of all layers that have it."""
        return [mixer for mixer in self.mixers if isinstance(mixer, DeltaShape)]

    @property
    def channel_deltas(self) -> list[ChannelDeltaShape]:
        """The channel-wise delta rule of all layers that have it."""
        return [layer.attention for layer in self.layers if isinstance(layer.attention, ChannelDeltaShape)]

    @property
    def convolutions(self) -> list[ConvolutionShape]:
        """The gated convolution of all layers that have it."""
        return [mixer for mixer in self.mixers if isinstance(mixer, ConvolutionShape)]

    @property
    def scans(self) -> list[StateSpaceShape]:
        """The state-space scan of all layers that have it."""
        return [mixer for mixer in self.mixers if isinstance(mixer, StateSpaceShape)]


class NotFusableError(MessageError):
    """A model whose layers can't be run by the fused path; the message says why in a sentence."""


AnyModel = Any
"""A transformers model, which has no types."""
