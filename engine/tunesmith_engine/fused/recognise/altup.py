"""Several streams, Laurel, and what is at their ends: read from attributes, then held against the model's own code."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from tunesmith_engine.altup_shapes import LEAST_SQUARE, AltUpEndsShape, AltUpShape, LaurelShape
from tunesmith_engine.fused.recognise import per_layer, words
from tunesmith_engine.fused.recognise.body import Body
from tunesmith_engine.fused.recognise.parts import check_no_dropout, linear_sizes, normalise, read_norm
from tunesmith_engine.fused.recognise.per_layer import TriedBlock
from tunesmith_engine.fused.recognise.rotary import without_table
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Mixer,
    StandIns,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.mixer_shapes import MixerShape, Norm
from tunesmith_engine.shapes import LayerShape, MlpShape, NotFusableError, SparseShape, Unfused

ALTUP, LAUREL = "altup", "laurel"
PROJECTIONS, BACK = "altup_projections", "altup_unembed_projections"
NUM_STREAMS, CLIP, FACTOR, SCALE = "altup_num_inputs", "altup_coef_clip", "router_input_scale", "correct_output_scale"
"""What transformers calls the parts and numbers of AltUp."""

NORMS = {
    "input_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "post_mlp_norm": "post_feedforward_layernorm",
}

TRIED_FACTOR, TRIED_CLIP = 0.5, 0.3
"""So large that the coefficients show, and so small that the bound does."""

SMALL = 1e-4
"""Factor of a token whose mean square is below the least one."""

Linear = Callable[[torch.Tensor], torch.Tensor]


def has_streams(module: nn.Module) -> bool:
    """Whether a layer has several streams."""
    return hasattr(module, ALTUP)


def has_ends(decoder: nn.Module) -> bool:
    """Whether a decoder makes several streams."""
    return hasattr(decoder, PROJECTIONS)


def with_one_stream(body: Body) -> Body:
    """Return a decoder whose code makes no stream but that of the embedded tokens, for trials of its other parts."""
    if not has_ends(body.module):
        return body
    twin = replaced(body.module, {}, {})
    twin.config = copy.deepcopy(body.module.config)
    setattr(twin.config, NUM_STREAMS, 1)
    return replace(body, module=twin)


# The ends


class _Replacing(nn.Module):
    """Stands for a layer: keeps the streams that it is given and returns others."""

    def __init__(self, answer: torch.Tensor) -> None:
        super().__init__()
        self.given: torch.Tensor | None = None
        self._answer = answer

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Return the other streams."""
        self.given = hidden_states
        return self._answer


def read_ends(body: Body, embedding: nn.Module) -> AltUpEndsShape:
    """Return what makes several streams of one and one of several.

    Args:
        body: the decoder.
        embedding: a stand-in for its embedding, of `NUM_TOKENS` tokens and `WIDTH` numbers.

    Raises:
        NotFusableError: it is something else.
    """
    decoder, name = body.module, f"{body.name}.{PROJECTIONS}"
    shape = AltUpEndsShape(tuple(getattr(decoder, PROJECTIONS)), tuple(getattr(decoder, BACK)))
    hidden = body.part(body.embedding).weight.shape[1]
    others = len(shape.projections)
    sizes = {linear_sizes(name, module) for module in (*shape.projections, *shape.back)}
    if sizes != {(hidden, hidden)} or len(shape.back) != others or getattr(decoder.config, NUM_STREAMS) != 1 + others:
        raise NotFusableError("The sizes of {name} don't fit each other.", name=name)
    make = StandIns()
    matrices = [[make.matrix(WIDTH, WIDTH) for _ in range(others)] for _ in range(2)]
    answer = make.numbers(1 + others, 1, NUM_TOKENS, WIDTH)
    with torch.no_grad():
        for part in (next(embedding.parameters()), answer[1, 0], answer[0, 0]):
            part[1] *= SMALL
    layer = _Replacing(answer)
    parts: dict[str, nn.Module] = {
        body.embedding: embedding,
        body.layers: nn.ModuleList([layer]),
        PROJECTIONS: nn.ModuleList(matrices[0]),
        BACK: nn.ModuleList(matrices[1]),
        **without_table(decoder),
        **per_layer.stand_ins(body, make),
    }
    parts |= {body.norm: nn.Identity()} if body.norm else {}
    twin, ids = replaced(decoder, parts, {}), torch.arange(NUM_TOKENS)[None]
    result = result_of(body.name, lambda: twin(input_ids=ids, use_cache=False).last_hidden_state)
    x = embedding(ids).detach()
    made = torch.stack([x, *(_as_large(matrix(x), x) for matrix in matrices[0])])
    back = [_as_large(matrix(stream), answer[0]) for matrix, stream in zip(matrices[1], answer[1:], strict=True)]
    first = layer.given if layer.given is not None else result
    # Each token by itself, for the small one would hide behind the others.
    pairs = [(first, made), (result, torch.stack([answer[0], *back]).mean(dim=0))]
    if not all(
        agrees(given[..., token, :].float(), expected[..., token, :].float())
        for given, expected in pairs
        for token in range(NUM_TOKENS)
    ):
        raise NotFusableError("{name} makes its streams in an unsupported way.", name=body.name)
    return shape


