"""Reads a plain transformers model, with or without PEFT's LoRA inside, as the shape that the fused path runs.

Nothing goes by a family's name. Attributes say the numbers; the words in the code of each forward pass say which of
them are used and whether there is a step that we don't know; and each part's own code, run on small stand-ins, must
give what was read from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from tunesmith_core.messages import Message
from tunesmith_engine.fused.recognise import altup, words
from tunesmith_engine.fused.recognise.attention import Sight
from tunesmith_engine.fused.recognise.body import Body, body_of, head_of
from tunesmith_engine.fused.recognise.handed import Handing
from tunesmith_engine.fused.recognise.layer import blocks_of, mixer_of, read_as_written, read_layer
from tunesmith_engine.fused.recognise.model import (
    check_tables,
    embedding_of,
    find_decoder,
    read_altup,
    read_balance,
    read_embedding,
    read_layer_inputs,
    read_logits,
    read_other_tables,
    read_per_layer,
    read_placeholders,
)
from tunesmith_engine.fused.recognise.norms_behind import with_norms_before
from tunesmith_engine.fused.recognise.rotary import RotaryTables, rotary_tables
from tunesmith_engine.fused.recognise.sharing import Lent
from tunesmith_engine.mixer_shapes import AttentionShape, ChannelDeltaShape, LatentShape, Norm, branches_of
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.saved_modules import plain, trained_weight
from tunesmith_engine.shapes import (
    AnyModel,
    LayerShape,
    ModelShape,
    NotFusableError,
    PerLayerInputs,
    PositionTable,
    SparseShape,
    Unfused,
    UnfusedLayer,
)

OF_IMAGES = "vision"
"""Attention that is causal among the tokens of texts."""

CHUNKED = "chunked_attention"
KINDS = ("", "full_attention", "sliding_attention", "linear_attention", "conv", CHUNKED)
"""Of layers, as configs name them."""

LAYER_TYPES = frozenset({"layer_types", "layers_block_type"})


def recognise(model: AnyModel) -> ModelShape:
    """Return what a causal language model looks like to the fused path.

    Args:
        model: a transformers model or a PeftModel around one.

    Raises:
        NotFusableError: a part isn't understood; the sentence names it.
    """
    try:
        return _read(model)
    except AttributeError as error:
        # Attributes are all that we go by, so one that is missing means that this is another kind of model.
        raise NotFusableError(
            "{kind} is missing a part that is needed: {error}.", kind=type(model).__name__, error=error
        ) from error


def _read(model: AnyModel) -> ModelShape:
    """Do what `recognise` says; a part that is missing shows as an AttributeError."""
    whole = base_model(model)
    body = find_decoder(whole)
    _check_width(body, embedding_of(body))
    streams = read_altup(body)
    body = altup.with_one_stream(body)
    reader = _Layers(body, isinstance(model, FullModel))
    layers, last_norm = with_norms_before(body, reader.read())
    embedding, scale, positions, embedding_norm, begins_as_written = reader.begins()
    logit_scale, softcap = read_logits(whole)
    shape = ModelShape(
        embedding=embedding,
        embedding_scale=scale,
        layers=layers,
        final_norm=last_norm,
        head=plain(getattr(whole, head_of(whole))),
        logit_scale=logit_scale,
        softcap=softcap,
        rotary=_rotary(body, layers),
        hidden_size=embedding.embedding_dim,
        positions=positions,
        embedding_norm=embedding_norm,
        per_layer=_read_per_layer(body, layers),
        altup=streams,
        placeholders=read_placeholders(body, getattr(whole, body_of(whole))),
        other_tables=read_other_tables(body, getattr(whole, body_of(whole))),
        balance=read_balance(whole, body, layers),
        handing=reader.handing,
        begins_as_written=begins_as_written,
    )
    shape.notes.extend([*reader.notes, *_check_trained(model, body, shape)])
    return shape


def _check_width(body: Body, embedding: nn.Embedding) -> None:
    """Refuse a projection between the embedding and the layers (OPT 350M), which every trial would stumble over.

    Raises:
        NotFusableError: there is one.
    """
    hidden_size = getattr(body.module.config, "hidden_size", embedding.embedding_dim)
    if hidden_size != embedding.embedding_dim:
        raise NotFusableError(
            "{name} turns embeddings of {width:,} numbers into the {hidden:,} that its layers read, which is not "
            "supported.",
            name=body.name,
            width=embedding.embedding_dim,
            hidden=hidden_size,
        )


class _Layers:
    """Reads all layers of a decoder, as much as is understood of each.

    Attributes:
        handing: calls what runs as it was written; None where all is understood.
        notes: sentences about what else runs as it was written.
    """

    def __init__(self, body: Body, is_full: bool) -> None:
        self._body, self._is_full = body, is_full
        self.handing: Handing | None = None
        self._slopes: torch.Tensor | None = None
        self._lent: dict[str, Lent] = {}
        self.notes: list[str] = []

    def read(self) -> tuple[LayerShape | UnfusedLayer, ...]:
        """Return the layers; the decoder hands each its mask and its rotary table by the config's `layer_types`."""
        body, config = self._body, self._body.module.config
        if getattr(config, "use_bidirectional_attention", False) not in (False, None, OF_IMAGES):
            raise NotFusableError("The decoder's attention is not causal.")
        modules = list(body.part(body.layers)[: body.num_layers])
        try:
            known = words.MODEL | words.OWN_INPUTS_MODEL | words.BLOCKS_MODEL | words.ALTUP_MODEL
            words.check_words(body.name, body.module, known)
            self._slopes = read_layer_inputs(body)
            tables = rotary_tables(body.module, _mixers(modules))
            if tables and tables.has_kinds:
                kinds = [tables.kind(config, index, config.layer_types[index]) for index in range(len(modules))]
                check_tables(body, tables, [kind or "" for kind in kinds])
            read = partial(self._read_whole, tables)
        except NotFusableError as error:
            return tuple(self._read_rest(modules, error.message))
        shapes: list[LayerShape | UnfusedLayer] = []
        for index, module in enumerate(modules):
            try:
                shapes.append(read(index, module))
            except NotFusableError as error:
                shapes.append(self._read_less(index, module, error.message, shapes))
        return _with_lenders(shapes)

    def begins(self) -> tuple[nn.Embedding, float, PositionTable | None, Norm | None, bool]:
        """Return what `read_embedding` does, and whether the decoder's own code computes the first layer's input.

        Raises:
            NotFusableError: the embedding is none.
        """
        try:
            return *read_embedding(self._body), False
        except NotFusableError as error:
            embedding = plain(self._body.part(self._body.embedding))
            if not isinstance(embedding, nn.Embedding):
                raise
            handing = self._handing()
            if handing.layer_call(0).hidden.shape[-1] != embedding.embedding_dim:
                raise
            handing.uses_embedding = True
            self.notes.append(
                Message("What the first layer reads is computed in plain PyTorch. {reason}", reason=error.message)
            )
            return embedding, 1.0, None, None, True

    def _handing(self) -> Handing:
        if altup.has_streams(self._body.part(self._body.layers)[0]):
            raise NotFusableError("{name} hands its layers several streams.", name=self._body.name)
        if self.handing is None:
            embedding = plain(self._body.part(self._body.embedding))
            self.handing = Handing.of(self._body, self._body.num_layers, embedding.embedding_dim)
        return self.handing

    def _read_rest(self, modules: list[nn.Module], reason: str) -> list[LayerShape | UnfusedLayer]:
        """Read layers whose mixers all run as they were written."""
        shapes: list[LayerShape | UnfusedLayer] = []
        for index, module in enumerate(modules):
            shapes.append(self._read_less(index, module, reason, shapes))
        return shapes

    def _read_less(
        self, index: int, module: nn.Module, reason: str, before: list[LayerShape | UnfusedLayer]
    ) -> LayerShape | UnfusedLayer:
        label = f"{self._body.name}.{self._body.layers}"
        scale = before[-1].residual_scale if before else 1.0
        try:
            handing = self._handing()
        except NotFusableError as error:
            raise NotFusableError("{reason} {other}", reason=reason, other=error.message) from error
        return read_as_written(f"{label}.{index}", label, module, index, handing, reason, scale)

    def _read_whole(self, tables: RotaryTables | None, index: int, module: nn.Module) -> LayerShape:
        """Return the shape of a layer that is understood.

        Raises:
            NotFusableError: it isn't.
        """
        body, config, used = self._body, self._body.module.config, words.words(self._body.module)
        label = f"{body.name}.{body.layers}"
        kind = config.layer_types[index] if used & LAYER_TYPES else ""
        if kind not in KINDS:
            raise NotFusableError("{name} has an unsupported kind of layer, {kind}.", name=label, kind=kind)
        slides = kind == "sliding_attention" or (not kind and "create_sliding_window_causal_mask" in used)
        window = getattr(config, "sliding_window", None) if slides else None
        rotary_kind = tables.kind(config, index, kind) if tables else None
        layout = None if tables is None or rotary_kind is None else tables.layout(rotary_kind, _device(body))
        sight = Sight(int(config.attention_chunk_size) if kind == CHUNKED else None, self._slopes)
        shape = read_layer(f"{label}.{index}", module, window, rotary_kind or "", layout, sight, self._lent, index)
        if self._is_full and shape.altup:
            # A scale of the streams has no gradient of ours.
            raise NotFusableError("The own weights of {kind} are trained in plain PyTorch.", kind=type(module).__name__)
        if self._is_full and not isinstance(shape.attention, AttentionShape | LatentShape | None):
            # A convolution and what a state decays by have no gradients of ours.
            kind = type(mixer_of(label, module)[1]).__name__
            raise NotFusableError("The own weights of {kind} are trained in plain PyTorch.", kind=kind)
        return shape


