"""A decoder run by plain operations from its shape alone: slow, and written after the words of shapes.py.

It is what the fused path is held against, and itself held against transformers, family by family. LoRA acts through
the modules themselves. Numbers are float32, or float64 when the model is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

from tunesmith_engine.altup_shapes import LEAST_SQUARE, AltUpShape
from tunesmith_engine.fused.routing import Router
from tunesmith_engine.mixer_shapes import (
    AttentionShape,
    ChannelDeltaShape,
    ConvolutionShape,
    DeltaShape,
    LatentShape,
    MixerShape,
    Norm,
    ParallelShape,
    Piece,
    StateSpaceShape,
    Temperature,
    branches_of,
)
from tunesmith_engine.shapes import (
    LayerShape,
    MlpShape,
    ModelShape,
    PerLayerInputs,
    PerLayerShape,
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
    x = normalise(x, shape.embedding_norm)
    own = None if shape.per_layer is None else _own_numbers(shape.per_layer, input_ids, x)
    finished: list[tuple[torch.Tensor, torch.Tensor]] = []
    streams = [] if shape.altup is None else [x, *(_as_large(part(x), x) for part in shape.altup.projections)]
    for layer in shape.layers:
        table = _table(shape, layer, x, positions)
        if layer.altup is not None:
            streams = _streams(layer, layer.altup, streams, table, lengths, finished, own)
            continue
        x = _layer(layer, x, table, lengths, finished)
        if layer.per_layer is not None:
            x = x + _third(layer.per_layer, x, own)
        x = x * layer.output_scale
    if shape.altup is not None:
        back = zip(shape.altup.back, streams[1:], strict=True)
        x = sum((_as_large(part(stream), streams[0]) for part, stream in back), streams[0]) / len(streams)
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
    mixers = [each for each in branches_of(layer.attention) if isinstance(each, AttentionShape | LatentShape)]
    if not any(mixer.rotary for mixer in mixers):
        return None
    assert shape.rotary is not None
    cos, sin = shape.rotary(x, positions, layer.rotary_kind)
    return cos[0], sin[0]


def _own_numbers(inputs: PerLayerInputs, input_ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return what all layers have of their own, [T, L * width]."""
    read = input_ids.where(input_ids < inputs.num_rows, 0)
    rows = functional.embedding(read, inputs.embedding.weight) * inputs.embedding_scale
    projected = (inputs.projection(x) * inputs.factor).view(-1, inputs.width)
    return (normalise(projected, inputs.norm).view_as(rows) + rows) * inputs.scale


