"""A decoder run by plain operations from its shape alone: slow, and written after the words of shapes.py.

It is what the fused path is held against, and itself held against transformers, family by family. LoRA acts through
the modules themselves. Numbers are float32, or float64 when the model is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

from tunesmith_engine.fused.routing import Router
from tunesmith_engine.shapes import (
    AttentionShape,
    DeltaShape,
    LayerShape,
    MlpShape,
    ModelShape,
    Norm,
    Piece,
    SparseShape,
    Unfused,
)

ACTIVATIONS = {
    "silu": lambda x: x / (1.0 + torch.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1.0 + torch.erf(x / 2.0**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x / (1.0 + torch.exp(-1.702 * x)),
    "relu": lambda x: x.clamp_min(0.0),
    "relu2": lambda x: x.clamp_min(0.0) ** 2,
}


def normalise(x: torch.Tensor, norm: Norm | None) -> torch.Tensor:
    """Apply a norm over the last dimension; None leaves the numbers as they are."""
    if norm is None:
        return x
    if norm.centred:
        x = x - x.mean(-1, keepdim=True)
    x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + norm.eps)
    if norm.weight is None:
        return x
    x = x * (norm.weight.to(x.dtype) + (1.0 if norm.plus_one else 0.0))
    return x if norm.bias is None else x + norm.bias.to(x.dtype)


def hidden_numbers(
    shape: ModelShape, input_ids: torch.Tensor, lengths: Sequence[int], with_final_norm: bool = True
) -> torch.Tensor:
    """Return the numbers before the head, [T, hidden].

    Args:
        shape: the model; its modules are called for every product.
        input_ids: the documents behind each other, [T].
        lengths: tokens of each document; they add up to T.
        with_final_norm: False leaves out the last norm.
    """
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    x = functional.embedding(input_ids, shape.embedding.weight) * shape.embedding_scale
    if shape.positions is not None:
        x = x + shape.positions.embedding.weight[positions[0] + shape.positions.offset]
    for layer in shape.layers:
        x = _layer(layer, x, _table(shape, layer, x, positions), lengths)
    return normalise(x, shape.final_norm) if with_final_norm else x


def logits(shape: ModelShape, hidden: torch.Tensor) -> torch.Tensor:
    """Return the logits, [T, vocabulary]."""
    values = shape.logit_scale * shape.head(hidden)
    return values if shape.softcap is None else shape.softcap * torch.tanh(values / shape.softcap)


def summed_loss(shape: ModelShape, input_ids: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the sum of cross-entropies in nats of each document's next tokens, a scalar."""
    values = logits(shape, hidden_numbers(shape, input_ids, lengths)).log_softmax(-1)
    total, start = values.new_zeros(()), 0
    for length in lengths:
        targets = input_ids[start + 1 : start + length]
        total = total - values[start : start + length - 1].gather(1, targets[:, None]).sum()
        start += length
    return total