def _mixers(layers: Iterable[nn.Module]) -> list[nn.Module]:
    """Return what has attention's place in layers that have something there."""
    found = ((layer, blocks_of(layer)[0]) for layer in layers)
    return [layer.get_submodule(role) for layer, role in found if role is not None]


def _with_lenders(layers: list[LayerShape | UnfusedLayer]) -> tuple[LayerShape | UnfusedLayer, ...]:
    """Return the layers, with it noted whose keys and values later ones read."""
    read = {layer.attention.source for layer in layers if isinstance(layer.attention, AttentionShape)}
    return tuple(
        replace(layer, attention=replace(layer.attention, lends=True))
        if index in read and isinstance(layer, LayerShape) and isinstance(layer.attention, AttentionShape)
        else layer
        for index, layer in enumerate(layers)
    )


def _read_per_layer(body: Body, layers: tuple[LayerShape | UnfusedLayer, ...]) -> PerLayerInputs | None:
    """Return how what layers have of their own is made; see `read_per_layer`.

    Raises:
        NotFusableError: a layer that runs as it was written reads it.
    """
    found = read_per_layer(body)
    for layer in layers:
        if found and isinstance(layer.attention, Unfused):
            raise NotFusableError("The model needs plain PyTorch. {reason}", reason=layer.attention.reason)
    return found


