"""Sizes of a model's layers, and random inputs of these sizes: the same numbers in every format, on every device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tunesmith_engine.kernels.expert_rows import CLAMPED
from tunesmith_engine.shapes import AttentionShape, MlpShape, ModelShape, Norm, SparseShape, Unfused

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
        convolution: channels and width of the short convolution; empty where there is none.
        output_gate: attention's output is multiplied by a gate.
        expert_width: numbers of the MLP of each expert; 0 where there are none.
        clamped: experts have gpt-oss's gate, its order of weights, and biases.
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
    convolution: tuple[int, ...] = ()
    output_gate: bool = False
    expert_width: int = 0
    clamped: bool = False


class Inputs:
    """Inputs of one case: the same random numbers in every number format and on every device.

    Attributes:
        dtype: format that is computed in; the values are those that the run's format can hold.
    """

    def __init__(self, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> None:
        self.sizes, self.device, self.dtype = sizes, device, dtype
        self._generator = torch.Generator().manual_seed(SEED)

    def random(self, *shape: int) -> torch.Tensor:
        """Return normal random numbers, contiguous."""
        values = torch.randn(shape, generator=self._generator).to(getattr(torch, self.sizes.dtype))
        return values.to(self.device, self.dtype)

    def rows(self, width: int, num_rows: int = NUM_ROWS) -> torch.Tensor:
        """Return normal random numbers [num_rows, width] with other columns behind them."""
        return self.random(num_rows, width + PADDING)[:, :width]

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return room for a result."""
        return torch.empty(shape, device=self.device, dtype=dtype or self.dtype)

    def integers(self, low: int, high: int, num: int) -> torch.Tensor:
        """Return random integers below `high`."""
        return torch.randint(low, high, (num,), generator=self._generator).to(self.device)

    def norm(self, width: int) -> Norm:
        """Return a norm of the model's kind."""
        sizes = self.sizes
        bias = self.random(width) if sizes.biased else None
        return Norm(self.random(width), 1e-6, sizes.plus_one, sizes.centred, sizes.cast_last, bias=bias)


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
        four_bit: whether its frozen weights are NF4.
        eight_bit: whether products with them are wanted in 8 bits.
        magnitudes: whether the adapter is DoRA.
        dropout: of the adapter.
        noise: whether embedded tokens get noise.
        whole: whether the weights themselves are trained.
        embeds: whether the embedding is trained beside an adapter.
    """
    layer, attention, norm = shape.layers[0], shape.attentions[0], shape.final_norm
    delta = shape.deltas[0] if shape.deltas else None
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
        attention_softcap=attention.softcap,
        window=min((other.window for other in shape.attentions if other.window), default=None),
        embedding_scale=shape.embedding_scale,
        residual_scale=layer.residual_scale,
        four_bit=four_bit,
        eight_bit=eight_bit,
        magnitudes=magnitudes,
        dropout=dropout,
        noise=noise,
        whole=whole,
        embeds=embeds or whole,
        mlp_gated=mlp is None or mlp.gated,
        biased=norm.bias is not None,
        delta_heads=(delta.num_key_heads, delta.num_heads, delta.key_dim, delta.value_dim) if delta else (),
        convolution=tuple(delta.convolution.shape) if delta else (),
        output_gate=attention.output_gate,
        expert_width=experts.width if experts else 0,
        clamped=experts is not None and experts.gate.activation == CLAMPED,
    )


def _dense(mlp: MlpShape | SparseShape | Unfused) -> MlpShape | SparseShape | Unfused | None:
    """Return the MLP that all tokens go through."""
    return mlp.shared if isinstance(mlp, SparseShape) else mlp


def _activation_of(experts: SparseShape | None) -> str:
    return "silu" if experts is None or experts.gate.activation == CLAMPED else experts.gate.activation


def _rotary_width(shape: ModelShape) -> int:
    kinds = [
        layer.rotary_kind
        for layer in shape.layers
        if isinstance(layer.attention, AttentionShape) and layer.attention.rotary
    ]
    if shape.rotary is None or not kinds:
        return 0
    place = torch.zeros(1, device=shape.embedding.weight.device)
    cos, _ = shape.rotary(place, torch.zeros(1, 1, dtype=torch.long, device=place.device), kinds[0])
    return cos.shape[-1]


def _has_head_norms(attention: AttentionShape) -> bool:
    norm = attention.query_norm
    return norm is not None and attention.norms_apart is None
