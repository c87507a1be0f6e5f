"""Reads a plain transformers model, with or without PEFT's LoRA inside, as the shape that the fused path runs.

Nothing goes by a family's name. Attributes say the numbers; the words in the code of each forward pass say which of
them are used and whether there is a step that we don't know; and each part's own code, run on small stand-ins, must
give what was read from it.
"""

from __future__ import annotations

from tunesmith_core.messages import Message
from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.layer import check_layer_words, read_layer
from tunesmith_engine.fused.recognise.model import find_decoder, read_embedding, read_logits
from tunesmith_engine.fused.recognise.parts import read_norm
from tunesmith_engine.fused.recognise.rotary import RotaryTables
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.saved_modules import plain, trained_weight
from tunesmith_engine.shapes import AnyModel, AttentionShape, LayerShape, ModelShape, NotFusableError, Unfused


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
    name, decoder = find_decoder(whole)
    layers = tuple(_layers(name, decoder))
    embedding, scale = read_embedding(name, decoder)
    logit_scale, softcap = read_logits(whole)
    shape = ModelShape(
        embedding=embedding,
        embedding_scale=scale,
        layers=layers,
        final_norm=read_norm(f"{name}.norm", decoder.norm),
        head=plain(whole.lm_head),
        logit_scale=logit_scale,
        softcap=softcap,
        rotary=_rotary(decoder, layers),
        hidden_size=embedding.embedding_dim,
    )
    shape.notes.extend(_check_trained(model, decoder, shape))
    return shape


def _layers(decoder_name: str, decoder: AnyModel) -> list[LayerShape]:
    """Read all layers; the decoder hands each its mask and its rotary table by the config's `layer_types`."""
    config, used = decoder.config, words.words(decoder)
    if getattr(config, "use_bidirectional_attention", False):
        raise NotFusableError("The decoder's attention is not causal.")
    types = list(config.layer_types) if "layer_types" in used else []
    tables = RotaryTables(decoder.rotary_emb) if hasattr(decoder, "rotary_emb") else None
    layers = {
        f"{decoder_name}.layers.{index}": layer
        for index, layer in enumerate(decoder.layers[: config.num_hidden_layers])
    }
    for name, layer in layers.items():
        check_layer_words(name, layer)
    shapes = []
    for index, (name, layer) in enumerate(layers.items()):
        kind = types[index] if types else ""
        if kind not in ("", "full_attention", "sliding_attention", "linear_attention"):
            raise NotFusableError("{name} is an unsupported kind of layer, {kind}.", name=name, kind=kind)
        slides = kind == "sliding_attention" or (not types and "create_sliding_window_causal_mask" in used)
        window = getattr(config, "sliding_window", None) if slides else None
        rotary_kind = kind if tables and tables.has_kinds else ""
        layout = tables.layout(rotary_kind, decoder.embed_tokens.weight.device) if tables else None
        shapes.append(read_layer(name, layer, window, rotary_kind, layout))
    if not any(isinstance(shape.attention, AttentionShape) for shape in shapes):
        raise NotFusableError("No layer of {name} has attention.", name=decoder_name)
    return shapes


def _rotary(decoder: AnyModel, layers: tuple[LayerShape, ...]) -> RotaryTables | None:
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
    tables, device = RotaryTables(decoder.rotary_emb), decoder.embed_tokens.weight.device
    to_pairs = {interleaved and tables.layout(kind, device).halves for kind, interleaved in rotating}
    if len(to_pairs) > 1:
        raise NotFusableError("The decoder's layers use different rotary embeddings.")
    return RotaryTables(decoder.rotary_emb, to_pairs.pop())


def _check_trained(model: AnyModel, decoder: AnyModel, shape: ModelShape) -> list[str]:
    """Look for trained weights that the fused path leaves without a gradient; return what to tell about them.

    Raises:
        NotFusableError: a text passes through one; it is named.
    """
    parts = [shape.head]
    for layer in shape.layers:
        parts += [*layer.attention.inputs, layer.attention.output]
        parts += [layer.mlp.module] if isinstance(layer.mlp, Unfused) else [*layer.mlp.inputs, layer.mlp.down]
    reached = {id(parameter) for part in parts for parameter in part.parameters()}
    if isinstance(model, FullModel):
        reached |= {id(norm.trained) for norm in shape.norms} | {id(shape.embedding.weight)}
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
    in_texts = {id(parameter) for parameter in [*decoder.parameters(), *shape.head.parameters()]}
    has_images = decoder is not base_model(model).model
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