def _device(body: Body) -> torch.device:
    device: torch.device = plain(body.part(body.embedding)).weight.device
    return device


def _rotary(body: Body, layers: tuple[LayerShape | UnfusedLayer, ...]) -> RotaryTables | None:
    """Return the decoder's own rotary tables, with their numbers where the layers' rotation wants them.

    Raises:
        NotFusableError: the layers want them in different places.
    """
    rotating = [
        (layer.rotary_kind, mixer.interleaved, isinstance(mixer, AttentionShape) and mixer.backwards)
        for layer in layers
        for mixer in branches_of(layer.attention)
        if isinstance(mixer, AttentionShape | LatentShape) and mixer.rotary
    ]
    if not rotating:
        return None
    mixers = _mixers(body.part(body.layers)[: len(layers)])
    tables, device = rotary_tables(body.module, mixers), _device(body)
    if tables is None:
        raise NotFusableError("{name} has no rotary table.", name=body.name)
    layouts = {kind: tables.layout(kind, device) for kind, _, _ in rotating}
    ways = {
        (interleaved and layouts[kind].halves, layouts[kind].is_once, backwards)
        for kind, interleaved, backwards in rotating
    }
    if len(ways) > 1:
        raise NotFusableError("The decoder's layers use different rotary embeddings.")
    return RotaryTables(tables.module, *ways.pop())


