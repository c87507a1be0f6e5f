"""Sizes of a model's layers, and random inputs of these sizes: the same numbers in every format, on every device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tunesmith_engine.kernels.expert_rows import CLAMPED
from tunesmith_engine.mixer_shapes import AttentionShape, Norm, branches_of
from tunesmith_engine.shapes import MlpShape, ModelShape, SparseShape, Unfused

SEED = 7
NUM_ROWS = 37
"""Tokens of a case: no multiple of a block, so that the masks of the last block matter."""

PADDING = 64
"""Columns behind each input, as behind the activations of a run: rows are not contiguous."""

Results = dict[str, torch.Tensor]
"""What a case has computed, by names for a person."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Widths and variants of a model's layers; plain values only, for they go to a child process.

    Attributes:
        dtype: number format of a run, such as "bfloat16".
        mlp: width inside the MLP; 0 where it is not fused.
        num_heads: 0 where no attention is fused.
        mlp_gated: the MLP has a gate.
        biased: norms have biases.
        rotary: numbers of each head that are rotated; 0 for none.
        four_bit: frozen weights are NF4.
        eight_bit: products with frozen weights are in 8 bits.
        magnitudes: DoRA scales the rows of weights.
        dropout: share of the adapters' inputs that is dropped.
        noise: whether embedded tokens get noise.
        whole: the weights themselves are trained.
        embeds: the embedding is trained, whole or in part.
        delta_heads: key heads and value heads of the gated delta rule, and their sizes; empty where there are none.
        channel_delta: heads of the channel-wise delta rule, the widths of their keys and values, and 1 where decays
            have a floor; empty where there is none.
        convolution: channels and width of the short convolution; empty where there is none.
        gated_convolution: the same of the convolution between gates.
        scan: groups and heads of the state-space scan, numbers of a state and of a head, the width of the gated norm's
            groups or 0, and 1 where the gate comes first; empty where there is none.
        output_gate: attention's output is multiplied by a gate.
        sinks, slopes: attention has such scores.
        latent: heads of latent attention, the widths of their plain, turning and value parts, and whether rotation
            pairs neighbours; empty where there is none.
        value_norm: each value head has a norm without a weight.
        expert_width: numbers of the MLP of each expert; 0 where there are none.
        clamped: experts have gpt-oss's gate, its order of weights, and biases.
        wide_heads: queries' heads, keys' heads and their numbers in layers with wider heads than the first; ()
            without any.
        others: as in `shapes`.
    """

    dtype: str
    hidden: int
    mlp: int
    num_heads: int
    num_key_value_heads: int
    head_dim: int
    rotary: int
    vocabulary: int
    activation: str = "silu"
    plus_one: bool = False
    centred: bool = False
    cast_last: bool = False
    head_norms: bool = False
    interleaved: bool = False
    logit_scale: float = 1.0
    softcap: float | None = None
    attention_softcap: float | None = None
    window: int | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    four_bit: bool = False
    eight_bit: bool = False
    magnitudes: bool = False
    dropout: float = 0.0
    noise: bool = False
    whole: bool = False
    embeds: bool = False
    mlp_gated: bool = True
    biased: bool = False
    delta_heads: tuple[int, ...] = ()
    channel_delta: tuple[int, ...] = ()
    convolution: tuple[int, ...] = ()
    output_gate: bool = False
    sinks: bool = False
    slopes: bool = False
    chunk: int | None = None
    value_size: int | None = None
    gated_convolution: tuple[int, ...] = ()
    scan: tuple[int, ...] = ()
    latent: tuple[int, ...] = ()
    value_norm: bool = False
    expert_width: int = 0
    clamped: bool = False
    wide_heads: tuple[int, ...] = ()

    @property
    def value_dim(self) -> int:
        """Size of a value head."""
        return self.value_size or self.head_dim


class Inputs:
    """Inputs of one case: the same random numbers in every number format and on every device.

    Attributes:
        dtype: format that is computed in; the values are those that the run's format can hold.
    """

    def __init__(self, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> None:
        self.sizes, self.device, self.dtype = sizes, device, dtype
        self._generator = torch.Generator().manual_seed(SEED)
        self._drawn: list[torch.Tensor] = []
        self._num_used = 0

    def again(self, dtype: torch.dtype) -> Inputs:
        """Return the inputs from the first on, in another format; what was drawn is not drawn once more."""
        other = Inputs(self.sizes, self.device, dtype)
        other._generator, other._drawn = self._generator, self._drawn
        return other

    def random(self, *shape: int) -> torch.Tensor:
        """Return normal random numbers, contiguous."""
        values = self._next(lambda: torch.randn(shape, generator=self._generator).to(getattr(torch, self.sizes.dtype)))
        return values.to(self.device, self.dtype, copy=True)

    def _next(self, draw: Callable[[], torch.Tensor]) -> torch.Tensor:
        if self._num_used == len(self._drawn):
            self._drawn.append(draw())
        self._num_used += 1
        return self._drawn[self._num_used - 1]

    def rows(self, width: int, num_rows: int = NUM_ROWS) -> torch.Tensor:
        """Return normal random numbers [num_rows, width] with other columns behind them."""
        return self.random(num_rows, width + PADDING)[:, :width]

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return room for a result."""
        return torch.empty(shape, device=self.device, dtype=dtype or self.dtype)

    def integers(self, low: int, high: int, num: int) -> torch.Tensor:
        """Return random integers below `high`."""
        values = self._next(lambda: torch.randint(low, high, (num,), generator=self._generator))
        return values.to(self.device, copy=True)

    def attention(self, window: int | None, chunk: int | None, wide: bool = False) -> AttentionShape:
        """Return attention of the model's kind, with scores of its heads' own where it has them.

        Args:
            window, chunk: what a token sees.
            wide: with the model's widest heads.
        """
        sizes = self.sizes
        of_first = sizes.num_heads, sizes.num_key_value_heads, sizes.head_dim
        heads, groups, width = sizes.wide_heads if wide else of_first
        per_head = [torch.linspace(end, 0.01, heads, device=self.device) for end in (2.0, 0.5)]
        return AttentionShape(
            inputs=(),
            output=torch.nn.Identity(),
            num_heads=heads,
            num_key_value_heads=groups,
            head_dim=width,
            scale=width**-0.5,
            softcap=sizes.attention_softcap,
            window=window,
            chunk=chunk,
            sinks=per_head[0] if sizes.sinks else None,
            slopes=per_head[1] if sizes.slopes else None,
            value_size=None if wide else sizes.value_size,
        )

    def norm(self, width: int) -> Norm:
        """Return a norm of the model's kind."""
        sizes = self.sizes
        bias = self.random(width) if sizes.biased else None
        return Norm(self.random(width), 1e-6, sizes.plus_one, sizes.centred, sizes.cast_last, bias=bias)