def _table(
    shape: ModelShape, layer: LayerShape, x: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return cos and sin, [T, rotary width] each, for a layer that has rotation."""
    if not isinstance(layer.attention, AttentionShape) or not layer.attention.rotary:
        return None
    assert shape.rotary is not None
    cos, sin = shape.rotary(x, positions, layer.rotary_kind)
    return cos[0], sin[0]


def _layer(
    layer: LayerShape, x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor] | None, lengths: Sequence[int]
) -> torch.Tensor:
    """x += scale * post_attention_norm(attention(input_norm(x))), then the same with the MLP."""
    read = normalise(x, layer.input_norm)
    if isinstance(layer.attention, DeltaShape):
        mixed = _delta(layer.attention, read, lengths)
    else:
        mixed = _attention(layer.attention, read, table, lengths)
    attended = layer.residual_scale * normalise(mixed, layer.post_attention_norm)
    if layer.parallel:
        read = read if layer.mlp_norm is None else normalise(x, layer.mlp_norm)
        return x + attended + layer.residual_scale * normalise(_mlp(layer.mlp, read), layer.post_mlp_norm)
    x = x + attended
    return x + layer.residual_scale * normalise(_mlp(layer.mlp, normalise(x, layer.mlp_norm)), layer.post_mlp_norm)


def _mlp(mlp: MlpShape | SparseShape | Unfused, x: torch.Tensor) -> torch.Tensor:
    """down(activation(gate(x)) * up(x)), or down(activation(up(x))); an unfused part is asked itself."""
    if isinstance(mlp, SparseShape):
        return _sparse(mlp, x)
    if isinstance(mlp, Unfused):
        output = mlp.module(x[None])
        return (output[0] if isinstance(output, tuple) else output).view_as(x)
    if not mlp.gated:
        return mlp.down((mlp.function or ACTIVATIONS[mlp.activation])(mlp.inputs[0](x)))
    gate, up = torch.cat([module(x) for module in mlp.inputs], dim=-1).split(mlp.width, dim=-1)
    return mlp.down(ACTIVATIONS[mlp.activation](gate) * up)


def _sparse(shape: SparseShape, x: torch.Tensor) -> torch.Tensor:
    """scale * the weighted sum of the chosen experts, a token at a time, plus what all tokens go through."""
    router = Router(shape, None)
    choice = router.choose(x)
    gate_up, down = shape.experts.gate_up_proj, shape.experts.down_proj
    for wrapper in _wrappers(shape.wrapped):
        delta = wrapper.get_delta_weight("default")
        if wrapper.parameter_name == "gate_up_proj":
            gate_up = gate_up + delta
        else:
            down = down + delta
    total = torch.zeros_like(x)
    for token in range(len(x)):
        for number, expert in enumerate(choice.experts[token].tolist()):
            gate, up = functional.linear(x[token], gate_up[expert]).chunk(2)
            inner = ACTIVATIONS[shape.gate.activation](gate) * up
            output = functional.linear(inner, down[expert])
            total[token] += choice.weights[token, number] * output
    if shape.shared is not None:
        shared = _mlp(shape.shared, x)
        total = total + (shared if choice.factor is None else shared * choice.factor)
    return total


def _wrappers(module: Any) -> Iterator[Any]:  # Any: PEFT's layers
    while hasattr(module, "base_layer"):
        yield module
        module = module.base_layer


def _attention(
    shape: AttentionShape, x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor] | None, lengths: Sequence[int]
) -> torch.Tensor:
    """Return the output of the output projection, [T, hidden]."""
    projected = _in_order(torch.cat([module(x) for module in shape.inputs], dim=-1), shape.pieces)
    num_query, num_key = shape.num_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    q, k, v, gates = projected.tensor_split([num_query, num_query + num_key, num_query + 2 * num_key], dim=-1)
    q, k = _heads(q, shape, shape.query_norm, table), _heads(k, shape, shape.key_norm, table)
    v = v.view(len(v), -1, shape.head_dim)
    outputs = [
        _one_document(shape, *parts) for parts in zip(*(part.split(list(lengths)) for part in (q, k, v)), strict=True)
    ]
    attended = torch.cat(outputs)
    return shape.output(attended / (1.0 + torch.exp(-gates)) if shape.output_gate else attended)


def _in_order(projected: torch.Tensor, pieces: Sequence[Piece] | None) -> torch.Tensor:
    """Return the columns with the pieces behind each other."""
    if pieces is None:
        return projected
    columns = [
        start + piece.start + column
        for piece in pieces
        for start in range(0, piece.count * piece.stride, piece.stride)
        for column in range(piece.width)
    ]
    return projected[:, columns]


def _delta(shape: DeltaShape, x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the output of the gated delta rule's block, [T, hidden]: token by token."""
    projected = _in_order(torch.cat([module(x) for module in shape.inputs], dim=-1), shape.pieces)
    rows = [_delta_of_document(shape, part) for part in projected.split(list(lengths))]
    return shape.output(torch.cat(rows))


def _delta_of_document(shape: DeltaShape, projected: torch.Tensor) -> torch.Tensor:
    """Return what the output projection reads, [L, heads * value_dim], from all inputs' outputs."""
    num_keys, num_values = shape.num_key_heads * shape.key_dim, shape.num_heads * shape.value_dim
    sizes = [2 * num_keys + num_values, num_values, shape.num_heads, shape.num_heads]
    channels, z, b, a = projected.split(sizes, dim=-1)
    mixed = torch.zeros_like(channels)
    width = shape.convolution.shape[1]
    for token in range(len(channels)):
        for age in range(min(width, token + 1)):
            mixed[token] += shape.convolution[:, width - 1 - age] * channels[token - age]
    mixed = mixed / (1.0 + torch.exp(-mixed))
    decays = torch.exp(-shape.decay_log.exp() * torch.log1p(torch.exp(a + shape.decay_bias)))
    strengths = 1.0 / (1.0 + torch.exp(-b))
    outputs = []
    for head in range(shape.num_heads):
        group = head * shape.num_key_heads // shape.num_heads
        q, k = (part[:, group * shape.key_dim :][:, : shape.key_dim] for part in mixed[:, : 2 * num_keys].chunk(2, 1))
        q, k = (part / torch.sqrt((part * part).sum(-1, keepdim=True) + 1e-6) for part in (q, k))
        v = mixed[:, 2 * num_keys + head * shape.value_dim :][:, : shape.value_dim]
        state, read = mixed.new_zeros(shape.key_dim, shape.value_dim), []
        for token in range(len(mixed)):
            state = decays[token, head] * state
            wrong = v[token] - state.t() @ k[token]
            state = state + strengths[token, head] * torch.outer(k[token], wrong)
            read.append(state.t() @ q[token] / shape.key_dim**0.5)
        gate = z[:, head * shape.value_dim :][:, : shape.value_dim]
        outputs.append(normalise(torch.stack(read), shape.norm) * gate / (1.0 + torch.exp(-gate)))
    return torch.cat(outputs, dim=-1)


def _heads(
    x: torch.Tensor, shape: AttentionShape, norm: Norm | None, table: tuple[torch.Tensor, torch.Tensor] | None
) -> torch.Tensor:
    """Return normalised and rotated queries or keys, [T, heads, head_dim]."""
    over_all = norm is not None and norm.weight is not None and norm.weight.shape[0] == x.shape[-1]
    if over_all and x.shape[-1] != shape.head_dim:
        x, norm = normalise(x, norm), None
    heads = normalise(x.view(len(x), -1, shape.head_dim), norm)
    if table is None:
        return heads
    cos, sin = table[0][:, None], table[1][:, None]
    width = cos.shape[-1]
    rotated = heads.clone()
    if shape.interleaved:
        even, odd = heads[..., :width:2], heads[..., 1:width:2]
        rotated[..., :width:2] = even * cos[..., ::2] - odd * sin[..., ::2]
        rotated[..., 1:width:2] = odd * cos[..., 1::2] + even * sin[..., 1::2]
    else:
        half = width // 2
        first, second = heads[..., :half], heads[..., half:width]
        rotated[..., :half] = first * cos[..., :half] - second * sin[..., :half]
        rotated[..., half:width] = second * cos[..., half:] + first * sin[..., half:]
    return rotated


def _one_document(shape: AttentionShape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the heads' outputs side by side, [L, heads * head_dim]; q, k and v are [L, heads, head_dim]."""
    length, share = len(q), shape.num_heads // shape.num_key_value_heads
    distance = torch.arange(length)[:, None] - torch.arange(length)
    seen = distance >= 0
    if shape.window is not None:
        seen &= distance < shape.window
    outputs = []
    for head in range(shape.num_heads):
        scores = q[:, head] @ k[:, head // share].t() * shape.scale
        if shape.softcap is not None:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        outputs.append(scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v[:, head // share])
    return torch.cat(outputs, dim=-1)