def _check_trained(model: AnyModel, body: Body, shape: ModelShape) -> list[str]:
    """Look for trained weights that the fused path leaves without a gradient; return what to tell about them.

    Raises:
        NotFusableError: a text passes through one; it is named.
    """
    parts = [shape.head, *([shape.per_layer.projection] if shape.per_layer else [])]
    parts += [*shape.altup.projections, *shape.altup.back] if shape.altup else []
    parts += [table.module for table in shape.other_tables]
    for layer in shape.layers:
        parts += [layer.per_layer.gate, layer.per_layer.output] if layer.per_layer else []
        parts += [layer.altup.router, layer.altup.prediction, layer.altup.correction] if layer.altup else []
        parts += [layer.laurel.left, layer.laurel.right] if layer.laurel else []
        if isinstance(layer.attention, LatentShape | ChannelDeltaShape):
            parts += [part for part in layer.attention.expansions if part is not None]
        if isinstance(layer.attention, Unfused):
            parts.append(layer.attention.module)
        for mixer in branches_of(layer.attention):
            parts += [*mixer.inputs, mixer.output]
        if isinstance(layer.mlp, SparseShape):
            parts += layer.mlp.parts
        elif isinstance(layer.mlp, Unfused):
            parts.append(layer.mlp.module)
        elif layer.mlp is not None:
            parts += [*layer.mlp.inputs, layer.mlp.down]
            parts += [layer.mlp.function] if layer.mlp.function is not None else []
    reached = {id(parameter) for part in parts for parameter in part.parameters()}
    if isinstance(model, FullModel):
        reached |= {id(parameter) for norm in shape.norms for parameter in norm.trained_parameters}
        reached |= {id(sinks) for sinks in shape.trained_sinks}
        reached |= {id(shape.embedding.weight)}
        if shape.positions:
            reached.add(id(shape.positions.embedding.weight))
    else:
        reached -= {id(parameter) for parameter in getattr(shape.head, "base_layer", shape.head).parameters()}
        tables = base_tables(model)
        reached |= {id(weight) for table in tables if (weight := trained_weight(table)) is not None}
    if shape.handing and shape.handing.uses_embedding:
        # Its gradient would have to come through code that runs without one.
        reached -= {id(parameter) for parameter in shape.embedding.parameters()}
        reached -= {id(weight) for table in base_tables(model) if (weight := trained_weight(table)) is not None}
    left = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in reached
    }
    idle = [part for layer in shape.layers if isinstance(layer, LayerShape) for part in layer.idle]
    in_texts = {id(parameter) for parameter in [*body.module.parameters(), *shape.head.parameters()]}
    in_texts -= {id(parameter) for part in idle for parameter in part.parameters()}
    for name, parameter in left.items():
        if id(parameter) in in_texts or not (body.among_images or idle):
            raise NotFusableError(
                "{name} is trained, and only linear layers of the decoder can be trained fused.", name=name
            )
    if not left:
        return []
    return [Message("{count} trained weights, such as {name}, never see text.", count=len(left), name=next(iter(left)))]


def base_tables(model: AnyModel) -> tuple[nn.Module, nn.Module]:
    """Return the embedding and the output layer."""
    whole = base_model(model)
    return whole.get_input_embeddings(), whole.get_output_embeddings()


def base_model(model: AnyModel) -> AnyModel:
    """Return a model without PEFT around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