NONE = AttentionShape((), nn.Identity(), num_heads=0, num_key_value_heads=0, head_dim=0, scale=1.0)
"""Of a model whose attention runs as it was written in every layer."""


def sizes_of(
    shape: ModelShape,
    dtype: torch.dtype,
    four_bit: bool,
    eight_bit: bool = False,
    magnitudes: bool = False,
    dropout: float = 0.0,
    noise: bool = False,
    whole: bool = False,
    embeds: bool = False,
) -> Sizes:
    """Return the sizes of a model's layers; those of the first layer of each kind stand for all.

    Args:
        shape: the recognised model.
        dtype: number format of the run.
        four_bit, eight_bit: whether its frozen weights are NF4, and whether products with them are wanted in 8 bits.
        magnitudes: whether the adapter is DoRA.
        dropout: of the adapter.
        noise, whole: whether embedded tokens get noise, and whether the weights themselves are trained.
        embeds: whether the embedding is trained beside an adapter.
    """
    attention, norm = shape.attentions[0] if shape.attentions else NONE, shape.final_norm
    experts = next((each.mlp for each in shape.layers if isinstance(each.mlp, SparseShape)), None)
    mlps = [mlp for each in shape.layers if isinstance(mlp := _dense(each.mlp), MlpShape) and mlp.function is None]
    mlp = mlps[0] if mlps else None
    return Sizes(
        dtype=str(dtype).removeprefix("torch."),
        hidden=shape.hidden_size,
        mlp=mlp.width if mlp else 0,
        num_heads=attention.num_heads,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        rotary=_rotary_width(shape),
        vocabulary=shape.embedding.num_embeddings,
        activation=mlp.activation if mlp else _activation_of(experts),
        plus_one=norm.plus_one,
        centred=norm.centred,
        cast_last=norm.cast_last,
        head_norms=_has_head_norms(attention),
        interleaved=attention.interleaved,
        logit_scale=shape.logit_scale,
        softcap=shape.softcap,
        embedding_scale=shape.embedding_scale,
        residual_scale=shape.layers[0].residual_scale,
        four_bit=four_bit,
        eight_bit=eight_bit,
        magnitudes=magnitudes,
        dropout=dropout,
        noise=noise,
        whole=whole,
        embeds=embeds or whole,
        mlp_gated=mlp is None or mlp.gated,
        biased=norm.bias is not None,
        **_states(shape),
        expert_width=experts.width if experts else 0,
        clamped=experts is not None and experts.gate.activation == CLAMPED,
        **_kinds_of_scores(shape),
    )


