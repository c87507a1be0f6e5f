"""The third block of a layer, and what it reads: read from attributes, then held against the model's own code."""

from __future__ import annotations

import copy
import inspect
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
FACTORS = ("per_layer_model_projection_scale", "per_layer_projection_scale")
"""What transformers calls the factor of the projection."""
NUM_ROWS = "vocab_size_per_layer_input"
"""Tokens from this one on read the table's first row (Gemma 3n)."""
SCALE = "layer_scalar"
"""What leaves the layer is multiplied by it."""

TRIED_SCALE = 0.7
TRIED_ROWS = 3


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

    def added(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the block gives, from what it reads."""
        if self._shape is None:
            return torch.zeros_like(x)
        gated = ACTIVATIONS[self._shape.activation](self._parts[GATE](x)) * self.own
        norm = replace(self._shape.norm, weight=getattr(self._parts[NORM], "weight", None))
        return normalise(self._parts[OUTPUT](gated), norm)

    def after(self, x: torch.Tensor) -> torch.Tensor:
        """Return what leaves the layer, from what is behind its MLP."""
        x = x + self.added(x)
        return x * TRIED_SCALE if self._has_scale else x


class _Wide(Matrix):
    """A linear layer in float32, whatever the number format of what it reads."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return super().forward(hidden_states.float())


class _Reader(nn.Module):
    """Stands for a layer: hands on what it is given, and keeps its own numbers, by whichever place they come."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.own: torch.Tensor | None = None
        names = inspect.signature(inspect.unwrap(original.forward)).parameters
        self._names = [name for name in names if name != "self"]

    def forward(self, *given: Any, **named: Any) -> torch.Tensor:
        """Return the stream."""
        named |= dict(zip(self._names, given, strict=False))
        self.own = named["per_layer_input"]
        stream: torch.Tensor = named[self._names[0]]
        return stream


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
        factor=_rounded(next(getattr(decoder, name) for name in FACTORS if hasattr(decoder, name)), table),
        norm=norm,
        scale=_rounded(decoder.per_layer_input_scale, table),
        width=norm.weight.shape[0],
        num_rows=table.num_embeddings,
    )
    num_layers = decoder.config.num_hidden_layers
    num_columns = linear_sizes(f"{body.name}.{PROJECTION}", projection)[1]
    if not num_columns == table.embedding_dim == num_layers * shape.width:
        raise NotFusableError("The sizes of {name} don't fit each other.", name=f"{body.name}.{TABLE}")
    readers = [_Reader(layer) for layer in body.part(body.layers)[:num_layers]]
    parts |= {body.embedding: embedding, body.layers: nn.ModuleList(readers)}
    parts |= {body.norm: nn.Identity()} if body.norm else {}
    parts["rotary_emb"] = Constant((torch.zeros(1, NUM_TOKENS, 2), torch.zeros(1, NUM_TOKENS, 2)))
    twin, ids = replaced(decoder, parts, {}), torch.arange(NUM_TOKENS)[None]
    twin.config = copy.deepcopy(decoder.config)
    setattr(twin.config, NUM_ROWS, TRIED_ROWS)
    embedded = result_of(body.name, lambda: twin(input_ids=ids, use_cache=False).last_hidden_state)
    projected = (parts[PROJECTION](embedded) * shape.factor).unflatten(-1, (num_layers, shape.width))
    normed = normalise(projected, replace(norm, weight=parts[TABLE_NORM].weight))
    table_rows = parts[TABLE].weight.double() * shape.embedding_scale
    taken = [reader.own for reader in readers]
    for read, num_rows in ((ids, table.num_embeddings), (ids.where(ids < TRIED_ROWS, 0), _num_rows(decoder, table))):
        rows = functional.embedding(read, table_rows).to(table.weight.dtype).float()
        made = (normed + rows.view_as(projected)) * shape.scale
        if all(own is not None and agrees(own, made[:, :, number]) for number, own in enumerate(taken)):
            return replace(shape, num_rows=num_rows)
    raise NotFusableError(
        "{name} ({kind}) makes its per-layer inputs in an unsupported way.",
        name=body.name,
        kind=type(decoder).__name__,
    )


def _num_rows(decoder: Any, table: nn.Embedding) -> int:  # Any: a module whose attributes are its own
    return min(int(getattr(decoder.config, NUM_ROWS)), table.num_embeddings)


def _rounded(factor: float | torch.Tensor, table: nn.Embedding) -> float:
    """Return a factor; one that is a tensor multiplies in the number format of the model."""
    return float(factor.to(table.weight.dtype)) if isinstance(factor, torch.Tensor) else float(factor)
