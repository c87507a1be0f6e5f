"""What lets the tokens of a document see each other: attention, and what layers have in its place, as shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn


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
class Temperature:
    """Queries of position p are multiplied by 1 + factor * log(1 + floor((p + offset) / period)) (Llama 4)."""

    factor: float
    period: float
    offset: float

    def at(self, positions: torch.Tensor) -> torch.Tensor:
        """Return what queries of some positions, [T], are multiplied by, [T] float32."""
        return 1.0 + self.factor * torch.log1p(torch.floor((positions.float() + self.offset) / self.period))


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention of one layer.

    Attributes:
        inputs: the modules q, k, v in this order, or one merged module; each may be a PEFT LoRA layer.
        output: the output projection.
        scale: factor of the scores before the softmax.
        softcap: scores become softcap * tanh(score / softcap); None without.
        window: a token sees itself and window - 1 tokens before it; None for all.
        chunk: a token sees itself and those before it in its chunk of so many tokens of its document (Llama 4).
        sinks: [num_heads]: a score of each head's own that stands among a query's and gives nothing (gpt-oss), or None.
        trained_sinks: the parameter whose values `sinks` has, or None where it is frozen.
        slopes: [num_heads] float32: what a score loses for each token between query and key (ALiBi), or None.
        value_size: of a value head where it is not `head_dim`, else None.
        value_scale: factor of the values (MiMo).
        norms_last: the norms of queries and keys stand behind the rotation (Hunyuan, Llama 4).
        clip: queries, keys and values are held within -clip and clip, before the rotation (OLMo), or None.
        temperature: a factor of the queries by position, or None.
        output_norm: a norm of all heads' outputs together before the output projection (BitNet), or None.
        query_norm, key_norm: norms of width head_dim (each head alone) or of the whole projection (OLMo 2).
        rotary: rotary embedding is applied (some layers of some models have none).
        interleaved: rotation pairs neighbouring numbers (Cohere) instead of halves.
        backwards: the layer's own code turns by the opposite angle (NanoChat); the model's table is for that already.
        output_gate: q gives each head's queries and, behind them, its gate; the output is multiplied by sigmoid(gate).
        head_gate: "sigmoid" or "softplus" of one number for each head, behind q, k and v, multiplies the head's output
            (LFM3, Laguna); "" without.
        pieces: where q, k, v and the gates lie in what the inputs give (GPT-NeoX, Falcon, CodeGen, Qwen3-Next); None
            where they lie in this order.
        value_norm: norm of each value head, without a weight (Gemma 4).
        values_are_keys: the keys as they were before norm and rotation are the values as well; the inputs give q and k.
        source: index of the layer whose finished keys and values this one reads (Gemma 4); the inputs give q alone.
        lends: later layers read this one's.
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
    backwards: bool = False
    output_gate: bool = False
    head_gate: str = ""
    pieces: tuple[Piece, ...] | None = None
    chunk: int | None = None
    sinks: torch.Tensor | None = None
    trained_sinks: nn.Parameter | None = None
    slopes: torch.Tensor | None = None
    value_size: int | None = None
    value_scale: float = 1.0
    norms_last: bool = False
    clip: float | None = None
    temperature: Temperature | None = None
    output_norm: Norm | None = None
    value_norm: Norm | None = None
    values_are_keys: bool = False
    source: int | None = None
    lends: bool = False

    @property
    def steps_apart(self) -> bool:
        """Whether queries and keys take other steps than norms and, behind these, the rotation."""
        apart = self.norms_last or self.clip is not None or self.temperature is not None
        # Norms that don't run with the rotation work in memory of the size of the heads' outputs.
        return apart or (self.norms_apart is not None and self.value_dim < self.head_dim)

    @property
    def value_dim(self) -> int:
        """Size of a value head."""
        return self.value_size or self.head_dim

    @property
    def numbers_per_token(self) -> int:
        """Width of all heads' queries together."""
        return self.num_heads * self.head_dim

    @property
    def output_width(self) -> int:
        """Width of all heads' outputs together."""
        return self.num_heads * self.value_dim

    def part(self, heads: slice, groups: slice) -> AttentionShape:
        """Return the shape of some of the heads with the key heads that they share."""
        sinks, slopes = (None if each is None else each[heads] for each in (self.sinks, self.slopes))
        num_heads, num_groups = heads.stop - heads.start, groups.stop - groups.start
        return replace(self, num_heads=num_heads, num_key_value_heads=num_groups, sinks=sinks, slopes=slopes)

    @property
    def num_columns(self) -> int:
        """Numbers of queries, gates, keys and values that a token has of its own."""
        own = 0 if self.source is not None else self.num_key_value_heads * (self.head_dim + self.value_dim)
        return self.numbers_per_token + own + self.num_gates

    @property
    def num_gates(self) -> int:
        """Gates of a token."""
        return self.output_width if self.output_gate else self.num_heads if self.head_gate else 0

    @property
    def shares(self) -> bool:
        """Whether values have a norm or are keys, or keys and values are those of another layer."""
        has_own_values = self.value_norm is None and not self.values_are_keys
        return not has_own_values or self.source is not None or self.lends

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
    """What Qwen3-Next, Qwen3.5 and OLMo Hybrid have in attention's place: heads with a state, by the gated delta rule.

    The inputs give q, k, v, z, b and a. A short convolution with SiLU goes over q, k and v; each value head then has
    the rule's output o for decays exp(-exp(decay_log) softplus(a + decay_bias)) and strengths sigmoid(b) times
    `strength`, and the block's output is output(norm(o) * silu(z)); see kernels/delta_rule.py.

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
        strength: the most that a token corrects; above 1 a state may turn its sign (OLMo Hybrid's 2).
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
    strength: float = 1.0

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
class ChannelDeltaShape:
    """What Kimi Linear has in most layers in attention's place: the delta rule with a decay for each channel of a key.

    The inputs give q, k, v, then the gates z of the output and the raw gates a of the decays, or latents of either, and
    b. A short convolution with SiLU goes over q, k and v; each head has the rule's output o for the decays of
    kernels/channel_delta.py and strengths sigmoid(b), and the block's output is output(norm(o) * sigmoid(z)).

    Attributes:
        inputs: modules whose outputs, side by side, have what is named above.
        gate_expansion, decay_expansion: from latents to z and to a, or None where the inputs give these.
        gate_columns, decay_columns: of z and of a, or of their latents, in what the inputs give.
        output: the output projection.
        num_heads: of queries, keys and values.
        key_dim, value_dim: of a head.
        convolution: [channels, width] over the channels of q, k and v, the token itself last.
        convolution_bias: [channels] or None.
        decay_log: logarithms of the rates, [num_heads].
        decay_bias: [num_heads * key_dim].
        decay_floor: see `channel_delta.Gates`.
        norm: over value_dim.
    """

    inputs: tuple[nn.Module, ...]
    gate_expansion: nn.Module | None
    decay_expansion: nn.Module | None
    gate_columns: int
    decay_columns: int
    output: nn.Module
    num_heads: int
    key_dim: int
    value_dim: int
    convolution: torch.Tensor
    convolution_bias: torch.Tensor | None
    decay_log: torch.Tensor
    decay_bias: torch.Tensor
    decay_floor: float | None
    norm: Norm

    @property
    def num_keys(self) -> int:
        """Width of all heads' keys."""
        return self.num_heads * self.key_dim

    @property
    def numbers_per_token(self) -> int:
        """Width of all heads' values."""
        return self.num_heads * self.value_dim

    @property
    def num_channels(self) -> int:
        """Width of q, k and v together."""
        return 2 * self.num_keys + self.numbers_per_token

    @property
    def num_columns(self) -> int:
        """Columns of what the inputs give."""
        return self.num_channels + self.gate_columns + self.decay_columns + self.num_heads

    @property
    def num_expanding(self) -> int:
        """Weights of the expansions."""
        of_gates = self.gate_columns * self.numbers_per_token if self.gate_expansion else 0
        return of_gates + (self.decay_columns * self.num_keys if self.decay_expansion else 0)

    @property
    def num_groups(self) -> int:
        """Groups of heads that can be computed apart."""
        return self.num_heads

    @property
    def expansions(self) -> tuple[nn.Module | None, nn.Module | None]:
        """Those of the gates and of the decays."""
        return self.gate_expansion, self.decay_expansion


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """What LFM2 has in most layers in attention's place: a short convolution between two gates.

    The input gives b, c and x, as wide as each other; the block's output is output(c * convolution(b * x)), see
    kernels/gated_convolution.py.

    Attributes:
        inputs: the one module that gives them, in this order.
        output: the output projection.
        convolution: [channels, width], the token itself last.
        bias: [channels] or None.
    """

    inputs: tuple[nn.Module, ...]
    output: nn.Module
    convolution: torch.Tensor
    bias: torch.Tensor | None

    @property
    def numbers_per_token(self) -> int:
        """Channels."""
        return len(self.convolution)

    @property
    def num_groups(self) -> int:
        """One: nothing is worth computing apart."""
        return 1


