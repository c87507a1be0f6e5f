"""Reads a plain transformers model, with or without PEFT's LoRA inside, as the shape that the fused path runs.

Nothing goes by a family's name. Attributes say the numbers; the words in the code of each forward pass say which of
them are used and whether there is a step that we don't know; and each part's own code, run on small stand-ins, must
give what was read from it.
"""

from __future__ import annotations

import torch

from tunesmith_core.messages import Message
from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.body import Body, head_of
from tunesmith_engine.fused.recognise.layer import check_layer_words, mixer_of, read_layer
from tunesmith_engine.fused.recognise.model import check_layer_inputs, find_decoder, read_embedding, read_logits
from tunesmith_engine.fused.recognise.parts import read_norm
from tunesmith_engine.fused.recognise.rotary import RotaryTables, rotary_tables
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.saved_modules import plain, trained_weight
from tunesmith_engine.shapes import (
    AnyModel,
    AttentionShape,
    LayerShape,
    ModelShape,
    NotFusableError,
    SparseShape,
    Unfused,
)


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
    layers = tuple(_layers(body))
    embedding, scale, positions = read_embedding(body)
    logit_scale, softcap = read_logits(whole)
    shape = ModelShape(
        embedding=embedding,
        embedding_scale=scale,
        layers=layers,
        final_norm=read_norm(f"{body.name}.{body.norm}", body.part(body.norm)),
        head=plain(getattr(whole, head_of(whole))),
        logit_scale=logit_scale,
        softcap=softcap,
        rotary=_rotary(body, layers),
        hidden_size=embedding.embedding_dim,
        positions=positions,
    )
    shape.notes.extend(_check_trained(model, body, shape))
    return shape


def _layers(body: Body) -> list[LayerShape]:
    """Read all layers; the decoder hands each its mask and its rotary table by the config's `layer_types`."""
    config, used = body.module.config, words.words(body.module)
    if getattr(config, "use_bidirectional_attention", False):
        raise NotFusableError("The decoder's attention is not causal.")
    types = list(config.layer_types) if "layer_types" in used else []
    layers = {
        f"{body.name}.{body.layers}.{index}": layer
        for index, layer in enumerate(body.part(body.layers)[: config.num_hidden_layers])
    }
    for name, layer in layers.items():
        check_layer_words(name, layer)
    check_layer_inputs(body)
    tables = rotary_tables(body.module, [mixer_of(name, layer)[1] for name, layer in layers.items()])
    shapes = []
    for index, (name, layer) in enumerate(layers.items()):
        kind = types[index] if types else ""
        if kind not in ("", "full_attention", "sliding_attention", "linear_attention"):
            raise NotFusableError("{name} is an unsupported kind of layer, {kind}.", name=name, kind=kind)
        slides = kind == "sliding_attention" or (not types and "create_sliding_window_causal_mask" in used)
        window = getattr(config, "sliding_window", None) if slides else None
        rotary_kind = kind if tables and tables.has_kinds else ""
        layout = tables.layout(rotary_kind, _device(body)) if tables else None
        shapes.append(read_layer(name, layer, window, rotary_kind, layout))
    if not any(isinstance(shape.attention, AttentionShape) for shape in shapes):
        raise NotFusableError("No layer of {name} has attention.", name=body.name)
    return shapes


def _device(body: Body) -> torch.device:
    device: torch.device = plain(body.part(body.embedding)).weight.device
    return device


def _rotary(body: Body, layers: tuple[LayerShape, ...]) -> RotaryTables | None:
    """Return the decoder's own rotary tables, with their numbers where the layers' rotation wants them.

    Raises:
        NotFusableError: the layers want them in different places.
    """
    rotating = [
        (layer.rotary_kind, layer.attention.interleaved)
        for layer in layers
        if isinstance(layer.attention, AttentionShape) and layer.attention.rotary
    ]
    if not rotating:
        return None
    mixers = [mixer_of("", layer)[1] for layer in body.part(body.layers)[: len(layers)]]
    tables, device = rotary_tables(body.module, mixers), _device(body)
    if tables is None:
        raise NotFusableError("{name} has no rotary table.", name=body.name)
    to_pairs = {interleaved and tables.layout(kind, device).halves for kind, interleaved in rotating}
    if len(to_pairs) > 1:
        raise NotFusableError("The decoder's layers use different rotary embeddings.")
    return RotaryTables(tables.module, to_pairs.pop())


def _check_trained(model: AnyModel, body: Body, shape: ModelShape) -> list[str]:
    """Look for trained weights that the fused path leaves without a gradient; return what to tell about them.

    Raises:
        NotFusableError: a text passes through one; it is named.
    """
    parts = [shape.head]
    for layer in shape.layers:
        parts += [*layer.attention.inputs, layer.attention.output]
        if isinstance(layer.mlp, SparseShape | Unfused):
            parts.append(layer.mlp.module)
        else:
            parts += [*layer.mlp.inputs, layer.mlp.down]
            parts += [layer.mlp.function] if layer.mlp.function is not None else []
    reached = {id(parameter) for part in parts for parameter in part.parameters()}
    if isinstance(model, FullModel):
        reached |= {id(parameter) for norm in shape.norms for parameter in norm.trained_parameters}
        reached |= {id(shape.embedding.weight)}
        if shape.positions:
            reached.add(id(shape.positions.embedding.weight))
    else:
        reached -= {id(parameter) for parameter in getattr(shape.head, "base_layer", shape.head).parameters()}
        whole = base_model(model)
        tables = whole.get_input_embeddings(), whole.get_output_embeddings()
        reached |= {id(weight) for table in tables if (weight := trained_weight(table)) is not None}
    left = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in reached
    }
    in_texts = {id(parameter) for parameter in [*body.module.parameters(), *shape.head.parameters()]}
    has_images = body.name.endswith("language_model")
    for name, parameter in left.items():
        if not has_images or id(parameter) in in_texts:
            raise NotFusableError(
                "{name} is trained, and only linear layers of the decoder can be trained fused.", name=name
            )
    if not left:
        return []
    return [Message("{count} trained weights, such as {name}, never see text.", count=len(left), name=next(iter(left)))]


def base_model(model: AnyModel) -> AnyModel:
    """Return a model without PEFT around it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model