def _as_large(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return x with the root of the mean square of another, but for numbers that are almost 0."""
    square = x.square().mean(-1, keepdim=True).clamp_min(LEAST_SQUARE)
    return x * other.square().mean(-1, keepdim=True).sqrt() / square.sqrt()


# A layer


def read_streams(
    name: str,
    module: nn.Module,
    attention: MixerShape,
    mlp: MlpShape | SparseShape | Unfused | None,
    index: int,
) -> LayerShape:
    """Return the shape of a layer with several streams, of which one goes through its blocks.

    Args:
        name: for messages.
        module: the layer.
        attention, mlp: as they are read.
        index: of the layer.

    Raises:
        NotFusableError: it combines its parts in another way.
    """
    words.check_words(name, module, words.LAYER | words.OWN_INPUTS_LAYER | words.ALTUP_LAYER)
    check_no_dropout(name, module)
    norms = {place: read_norm(f"{name}.{role}", getattr(module, role)) for place, role in NORMS.items()}
    shape = LayerShape(
        name=name,
        attention=attention,
        mlp=mlp,
        input_norm=norms["input_norm"],
        post_attention_norm=norms["post_attention_norm"],
        mlp_norm=norms["mlp_norm"],
        post_mlp_norm=norms["post_mlp_norm"],
        per_layer=per_layer.read_block(name, module, index),
        altup=_read_altup(f"{name}.{ALTUP}", getattr(module, ALTUP)),
        laurel=_read_laurel(f"{name}.{LAUREL}", getattr(module, LAUREL)),
    )
    for training in (False, True):
        if not _agrees(name, module, shape, training):
            raise NotFusableError(
                "{name} ({kind}) combines its parts in an unsupported order.", name=name, kind=type(module).__name__
            )
    return shape


def _read_altup(name: str, module: Any) -> AltUpShape:  # Any: a module whose attributes are its own
    """Return the shape of what weighs a layer's streams."""
    config = module.config
    number, hidden = int(getattr(config, NUM_STREAMS)), module.modality_router.in_features
    wanted = {
        "modality_router": (hidden, number),
        "prediction_coefs": (number, number * number),
        "correction_coefs": (number, number),
    }
    found = {role: linear_sizes(f"{name}.{role}", getattr(module, role)) for role in wanted}
    if number < 2 or found != wanted:
        raise NotFusableError("The sizes of {name} don't fit each other.", name=name)
    return AltUpShape(
        module=module,
        router=module.modality_router,
        prediction=module.prediction_coefs,
        correction=module.correction_coefs,
        norm=read_norm(f"{name}.router_norm", module.router_norm),
        factor=float(getattr(module, FACTOR)),
        num_streams=number,
        active=int(config.altup_active_idx),
        clip=float(getattr(config, CLIP)),
        scale=getattr(module, SCALE).detach() if config.altup_correct_scale else None,
    )


def _read_laurel(name: str, module: Any) -> LaurelShape:  # Any: a module whose attributes are its own
    """Return the shape of the branch beside attention; the sum's factor is the only one that there is."""
    _, rank = linear_sizes(f"{name}.linear_left", module.linear_left)
    linear_sizes(f"{name}.linear_right", module.linear_right)
    norm = read_norm(f"{name}.post_laurel_norm", module.post_laurel_norm)
    return LaurelShape(module.linear_left, module.linear_right, norm, rank, 2**-0.5)


def _with_weight(norm: Norm, part: nn.Module) -> Norm:
    """Return a norm with the weight of its stand-in."""
    return replace(norm, weight=getattr(part, "weight", None))


def _agrees(name: str, module: Any, shape: LayerShape, training: bool) -> bool:  # Any: as above
    """Whether the layer's own code combines its parts as a shape says, in training or not."""
    make, altup, laurel = StandIns(), shape.altup, shape.laurel
    assert altup is not None, "made with the shape"
    assert laurel is not None, "made with the shape"
    number = altup.num_streams
    linear = {
        "modality_router": make.matrix(WIDTH, number),
        "prediction_coefs": make.matrix(number, number * number),
        "correction_coefs": make.matrix(number, number),
    }
    router_norm = make.norm(altup.module.router_norm, WIDTH)
    scale = make.numbers(WIDTH)
    weighing = replaced(altup.module, {**linear, "router_norm": router_norm}, {SCALE: nn.Parameter(scale)})
    weighing._buffers[FACTOR] = torch.tensor(TRIED_FACTOR)
    weighing.config, weighing.training = copy.deepcopy(altup.module.config), training
    setattr(weighing.config, CLIP, TRIED_CLIP)
    left, right = make.matrix(WIDTH, WIDTH - 2), make.matrix(WIDTH - 2, WIDTH)
    laurel_norm = make.norm(module.laurel.post_laurel_norm, WIDTH)
    beside = {"linear_left": left, "linear_right": right, "post_laurel_norm": laurel_norm}
    attention, mlp = make.matrix(WIDTH, WIDTH), make.matrix(WIDTH, WIDTH)
    norms = {place: make.norm(getattr(module, role), WIDTH) for place, role in NORMS.items()}
    parts: dict[str, nn.Module] = {
        ALTUP: weighing,
        LAUREL: replaced(module.laurel, beside, {}),
        "self_attn": Mixer(attention.weight, 2),
        "mlp": mlp,
        **{NORMS[place]: part for place, part in norms.items()},
    }
    twin, third = replaced(module, parts, {}), TriedBlock(module, shape.per_layer, make)
    third.put(twin)
    x = make.numbers(number, 1, NUM_TOKENS, WIDTH)
    weighted = {place: _with_weight(getattr(shape, place), part) for place, part in norms.items()}
    tried = replace(
        shape,
        input_norm=weighted["input_norm"],
        post_attention_norm=weighted["post_attention_norm"],
        mlp_norm=weighted["mlp_norm"],
        post_mlp_norm=weighted["post_mlp_norm"],
        altup=replace(
            altup,
            norm=_with_weight(altup.norm, router_norm),
            factor=TRIED_FACTOR,
            clip=TRIED_CLIP if training else math.inf,
            scale=None if altup.scale is None else scale,
            **_weights(linear),
        ),
        laurel=replace(laurel, left=left, right=right, norm=_with_weight(laurel.norm, laurel_norm)),
    )
    given = dict.fromkeys(("position_embeddings", "attention_mask", "position_ids"))
    expected = _expected(tried, x, attention, mlp, third.added)
    return agrees(result_of(name, lambda: twin(x, per_layer_input=third.own, **given)), expected)


def _weights(linear: dict[str, Any]) -> dict[str, Any]:
    """Return copies of the stand-ins, for in training their weights are brought within the bound where they are."""
    made = copy.deepcopy(linear)
    return {
        "router": made["modality_router"],
        "prediction": made["prediction_coefs"],
        "correction": made["correction_coefs"],
    }


def _expected(shape: LayerShape, x: torch.Tensor, attention: Linear, mlp: Linear, third: Linear) -> torch.Tensor:
    """Return what a layer of a shape makes of its streams, [N, 1, T, WIDTH]."""
    altup, laurel = shape.altup, shape.laurel
    norms: Sequence[Norm | None] = shape.input_norm, shape.post_attention_norm, shape.mlp_norm, shape.post_mlp_norm
    assert altup is not None, "made with the shape"
    assert laurel is not None, "made with the shape"
    before, behind, before_mlp, behind_mlp = (norm for norm in norms if norm is not None)
    pairs = _coefficients(altup, altup.prediction, x[altup.active]).unflatten(-1, (altup.num_streams, -1))
    predicted = x + torch.einsum("btij,jbtd->ibtd", pairs, x)
    active = predicted[altup.active]
    normed = normalise(active, before)
    total = active + normalise(attention(normed), behind) + normed
    total = laurel.factor * (total + normalise(laurel.right(laurel.left(normed)), laurel.norm))
    end = total + normalise(mlp(normalise(total, before_mlp)), behind_mlp)
    factors = 1.0 + _coefficients(altup, altup.correction, end).permute(2, 0, 1)[..., None]
    corrected = predicted + factors * (end - active)
    read = corrected[altup.active] * (1.0 if altup.scale is None else altup.scale)
    return torch.cat((corrected[:1], corrected[1:] + third(read)))


def _coefficients(altup: AltUpShape, linear: Any, x: torch.Tensor) -> torch.Tensor:  # Any: a stand-in with a weight
    """Return what a linear layer makes of the modalities of a stream."""
    modalities = torch.tanh(altup.router(normalise(x, altup.norm) * altup.factor))
    return nn.functional.linear(modalities, linear.weight.clamp(-altup.clip, altup.clip))