def _third(shape: PerLayerShape, x: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """norm(output(activation(gate(x)) * own)) with the layer's own columns."""
    gated = ACTIVATIONS[shape.activation](shape.gate(x)) * own[:, shape.first : shape.first + shape.width]
    return normalise(shape.output(gated), shape.norm)


def _as_large(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return x with the root of the mean square of another; one that is almost 0 is divided by the least size."""
    own, wanted = ((part * part).mean(-1, keepdim=True) for part in (x, other))
    return x * torch.sqrt(wanted / own.clamp_min(LEAST_SQUARE))


def _streams(
    layer: LayerShape,
    altup: AltUpShape,
    streams: list[torch.Tensor],
    table: tuple[torch.Tensor, torch.Tensor] | None,
    lengths: Sequence[int],
    finished: list[tuple[torch.Tensor, torch.Tensor]],
    own: torch.Tensor | None,
) -> list[torch.Tensor]:
    """Predict all streams, let one go through the blocks, and correct all by what became of it."""
    number, active = altup.num_streams, altup.active
    p = _coefficients(altup, altup.prediction, streams[active])
    predicted = [
        streams[i] + sum(p[:, [i * number + j]] * streams[j] for j in range(number)) for i in range(number)
    ]
    change = _layer(layer, predicted[active], table, lengths, finished) - predicted[active]
    c = _coefficients(altup, altup.correction, change + predicted[active])
    corrected = [stream + (1.0 + c[:, [i]]) * change for i, stream in enumerate(predicted)]
    if layer.per_layer is None or own is None:
        return corrected
    scale = 1.0 if altup.scale is None else altup.scale.to(own.dtype)
    added = _third(layer.per_layer, corrected[active] * scale, own)
    return [corrected[0], *(stream + added for stream in corrected[1:])]


def _coefficients(altup: AltUpShape, linear: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return a linear layer of the modalities of each token, outside training."""
    e = torch.exp(2.0 * altup.router(normalise(x, altup.norm) * altup.factor))
    values: torch.Tensor = linear((e - 1.0) / (e + 1.0))
    return values


def _layer(
    layer: LayerShape,
    x: torch.Tensor,
    table: tuple[torch.Tensor, torch.Tensor] | None,
    lengths: Sequence[int],
    finished: list[tuple[torch.Tensor, torch.Tensor]],
) -> torch.Tensor:
    """x += scale * post_attention_norm(attention(input_norm(x))), then the same with the MLP, if there are both.

    What a norm behind a sum gives is what the next block's output is added to.
    """
    read = normalise(x, layer.input_norm)
    x = read if layer.norms_stream else x
    attended = torch.zeros_like(x)
    if layer.attention is not None:
        mixed = _mixed(layer.attention, read, table, lengths, finished)
        attended = layer.residual_scale * normalise(mixed, layer.post_attention_norm)
    if layer.mlp is None:
        return x + attended
    if layer.parallel:
        read = read if layer.mlp_norm is None else normalise(x, layer.mlp_norm)
        return x + attended + layer.residual_scale * normalise(_mlp(layer.mlp, read), layer.post_mlp_norm)
    if layer.laurel is not None:
        low = layer.laurel.right(layer.laurel.left(read))
        attended = layer.laurel.factor * (x + attended + read + normalise(low, layer.laurel.norm)) - x
    x = x + attended
    read = normalise(x, layer.mlp_norm)
    x = read if layer.norms_stream else x
    return x + layer.residual_scale * normalise(_mlp(layer.mlp, read), layer.post_mlp_norm)


def _mixed(
    mixer: MixerShape | Unfused,
    read: torch.Tensor,
    table: tuple[torch.Tensor, torch.Tensor] | None,
    lengths: Sequence[int],
    finished: list[tuple[torch.Tensor, torch.Tensor]],
) -> torch.Tensor:
    """Return what a layer has in attention's place gives, [T, hidden]."""
    if isinstance(mixer, ParallelShape):
        attended = _attention(mixer.attention, read, table, lengths, finished)
        return mixer.factors[0] * attended + mixer.factors[1] * _scan(mixer.scan, read, lengths)
    if isinstance(mixer, DeltaShape):
        return _delta(mixer, read, lengths)
    if isinstance(mixer, ChannelDeltaShape):
        return _channel_delta(mixer, read, lengths)
    if isinstance(mixer, StateSpaceShape):
        return _scan(mixer, read, lengths)
    if isinstance(mixer, ConvolutionShape):
        return _convolution(mixer, read, lengths)
    if isinstance(mixer, LatentShape):
        return _latent(mixer, read, table, lengths)
    return _attention(mixer, read, table, lengths, finished)


def _mlp(mlp: MlpShape | SparseShape | Unfused, x: torch.Tensor) -> torch.Tensor:
    """down(activation(gate(x)) * up(x)), or down(activation(up(x))); an unfused part is asked itself."""
    if isinstance(mlp, SparseShape):
        return _sparse(mlp, x)
    if isinstance(mlp, Unfused):
        output = mlp.module(x[None])
        return (output[0] if isinstance(output, tuple) else output).view_as(x)
    if not mlp.gated:
        return _down(mlp, (mlp.function or ACTIVATIONS[mlp.activation])(mlp.inputs[0](x)))
    gate, up = torch.cat([module(x) for module in mlp.inputs], dim=-1).split(mlp.width, dim=-1)
    if mlp.cut is not None:
        mean = gate.mean(-1, keepdim=True)
        spread = torch.sqrt(((gate - mean) ** 2).mean(-1, keepdim=True))
        gate = (gate - mean - mlp.cut * spread).clamp_min(0.0)
    of_gate, of_up = mlp.scales or (1.0, 1.0)
    return _down(mlp, ACTIVATIONS[mlp.activation](gate * of_gate) * (up * of_up))


def _down(mlp: MlpShape, inner: torch.Tensor) -> torch.Tensor:
    """Apply the last product, behind its norm."""
    return mlp.down(normalise(inner, mlp.norm))


def _sparse(shape: SparseShape, x: torch.Tensor) -> torch.Tensor:
    """scale * the weighted sum of the chosen experts, a token at a time, plus what all tokens go through."""
    router, norms = Router(shape, None), shape.branch_norms
    choice = router.choose(x)
    read = x if norms is None else normalise(x, norms.before_experts)
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
            weight = choice.weights[token, number]
            if shape.scores:
                total[token] += _expert(shape, weight * x[token], gate_up[expert], down[expert], expert)
            else:
                total[token] += weight * _expert(shape, read[token], gate_up[expert], down[expert], expert)
    if shape.shared is not None:
        if norms is not None:
            mlp = _mlp(shape.shared, normalise(x, norms.before))
            return normalise(total, norms.behind_experts) + normalise(mlp, norms.behind)
        shared = shape.shared_scale * _mlp(shape.shared, x)
        total = total + (shared if choice.factor is None else shared * choice.factor)
    return total


def _expert(
    shape: SparseShape, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, number: int
) -> torch.Tensor:
    """Return the output of one expert for one token, [hidden]."""
    weights = [weight.t() if shape.transposed else weight for weight in (gate_up, down)]
    biases = [getattr(shape.experts, f"{role}_bias", None) for role in ("gate_up_proj", "down_proj")]
    first, last = (None if bias is None else bias[number] for bias in biases)
    both = functional.linear(x, weights[0], first)
    gate, up = (both[::2], both[1::2]) if shape.gate.in_turn else both.chunk(2)
    if shape.gate.limit:
        gate, up = gate.clamp(max=shape.gate.limit), up.clamp(-shape.gate.limit, shape.gate.limit)
        inner = (up + 1.0) * gate / (1.0 + torch.exp(-shape.gate.alpha * gate))
    else:
        inner = ACTIVATIONS[shape.gate.activation](gate) * up
    return functional.linear(inner, weights[1], last)


def _wrappers(module: Any) -> Iterator[Any]:  # Any: PEFT's layers
    while hasattr(module, "base_layer"):
        yield module
        module = module.base_layer


def _attention(
    shape: AttentionShape,
    x: torch.Tensor,
    table: tuple[torch.Tensor, torch.Tensor] | None,
    lengths: Sequence[int],
    finished: list[tuple[torch.Tensor, torch.Tensor]],
) -> torch.Tensor:
    """Return the output of the output projection, [T, hidden]; the layer's keys and values are appended."""
    projected = _in_order(torch.cat([module(x) for module in shape.inputs], dim=-1), shape.pieces)
    num_query, num_key = shape.num_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    num_value = shape.num_key_value_heads * shape.value_dim
    ends = [num_query, num_query + num_key, num_query + num_key + num_value]
    q, k, v, gates = projected.tensor_split(ends, dim=-1)
    q = _heads(q, shape, shape.query_norm, table)
    if shape.temperature is not None:
        q = q * _warmth(shape.temperature, lengths, q.dtype)
    if shape.source is None:
        k = _heads(k, shape, shape.key_norm, table)
        v = _clipped(v.reshape(len(v), -1, shape.value_dim), shape) * shape.value_scale
        v = normalise(v, shape.value_norm)
    else:
        k, v = finished[shape.source]
    finished.append((k, v))
    outputs = [
        _one_document(shape, *parts) for parts in zip(*(part.split(list(lengths)) for part in (q, k, v)), strict=True)
    ]
    attended = normalise(torch.cat(outputs), shape.output_norm)
    if shape.head_gate:
        opened = torch.log(1.0 + torch.exp(gates)) if shape.head_gate == "softplus" else 1.0 / (1.0 + torch.exp(-gates))
        attended = (attended.unflatten(1, (shape.num_heads, -1)) * opened[..., None]).flatten(1)
    return shape.output(attended / (1.0 + torch.exp(-gates)) if shape.output_gate else attended)


def _warmth(warm: Temperature, lengths: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return what queries are multiplied by, [T, 1, 1]."""
    place = torch.cat([torch.arange(length) for length in lengths]).to(dtype)
    return (1.0 + warm.factor * torch.log(1.0 + ((place + warm.offset) / warm.period).floor()))[:, None, None]


def _latent(
    shape: LatentShape, x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor] | None, lengths: Sequence[int]
) -> torch.Tensor:
    """Return the output of latent attention's block, [T, hidden]: head by head."""
    queries, compressed, *gates = (module(x) for module in shape.inputs)
    if shape.query_expansion is not None:
        queries = shape.query_expansion(normalise(queries, shape.query_norm))
    expanded = shape.expansion(normalise(compressed[:, : shape.latent_dim], shape.key_norm))
    turning = replace(shape.inner, head_dim=shape.turning_dim, interleaved=shape.interleaved)
    shared = _heads(compressed[:, shape.latent_dim :], turning, None, table)[:, 0]
    outputs = []
    for head in range(shape.num_heads):
        q = queries[:, head * shape.inner.head_dim :][:, : shape.inner.head_dim]
        own = expanded[:, head * (shape.plain_dim + shape.value_dim) :]
        turned = _heads(q[:, shape.plain_dim :], turning, None, table)[:, 0]
        q = torch.cat([q[:, : shape.plain_dim], turned], dim=-1)[:, None]
        if shape.temperature is not None:
            q = q * _warmth(shape.temperature, lengths, q.dtype)
        k = torch.cat([own[:, : shape.plain_dim], shared], dim=-1)[:, None]
        v = own[:, shape.plain_dim : shape.plain_dim + shape.value_dim][:, None]
        one = replace(shape.inner, num_heads=1, num_key_value_heads=1)
        documents = zip(*(part.split(list(lengths)) for part in (q, k, v)), strict=True)
        share = 1.0 / (1.0 + torch.exp(-gates[0][:, head, None])) if gates else 1.0
        outputs.append(torch.cat([_one_document(one, *parts) for parts in documents]) * share)
    return shape.output(torch.cat(outputs, dim=-1))


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


def _convolution(shape: ConvolutionShape, x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the output of a gated convolution's block, [T, hidden]: token by token."""
    rows = []
    for projected in shape.inputs[0](x).split(list(lengths)):
        b, c, numbers = projected.chunk(3, dim=-1)
        rows.append(c * _convolved(b * numbers, shape.convolution, shape.bias))
    return shape.output(torch.cat(rows))


def _convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return each channel's sum over a token and the ones before it, [L, channels]."""
    mixed = torch.zeros_like(x) if bias is None else bias.to(x.dtype).repeat(len(x), 1)
    width = weight.shape[1]
    for token in range(len(x)):
        for age in range(min(width, token + 1)):
            mixed[token] += weight[:, width - 1 - age] * x[token - age]
    return mixed


def _scan(shape: StateSpaceShape, x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the output of a state-space scan's block, [T, hidden]: token by token."""
    projected = shape.inputs[0](x)
    if shape.scales is not None:
        projected = projected * shape.scales
    return shape.output(torch.cat([_scan_of_document(shape, part) for part in projected.split(list(lengths))]))


def _scan_of_document(shape: StateSpaceShape, projected: torch.Tensor) -> torch.Tensor:
    """Return what the output projection reads, [L, heads * head_dim], from the input projection's output."""
    num_values, num_states = shape.num_heads * shape.head_dim, shape.num_groups * shape.state_dim
    z, channels, raw = projected.split([num_values, num_values + 2 * num_states, shape.num_heads], dim=-1)
    mixed = _convolved(channels, shape.convolution, shape.convolution_bias)
    mixed = mixed / (1.0 + torch.exp(-mixed))
    outputs = []
    for head in range(shape.num_heads):
        x = mixed[:, head * shape.head_dim :][:, : shape.head_dim]
        first = num_values + head * shape.num_groups // shape.num_heads * shape.state_dim
        b, c = (mixed[:, start:][:, : shape.state_dim] for start in (first, first + num_states))
        steps = torch.log1p(torch.exp(raw[:, head] + shape.step_bias[head])).clamp(*shape.limits)
        state, read = mixed.new_zeros(shape.state_dim, shape.head_dim), []
        for token in range(len(mixed)):
            state = torch.exp(-shape.decay_log[head].exp() * steps[token]) * state
            state = state + steps[token] * torch.outer(b[token], x[token])
            read.append(state.t() @ c[token] + shape.skip[head] * x[token])
        outputs.append(torch.stack(read))
    heads, gate = torch.cat(outputs, dim=-1), z / (1.0 + torch.exp(-z))
    if shape.norm is None:
        return heads * gate
    heads = heads * gate if shape.gate_first else heads
    groups = heads.unflatten(-1, (-1, shape.norm_width))
    normal = (groups / torch.sqrt((groups * groups).mean(-1, keepdim=True) + shape.norm.eps)).flatten(1)
    return normal * shape.norm.weight * (1.0 if shape.gate_first else gate)


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
    mixed = _convolved(channels, shape.convolution, None)
    mixed = mixed / (1.0 + torch.exp(-mixed))
    decays = torch.exp(-shape.decay_log.exp() * torch.log1p(torch.exp(a + shape.decay_bias)))
    strengths = shape.strength / (1.0 + torch.exp(-b))
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


def _channel_delta(shape: ChannelDeltaShape, x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
    """Return the output of the channel-wise delta rule's block, [T, hidden]: token by token."""
    q, k, v, z, a, b = (module(x) for module in shape.inputs)
    z = shape.gate_expansion(z) if shape.gate_expansion is not None else z
    raw = (shape.decay_expansion(a) if shape.decay_expansion is not None else a) + shape.decay_bias
    rate = shape.decay_log.exp().repeat_interleave(shape.key_dim)
    if shape.decay_floor is None:
        decays = torch.exp(-rate * torch.log1p(torch.exp(raw)))
    else:
        decays = torch.exp(shape.decay_floor / (1.0 + torch.exp(-rate * raw)))
    rows = [
        _channel_delta_of_document(shape, *parts)
        for parts in zip(*(part.split(list(lengths)) for part in (torch.cat([q, k, v], 1), decays, b)), strict=True)
    ]
    heads = normalise(torch.cat(rows), shape.norm).flatten(1)
    return shape.output(heads / (1.0 + torch.exp(-z)))


def _channel_delta_of_document(
    shape: ChannelDeltaShape, channels: torch.Tensor, decays: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Return what the states give, [L, heads, value_dim]."""
    mixed = _convolved(channels, shape.convolution, None)
    mixed = mixed / (1.0 + torch.exp(-mixed))
    outputs = []
    for head in range(shape.num_heads):
        own = slice(head * shape.key_dim, (head + 1) * shape.key_dim)
        q, k = (part[:, own] for part in mixed[:, : 2 * shape.num_keys].chunk(2, 1))
        q, k = (part / torch.sqrt((part * part).sum(-1, keepdim=True) + 1e-6) for part in (q, k))
        v = mixed[:, 2 * shape.num_keys + head * shape.value_dim :][:, : shape.value_dim]
        state, read = mixed.new_zeros(shape.key_dim, shape.value_dim), []
        for token in range(len(mixed)):
            state = decays[token, own, None] * state
            wrong = v[token] - state.t() @ k[token]
            state = state + torch.outer(k[token], wrong) / (1.0 + torch.exp(-b[token, head]))
            read.append(state.t() @ q[token] / shape.key_dim**0.5)
        outputs.append(torch.stack(read))
    return torch.stack(outputs, 1)


def _heads(
    x: torch.Tensor, shape: AttentionShape, norm: Norm | None, table: tuple[torch.Tensor, torch.Tensor] | None
) -> torch.Tensor:
    """Return normalised and rotated queries or keys, [T, heads, head_dim]."""
    over_all = norm is not None and norm.weight is not None and norm.weight.shape[0] == x.shape[-1]
    if over_all and x.shape[-1] != shape.head_dim:
        x, norm = normalise(x, norm), None
    heads = _clipped(normalise(x.view(len(x), -1, shape.head_dim), None if shape.norms_last else norm), shape)
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
    return normalise(rotated, norm) if shape.norms_last else rotated


def _clipped(x: torch.Tensor, shape: AttentionShape) -> torch.Tensor:
    """Return numbers within the bounds of a shape."""
    return x if shape.clip is None else x.clamp(-shape.clip, shape.clip)


def _one_document(shape: AttentionShape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the heads' outputs side by side, [L, heads * head_dim]; q, k and v are [L, heads, head_dim]."""
    length, share = len(q), shape.num_heads // shape.num_key_value_heads
    distance = torch.arange(length)[:, None] - torch.arange(length)
    seen = distance >= 0
    if shape.window is not None:
        seen &= distance < shape.window
    if shape.chunk is not None:
        number = torch.arange(length) // shape.chunk
        seen &= number[:, None] == number
    outputs = []
    for head in range(shape.num_heads):
        scores = q[:, head] @ k[:, head // share].t() * shape.scale
        if shape.softcap is not None:
            scores = shape.softcap * torch.tanh(scores / shape.softcap)
        if shape.slopes is not None:
            scores = scores - shape.slopes[head].to(scores.dtype) * distance
        scores = scores.masked_fill(~seen, -torch.inf)
        if shape.sinks is not None:
            scores = torch.cat((scores, shape.sinks[head].to(scores.dtype).expand(length, 1)), -1)
        outputs.append(scores.softmax(-1)[:, :length] @ v[:, head // share])
    return torch.cat(outputs, dim=-1)