def _kinds_of_scores(shape: ModelShape) -> dict[str, Any]:
    """Return what kinds of attention the layers of a model have, as `Sizes` names them."""
    attentions = shape.attentions
    widest = max(attentions, key=lambda each: each.head_dim, default=NONE)
    is_wider = bool(attentions) and widest.head_dim > attentions[0].head_dim
    return {
        "wide_heads": (widest.num_heads, widest.num_key_value_heads, widest.head_dim) if is_wider else (),
        "window": min((each.window for each in attentions if each.window), default=None),
        "chunk": min((each.chunk for each in attentions if each.chunk), default=None),
        "latent": _latent(shape),
        "value_norm": any(each.value_norm is not None for each in attentions),
        "sinks": any(each.sinks is not None for each in attentions),
        "slopes": any(each.slopes is not None for each in attentions),
        "value_size": attentions[0].value_size if attentions else None,
        "attention_softcap": attentions[0].softcap if attentions else None,
        "output_gate": attentions[0].output_gate if attentions else False,
    }


def _states(shape: ModelShape) -> dict[str, Any]:
    """Return the sizes of what stands in attention's place, as `Sizes` names them."""
    return {
        "delta_heads": _delta_heads(shape),
        "channel_delta": _channel_delta(shape),
        "convolution": _convolution(shape),
        "gated_convolution": tuple(shape.convolutions[0].convolution.shape) if shape.convolutions else (),
        "scan": _scan(shape),
    }


def _delta_heads(shape: ModelShape) -> tuple[int, ...]:
    return next((d.num_key_heads, d.num_heads, d.key_dim, d.value_dim) for d in shape.deltas) if shape.deltas else ()


def _channel_delta(shape: ModelShape) -> tuple[int, ...]:
    for rule in shape.channel_deltas:
        return rule.num_heads, rule.key_dim, rule.value_dim, int(rule.decay_floor is not None)
    return ()


def _convolution(shape: ModelShape) -> tuple[int, ...]:
    """Return the sizes of the short convolution before a rule or a scan."""
    rules = [each.convolution for each in shape.deltas] + [each.convolution for each in shape.channel_deltas]
    weights = rules + [each.convolution for each in shape.scans]
    return tuple(weights[0].shape) if weights else ()


def _scan(shape: ModelShape) -> tuple[int, ...]:
    for scan in shape.scans:
        sizes = scan.num_groups, scan.num_heads, scan.state_dim, scan.head_dim
        return *sizes, scan.norm_width, int(scan.gate_first)
    return ()


def _latent(shape: ModelShape) -> tuple[int, ...]:
    if not shape.latents:
        return ()
    latent = shape.latents[0]
    return latent.num_heads, latent.plain_dim, latent.turning_dim, latent.value_dim, int(latent.interleaved)


def _dense(mlp: MlpShape | SparseShape | Unfused | None) -> MlpShape | SparseShape | Unfused | None:
    """Return the MLP that all tokens go through."""
    return mlp.shared if isinstance(mlp, SparseShape) else mlp


def _activation_of(experts: SparseShape | None) -> str:
    return "silu" if experts is None or experts.gate.activation == CLAMPED else experts.gate.activation


def _rotary_width(shape: ModelShape) -> int:
    kinds = [
        layer.rotary_kind
        for layer in shape.layers
        for mixer in branches_of(layer.attention)
        if isinstance(mixer, AttentionShape) and mixer.rotary
    ]
    if shape.rotary is None or not kinds:
        return 0
    place = torch.zeros(1, device=shape.embedding.weight.device)
    cos, _ = shape.rotary(place, torch.zeros(1, 1, dtype=torch.long, device=place.device), kinds[0])
    return cos.shape[-1]


def _has_head_norms(attention: AttentionShape) -> bool:
    norm = attention.query_norm
    return norm is not None and attention.norms_apart is None