@dataclass(frozen=True, slots=True)
class StateSpaceShape:
    """What Mamba 2 has in attention's place: heads with a state, by a scan.

    The input gives a gate z, then x, b and c, over which a short convolution with SiLU goes, then raw steps; the
    block's output is output(norm(scan * silu(z))) or output(norm(scan) * silu(z)), see kernels/state_space.py.

    Attributes:
        inputs: the one module that gives them, in this order.
        output: the output projection.
        num_groups: of b and c, which serve consecutive heads.
        state_dim: numbers of b and of c in a group.
        convolution: [channels, width] over the channels of x, b and c, the token itself last.
        convolution_bias: [channels] or None.
        step_bias, decay_log, skip: [num_heads] each.
        limits: between which the steps stay.
        norm: over each `norm_width` numbers, with weights of their own; None: the gate alone.
        gate_first: the product with the gate is normalised.
        scales: the input projection's outputs are multiplied by these first, [columns] in 32 bits (Falcon H1), or None.
    """

    inputs: tuple[nn.Module, ...]
    output: nn.Module
    num_groups: int
    num_heads: int
    state_dim: int
    head_dim: int
    convolution: torch.Tensor
    convolution_bias: torch.Tensor | None
    step_bias: torch.Tensor
    decay_log: torch.Tensor
    skip: torch.Tensor
    limits: tuple[float, float]
    norm: Norm | None
    norm_width: int
    gate_first: bool = True
    scales: torch.Tensor | None = None

    @property
    def num_channels(self) -> int:
        """Width of x, b and c together."""
        return self.numbers_per_token + 2 * self.num_groups * self.state_dim

    @property
    def numbers_per_token(self) -> int:
        """Width of all heads together."""
        return self.num_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class LatentShape:
    """Attention whose keys and values come through a narrow latent vector (DeepSeek).

    The inputs give queries, or their latents, then the latents of keys and values, then the turning part that the keys
    of all heads share, then a gate of each head's output where there are gates. Latents are normalised and expanded. A
    head of queries and keys is a plain part and a turning part, which alone is rotated; see kernels/latent_heads.py.

    Attributes:
        inputs: modules whose outputs, side by side, have what is named above.
        query_norm, query_expansion: of the queries' latents, or both None.
        key_norm, expansion: of the latents of keys and values; each head's plain part of the key and its value.
        output: the output projection.
        num_heads: of queries, keys and values.
        plain_dim, turning_dim, value_dim: widths of the parts of a head.
        latent_dim: width of the latents of keys and values.
        scale, rotary, interleaved, temperature: as in `AttentionShape`.
        output_gate: each head's output is multiplied by sigmoid(its gate) (Ling 3).
    """

    inputs: tuple[nn.Module, ...]
    query_norm: Norm | None
    query_expansion: nn.Module | None
    key_norm: Norm
    expansion: nn.Module
    output: nn.Module
    num_heads: int
    plain_dim: int
    turning_dim: int
    value_dim: int
    latent_dim: int
    scale: float
    rotary: bool = True
    interleaved: bool = False
    output_gate: bool = False
    temperature: Temperature | None = None

    @property
    def inner(self) -> AttentionShape:
        """What attention itself computes, with values as wide as keys."""
        width = self.plain_dim + self.turning_dim
        return AttentionShape((), self.output, self.num_heads, self.num_heads, width, self.scale, rotary=False)

    @property
    def remembered(self) -> AttentionShape:
        """The same over keys and values that are kept, with values of their own width."""
        return replace(self.inner, value_size=self.value_dim)

    @property
    def numbers_per_token(self) -> int:
        """Width of all heads of queries."""
        return self.num_heads * (self.plain_dim + self.turning_dim)

    @property
    def num_groups(self) -> int:
        """Groups of heads that can be computed apart."""
        return self.num_heads

    @property
    def num_query_columns(self) -> int:
        """Columns of queries, or of their latents, in what the inputs give."""
        norm = self.query_norm
        return self.numbers_per_token if norm is None or norm.weight is None else norm.weight.shape[0]

    @property
    def num_columns(self) -> int:
        """Columns of what the inputs give."""
        gates = self.num_heads if self.output_gate else 0
        return self.num_query_columns + self.latent_dim + self.turning_dim + gates

    @property
    def turning_columns(self) -> slice:
        """Where the turning part of the keys is in what the inputs give."""
        first = self.num_query_columns + self.latent_dim
        return slice(first, first + self.turning_dim)

    @property
    def num_expanded(self) -> int:
        """Columns to which the latents of keys and values are expanded."""
        return self.num_heads * (self.plain_dim + self.value_dim)

    @property
    def expansions(self) -> tuple[nn.Module | None, nn.Module | None]:
        """Those of queries and of keys and values."""
        return self.query_expansion, self.expansion

    @property
    def num_expanding(self) -> int:
        """Weights of the expansions."""
        of_queries = 0 if self.query_expansion is None else self.num_query_columns * self.numbers_per_token
        return of_queries + self.latent_dim * self.num_expanded


@dataclass(frozen=True, slots=True)
class ParallelShape:
    """Attention and a state-space scan that read the same norm (Falcon H1): factors times their outputs are added.

    Attributes:
        attention: its scale and its factor have what its input is multiplied by in them.
        scan: beside it.
        factors: of the outputs of both.
        input_factor: what attention's input is multiplied by; its projections have no bias where that isn't 1.
    """

    attention: AttentionShape
    scan: StateSpaceShape
    factors: tuple[float, float]
    input_factor: float = 1.0

    @property
    def numbers_per_token(self) -> int:
        """Width of all heads of both."""
        return self.attention.numbers_per_token + self.scan.numbers_per_token


Branch = AttentionShape | DeltaShape | ChannelDeltaShape | ConvolutionShape | StateSpaceShape | LatentShape
MixerShape = Branch | ParallelShape
"""What lets the tokens of a document see each other."""


def branches_of(mixer: object) -> list[Branch]:
    """Return what a layer has in attention's place that is understood: itself, the two of a parallel one, or none."""
    if isinstance(mixer, ParallelShape):
        return [mixer.attention, mixer.scan]
    return [mixer] if isinstance(mixer, Branch) else []
