"""The third block of a layer, and what it reads: read from attributes, then held against the model's own code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.recognise.body import Body
from tunesmith_engine.fused.recognise.parts import (
    ACTIVATIONS,
    activation_name,
    linear_sizes,
    normalise,
    read_norm,
)
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Constant,
    Matrix,
    StandIns,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.model.saved_modules import plain
from tunesmith_engine.shapes import NotFusableError, PerLayerInputs, PerLayerShape

GATE, OUTPUT, NORM = "per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"
TABLE, PROJECTION, TABLE_NORM = "embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm"
SCALE = "layer_scalar"
"""What leaves the layer is multiplied by it."""

TRIED_SCALE = 0.7


def read_block(name: str, module: nn.Module, index: int) -> PerLayerShape | None:
    """Return the third block that a layer's attributes tell of; None where there is none.

    Raises:
        NotFusableError: a part of it isn't understood.
    """
    if not hasattr(module, GATE):
        return None
    gate, output = getattr(module, GATE), getattr(module, OUTPUT)
    _, width = linear_sizes(f"{name}.{GATE}", gate)
    linear_sizes(f"{name}.{OUTPUT}", output)
    norm = read_norm(f"{name}.{NORM}", getattr(module, NORM))
    activation = activation_name(getattr(module, "act_fn"))  # noqa: B009 - a module's part has no type of its own
    return PerLayerShape(gate, output, activation, norm, index * width, width)


def read_scale(module: nn.Module) -> float:
    """Return the factor of what leaves a layer."""
    return float(module._buffers[SCALE]) if module._buffers.get(SCALE) is not None else 1.0


class TriedBlock:
    """A third block, and a factor of what leaves the layer, on stand-ins.

    Attributes:
        own: what the layer is handed, [1, T, width].
    """

    def __init__(self, module: nn.Module, shape: PerLayerShape | None, make: StandIns) -> None:
        self.own = make.numbers(1, NUM_TOKENS, WIDTH)
        self._has_scale, self._shape = SCALE in module._buffers, shape
        self._parts: dict[str, nn.Module] = {}
        if shape:
            self._parts = {GATE: make.matrix(WIDTH, WIDTH), OUTPUT: make.matrix(WIDTH, WIDTH)}
            self._parts[NORM] = make.norm(getattr(module, NORM), WIDTH)

    def put(self, twin: nn.Module) -> None:
        """Give a layer's twin the stand-ins."""
        twin._modules = {**twin._modules, **self._parts}
        if self._has_scale:
            twin._buffers[SCALE] = torch.tensor([TRIED_SCALE])

    def after(self, x: torch.Tensor) -> torch.Tensor:
        """Return what leaves the layer, from what is behind its MLP."""
        if self._shape:
            gated = ACTIVATIONS[self._shape.activation](self._parts[GATE](x)) * self.own
            norm = replace(self._shape.norm, weight=getattr(self._parts[NORM], "weight", None))
            x = x + normalise(self._parts[OUTPUT](gated), norm)
        return x * TRIED_SCALE if self._has_scale else x


class _Wide(Matrix):
    """A linear layer in float32, whatever the number format of what it reads."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return super().forward(hidden_states.float())


class _Reader(nn.Module):
    """Stands for a layer: hands on what it is given, and keeps its own numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.own: torch.Tensor | None = None

    def forward(self, hidden_states: torch.Tensor, per_layer_input: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return the stream."""
        self.own = per_layer_input
        return hidden_states


def stand_ins(body: Body, make: StandIns) -> dict[str, nn.Module]:
    """Return stand-ins for the parts of a decoder that make what layers have of their own; none where it has none."""
    table = getattr(body.module, TABLE, None)
    if table is None:
        return {}
    table = plain(table)
    weight = make.numbers(NUM_TOKENS, table.embedding_dim).to(table.weight.dtype)
    rows = replaced(table, {}, {"weight": nn.Parameter(weight, requires_grad=False)})
    rows.padding_idx = None
    norm = getattr(body.module, TABLE_NORM)
    return {
        TABLE: rows,
        PROJECTION: _Wide(make.matrix(WIDTH, table.embedding_dim).weight),
        TABLE_NORM: make.norm(norm, norm.weight.shape[0]),
    }


def read_inputs(body: Body, embedding: nn.Module) -> PerLayerInputs | None:
    """Return how what layers have of their own is made; None where they have nothing.

    Args:
        body: the decoder.
        embedding: a stand-in for its embedding, of `NUM_TOKENS` tokens and `WIDTH` numbers.

    Raises:
        NotFusableError: it is made in a way that we don't know.
    """
    decoder, make = body.module, StandIns()
    parts = stand_ins(body, make)
    if not parts:
        return None
    table, projection = plain(getattr(decoder, TABLE)), getattr(decoder, PROJECTION)
    norm = read_norm(f"{body.name}.{TABLE_NORM}", getattr(decoder, TABLE_NORM))
    assert norm.weight is not None, "read_norm refuses others"
    shape = PerLayerInputs(
        embedding=table,
        embedding_scale=float(torch.as_tensor(getattr(table, "embed_scale", 1.0)).to(table.weight.dtype)),
        projection=projection,
        factor=float(decoder.per_layer_model_projection_scale),
        norm=norm,
        scale=float(decoder.per_layer_input_scale),
        width=norm.weight.shape[0],
    )
    num_layers = decoder.config.num_hidden_layers
    num_columns = linear_sizes(f"{body.name}.{PROJECTION}", projection)[1]
    if not num_columns == table.embedding_dim == num_layers * shape.width:
        raise NotFusableError("The sizes of {name} don't fit each other.", name=f"{body.name}.{TABLE}")
    readers = [_Reader() for _ in range(num_layers)]
    parts |= {body.embedding: embedding, body.layers: nn.ModuleList(readers)}
    parts |= {body.norm: nn.Identity()} if body.norm else {}
    parts["rotary_emb"] = Constant((torch.zeros(1, NUM_TOKENS, 2), torch.zeros(1, NUM_TOKENS, 2)))
    twin, ids = replaced(decoder, parts, {}), torch.arange(NUM_TOKENS)[None]
    embedded = result_of(body.name, lambda: twin(input_ids=ids, use_cache=False).last_hidden_state)
    rows = functional.embedding(ids, parts[TABLE].weight.double()) * shape.embedding_scale
    rows = rows.to(table.weight.dtype).float()
    projected = (parts[PROJECTION](embedded) * shape.factor).unflatten(-1, (num_layers, shape.width))
    made = normalise(projected, replace(norm, weight=parts[TABLE_NORM].weight)) + rows.view_as(projected)
    taken = [reader.own for reader in readers]
    if not all(
        own is not None and agrees(own, made[:, :, number] * shape.scale) for number, own in enumerate(taken)
    ):
        raise NotFusableError(
            "{name} ({kind}) makes its per-layer inputs in an unsupported way.",
            name=body.name,
            kind=type(decoder).__name__,
        )
    return shape
