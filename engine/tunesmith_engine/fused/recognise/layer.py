"""One decoder layer: which norm stands where, and its MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.attention import read_attention
from tunesmith_engine.fused.recognise.delta import read_delta
from tunesmith_engine.fused.recognise.parts import (
    ACTIVATIONS,
    activation_name,
    check_no_dropout,
    linear_sizes,
    normalise,
    read_norm,
)
from tunesmith_engine.fused.recognise.rotary import Layout
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Mixer,
    StandIns,
    StateMixer,
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
    Unfused,
)

ATTENTION, DELTA = "self_attn", "linear_attn"
"""What transformers calls attention and what is in its place."""

PLACES = ("input_norm", "post_attention_norm", "mlp_norm", "post_mlp_norm")

# What transformers calls the norms at these places. `post_attention_layernorm` means two things; the others tell which.
NAMES: Mapping[frozenset[str], tuple[str, str, str, str]] = {
    frozenset(name for name in names if name): names
    for names in (
        ("input_layernorm", "", "post_attention_layernorm", ""),
        ("input_layernorm", "", "pre_feedforward_layernorm", ""),
        ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
        ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
        ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
        ("input_layernorm", "", "", ""),
    )
}


def check_layer_words(name: str, module: nn.Module) -> None:
    """Refuse a decoder layer whose own code or whose attention's code mentions what we don't know.

    Raises:
        NotFusableError: it does.
    """
    words.check_words(name, module, words.LAYER)
    role, known = (DELTA, words.DELTA) if hasattr(module, DELTA) else (ATTENTION, words.ATTENTION)
    words.check_words(f"{name}.{role}", getattr(module, role), known)


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
    found = frozenset(word for word in used if word.endswith("norm"))
    if found not in NAMES:
        raise NotFusableError(
            "{name} has its norms ({names}) in unsupported places.", name=name, names=", ".join(sorted(found))
        )
    attention: AttentionShape | DeltaShape
    if hasattr(module, DELTA):
        attention = read_delta(f"{name}.{DELTA}", module.linear_attn)
    else:
        attention = read_attention(f"{name}.{ATTENTION}", module.self_attn, window, layout)
    names = dict(zip(PLACES, NAMES[found], strict=True))
    norms = {place: read_norm(f"{name}.{role}", getattr(module, role)) for place, role in names.items() if role}
    shape = LayerShape(
        name=name,
        attention=attention,
        mlp=_read_mlp(module.mlp),
        **{place: norms.get(place) for place in PLACES},
        parallel=found == {"input_layernorm"},
        residual_scale=float(module.residual_multiplier) if "residual_multiplier" in used else 1.0,
        rotary_kind=rotary_kind,
    )
    _try_layer(name, module, names, shape)
    return shape


def _try_layer(name: str, module: nn.Module, names: Mapping[str, str], shape: LayerShape) -> None:
    """Hold the order of the layer's parts against its own code.

    Raises:
        NotFusableError: it gives something else.
    """
    make = StandIns()
    attention = make.matrix(WIDTH, WIDTH)
    parts: dict[str, nn.Module] = {"mlp": make.matrix(WIDTH, WIDTH)}
    if isinstance(shape.attention, DeltaShape):
        parts[DELTA] = StateMixer(attention.weight)
    else:
        parts[ATTENTION] = Mixer(attention.weight)
    norms: dict[str, Norm | None] = dict.fromkeys(PLACES)
    for place, role in names.items():
        norm = getattr(shape, place)
        if norm is not None:
            parts[role] = make.norm(getattr(module, role), WIDTH)
            norms[place] = replace(norm, weight=getattr(parts[role], "weight", None))
    twin = replaced(module, parts, {})
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    result = result_of(name, lambda: twin(x, attention_mask=None, position_embeddings=None, position_ids=None))

    def normed(place: str, numbers: torch.Tensor) -> torch.Tensor:
        norm = norms[place]
        return numbers if norm is None else normalise(numbers, norm)

    read = normed("input_norm", x)
    middle = x + shape.residual_scale * normed("post_attention_norm", attention(read))
    to_mlp = read if shape.parallel else normed("mlp_norm", middle)
    expected = middle + shape.residual_scale * normed("post_mlp_norm", parts["mlp"](to_mlp))
    if not agrees(result, expected):
        raise NotFusableError(
            "{name} ({kind}) combines its parts in an unsupported order.", name=name, kind=type(module).__name__
        )


def _read_mlp(module: nn.Module) -> MlpShape | Unfused:
    """Return the shape of a gated MLP, or the module itself when it is anything else."""
    try:
        return _read_gated_mlp(module)
    except NotFusableError as error:
        return Unfused(module, error.message)


def _read_gated_mlp(module: nn.Module) -> MlpShape:
    """Return the shape of a gated MLP.

    Raises:
        NotFusableError: it is none. The sentence names no layer: it is the same for all, and counted.
    """
    name = "mlp"
    words.check_words(name, module, words.MLP)
    check_no_dropout(name, module)
    roles = ("gate_up_proj",) if hasattr(module, "gate_up_proj") else ("gate_proj", "up_proj")
    if not all(hasattr(module, role) for role in (*roles, "down_proj")):
        raise NotFusableError("{name} ({kind}) has no gate.", name=name, kind=type(module).__name__)
    inputs = tuple(getattr(module, role) for role in roles)
    width, _ = linear_sizes("down_proj", module.down_proj)
    num_outputs = sum(linear_sizes(role, part)[1] for role, part in zip(roles, inputs, strict=True))
    if num_outputs != 2 * width:
        raise NotFusableError(
            "{name} has {num_outputs} outputs for {num_inputs} inputs.",
            name=name,
            num_outputs=num_outputs,
            num_inputs=width,
        )
    function = module.activation_fn if "activation_fn" in words.words(module) else module.act_fn
    shape = MlpShape(inputs, module.down_proj, activation_name(function), width)
    _try_mlp(name, module, roles, shape.activation)
    return shape


def _try_mlp(name: str, module: nn.Module, roles: tuple[str, ...], activation: str) -> None:
    """Hold the formula of a gated MLP against the module's own code.

    Raises:
        NotFusableError: it gives something else.
    """
    make = StandIns()
    half = WIDTH + 2
    parts = {role: make.matrix(WIDTH, 2 * half // len(roles)) for role in roles}
    down = make.matrix(half, WIDTH)
    twin = replaced(module, {**parts, "down_proj": down}, {})
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    gate, up = torch.cat([parts[role](x) for role in roles], dim=-1).chunk(2, dim=-1)
    if not agrees(result_of(name, lambda: twin(x)), down(ACTIVATIONS[activation](gate) * up)):
        raise NotFusableError("{name} ({kind}) is not a gated MLP.", name=name, kind=type(module).__name__)
