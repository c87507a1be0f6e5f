"""One decoder layer: which norm stands where, and its MLP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.attention import read_attention
from tunesmith_engine.fused.recognise.body import first_of
from tunesmith_engine.fused.recognise.delta import read_delta
from tunesmith_engine.fused.recognise.mlp import activation_stand_in, plain_parts, plain_roles, read_mlp
from tunesmith_engine.fused.recognise.parts import check_no_dropout, normalise, read_norm
from tunesmith_engine.fused.recognise.rotary import Layout
from tunesmith_engine.fused.recognise.sparse import read_sparse
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Mixer,
    StandIns,
    StateMixer,
    accepted,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.shapes import (
    AttentionShape,
    DeltaShape,
    LayerShape,
    MlpShape,
    Norm,
    NotFusableError,
    SparseShape,
    Unfused,
)

PLACES = ("input_norm", "post_attention_norm", "mlp_norm", "post_mlp_norm")

DELTA = "linear_attn"
MIXERS = ("self_attn", "attention", "attn", "self_attention", DELTA)
"""What transformers calls attention, or what is in its place."""

MLPS = ("mlp", "block_sparse_moe", "feed_forward")
"""What transformers calls an MLP, or what is in its place."""

# What transformers calls the norms at these places. `post_attention_layernorm` means several things; the other norms
# and the layer's own code tell which.
NAMES = (
    ("input_layernorm", "", "post_attention_layernorm", ""),
    ("input_layernorm", "", "pre_feedforward_layernorm", ""),
    ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
    ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
    ("input_layernorm", "", "", ""),
    ("attention_layernorm", "", "feedforward_layernorm", ""),
    ("self_attn_layer_norm", "", "final_layer_norm", ""),
    ("ln_1", "", "ln_2", ""),
    ("ln_1", "", "", ""),
    ("ln_attn", "", "ln_mlp", ""),
)


def mixer_of(name: str, layer: nn.Module) -> tuple[str, nn.Module]:
    """Return the name that attention, or what is in its place, has in a layer, and the module.

    Raises:
        NotFusableError: there is none.
    """
    role = first_of(layer, MIXERS)
    if role is None:
        raise NotFusableError("{name} ({kind}) has no attention.", name=name, kind=type(layer).__name__)
    return role, getattr(layer, role)


def check_layer_words(name: str, module: nn.Module) -> None:
    """Refuse a decoder layer whose own code or whose attention's code mentions what we don't know.

    Raises:
        NotFusableError: it does.
    """
    role, mixer = mixer_of(name, module)
    has_mlp = first_of(module, MLPS) is not None
    words.check_words(name, module, words.LAYER | (words.SPARSE_LAYER if has_mlp else words.MLP))
    words.check_words(f"{name}.{role}", mixer, words.DELTA if role == DELTA else words.ATTENTION)


def read_layer(name: str, module: nn.Module, window: int | None, rotary_kind: str, layout: Layout | None) -> LayerShape:
    """Return the shape of a decoder layer.

    Args:
        name: as in `named_modules`.
        module: a layer that `check_layer_words` passed.
        window: of this layer's mask.
        rotary_kind: see `LayerShape`.
        layout: see `read_attention`.

    Raises:
        NotFusableError: its attention or its order of parts isn't understood.
    """
    check_no_dropout(name, module)
    used = words.words(module)
    found = frozenset(word for word in used if _is_norm(word) and isinstance(getattr(module, word, None), nn.Module))
    places = [names for names in NAMES if found == {role for role in names if role}]
    if not places:
        raise NotFusableError(
            "{name} has its norms ({names}) in unsupported places.", name=name, names=", ".join(sorted(found))
        )
    norms = {role: read_norm(f"{name}.{role}", getattr(module, role)) for role in found}
    role, mixer = mixer_of(name, module)
    attention: AttentionShape | DeltaShape
    if role == DELTA:
        attention = read_delta(f"{name}.{role}", mixer)
    else:
        attention = read_attention(f"{name}.{role}", mixer, window, layout)
    shape = LayerShape(
        name=name,
        attention=attention,
        mlp=_read_mlp(name, module),
        input_norm=None,
        post_attention_norm=None,
        mlp_norm=None,
        post_mlp_norm=None,
        residual_scale=float(module.residual_multiplier) if "residual_multiplier" in used else 1.0,
        rotary_kind=rotary_kind,
    )
    for names in places:
        # Where the MLP has a norm of its own or reads that of attention, both may read the same input.
        for parallel in (False, True):
            found_norms = [norms.get(role) for role in names]
            guess = replace(
                shape,
                input_norm=found_norms[0],
                post_attention_norm=found_norms[1],
                mlp_norm=found_norms[2],
                post_mlp_norm=found_norms[3],
                parallel=parallel,
            )
            if _agrees(name, module, names, guess):
                return guess
    raise NotFusableError(
        "{name} ({kind}) combines its parts in an unsupported order.", name=name, kind=type(module).__name__
    )


def _is_norm(word: str) -> bool:
    return word.endswith("norm") or word.startswith("ln_")


def _read_mlp(name: str, module: nn.Module) -> MlpShape | SparseShape | Unfused:
    """Return the shape of a layer's MLP, whose parts may be the layer's own (OPT).

    Raises:
        NotFusableError: there is none.
    """
    role = first_of(module, MLPS)
    if role is not None:
        mlp = getattr(module, role)
        return read_sparse(mlp) or read_mlp(mlp)
    roles = plain_roles(module)
    if roles is None:
        raise NotFusableError("{name} ({kind}) has no MLP.", name=name, kind=type(module).__name__)
    return plain_parts(module, roles)


def _agrees(name: str, module: nn.Module, names: tuple[str, ...], shape: LayerShape) -> bool:
    """Whether the layer's own code combines its parts in the order of a shape."""
    make = StandIns()
    attention = make.matrix(WIDTH, WIDTH)
    stand_in = StateMixer if isinstance(shape.attention, DeltaShape) else Mixer
    parts: dict[str, nn.Module] = {mixer_of(name, module)[0]: stand_in(attention.weight)}
    mlp = _mlp_stand_in(module, shape, make, parts)
    norms: dict[str, Norm | None] = dict.fromkeys(PLACES)
    for place, role in zip(PLACES, names, strict=True):
        norm = getattr(shape, place)
        if norm is not None:
            parts[role] = make.norm(getattr(module, role), WIDTH)
            weights = {each: getattr(parts[role], each, None) for each in ("weight", "bias")}
            norms[place] = replace(norm, **weights)
    twin = replaced(module, parts, {})
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    usual = dict.fromkeys(("attention_mask", "position_embeddings", "position_ids"))
    nothing = accepted(module, usual, {"alibi": None})
    result = result_of(name, lambda: twin(x, **nothing))

    def normed(place: str, numbers: torch.Tensor) -> torch.Tensor:
        norm = norms[place]
        return numbers if norm is None else normalise(numbers, norm)

    read = normed("input_norm", x)
    middle = x + shape.residual_scale * normed("post_attention_norm", attention(read))
    to_mlp = normed("mlp_norm", x if shape.parallel else middle)
    if shape.parallel and shape.mlp_norm is None:
        to_mlp = read
    expected = middle + shape.residual_scale * normed("post_mlp_norm", mlp(to_mlp))
    return agrees(result, expected)


def _mlp_stand_in(
    module: nn.Module, shape: LayerShape, make: StandIns, parts: dict[str, nn.Module]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Put a stand-in for the MLP, or for its linear layers, among the parts of a layer; return what it computes."""
    if (role := first_of(module, MLPS)) is not None:
        matrix = make.matrix(WIDTH, WIDTH)
        returns_pair = isinstance(shape.mlp, SparseShape) and shape.mlp.returns_pair
        parts[role] = Mixer(matrix.weight) if returns_pair else matrix
        return matrix
    roles, own = plain_roles(module), shape.mlp
    if roles is None or not isinstance(own, MlpShape):
        raise NotFusableError("{name} ({kind}) has no MLP.", name=shape.name, kind=type(module).__name__)
    up, down = (parts.setdefault(role, make.matrix(WIDTH, WIDTH)) for role in roles)
    activation = activation_stand_in(module, own, parts)
    return lambda x: down(activation(up(x)))
