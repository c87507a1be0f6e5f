"""One decoder layer: which norm stands where, and its MLP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import nn

from tunesmith_engine.fused.recognise import altup, words
from tunesmith_engine.fused.recognise.attention import NOTHING_ELSE, Sight, read_attention
from tunesmith_engine.fused.recognise.biases import BIASES
from tunesmith_engine.fused.recognise.body import first_of
from tunesmith_engine.fused.recognise.branches import SWITCH, as_one_mlp
from tunesmith_engine.fused.recognise.branches import Branches as TwoMlps
from tunesmith_engine.fused.recognise.channel_delta import is_channel_delta, read_channel_delta
from tunesmith_engine.fused.recognise.convolution import read_convolution
from tunesmith_engine.fused.recognise.delta import read_delta
from tunesmith_engine.fused.recognise.handed import FORMS, Call, Handing, Recorder, hollowed
from tunesmith_engine.fused.recognise.latent import is_latent, read_latent
from tunesmith_engine.fused.recognise.mlp import activation_stand_in, is_mlp, plain_parts, plain_roles, read_mlp
from tunesmith_engine.fused.recognise.parallel import SCAN, Branches, runs_beside, together
from tunesmith_engine.fused.recognise.parts import check_no_dropout, normalise, read_norm
from tunesmith_engine.fused.recognise.per_layer import GATE, OUTPUT, TriedBlock, read_block, read_scale
from tunesmith_engine.fused.recognise.per_layer import NORM as THIRD_NORM
from tunesmith_engine.fused.recognise.rotary import Layout
from tunesmith_engine.fused.recognise.sharing import Lent, read_sharing, shares
from tunesmith_engine.fused.recognise.sparse import read_sparse
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    Mixer,
    Never,
    StandIns,
    accepted,
    adds_residual,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.fused.recognise.state_space import read_state_space
from tunesmith_engine.fused.recognise.wrapped import attention_inside
from tunesmith_engine.mixer_shapes import AttentionShape, LatentShape, MixerShape, Norm, ParallelShape, StateSpaceShape
from tunesmith_engine.shapes import Beside, LayerShape, MlpShape, NotFusableError, SparseShape, Unfused, UnfusedLayer

Forms = tuple[int, int]
"""How many results a layer's mixer and its MLP have: see `Mixer`."""

PLACES = ("input_norm", "post_attention_norm", "mlp_norm", "post_mlp_norm")
PLACE_BEHIND = "norm_behind"

ORDERS = IN_TURN, PARALLEL, BEHIND = "in turn", "parallel", "behind"
"""The MLP reads what attention gave, or, with a norm of its own or that of attention, the same input; or both blocks
have their norms behind the sums.
"""

SCALES = ("residual_multiplier", "residual_scale")
"""What transformers calls the factor of what a block adds."""

OTHERS: dict[str, tuple[frozenset[str], Callable[[str, nn.Module], MixerShape]]] = {
    "linear_attn": (words.DELTA, read_delta),
    "conv": (words.CONVOLUTION, read_convolution),
    "mamba": (words.SCAN, read_state_space),
}
"""What transformers calls what is in attention's place: the words of its code, and what reads it."""

HOLDERS = ("norm_attn_norm",)
"""What transformers calls a part of a layer with attention and the norms in it (DBRX)."""

MIXERS = ("self_attn", "attention", "attn", "self_attention", *OTHERS)
"""What transformers calls attention, or what is in its place."""

ALONE = "mixer"
"""What transformers calls the one block of a layer that has no other: attention, what is in its place, or an MLP."""

MLPS = ("mlp", "shared_mlp", "block_sparse_moe", "feed_forward", "ffn")
"""What transformers calls an MLP, or what is in its place."""

BESIDE = ("block_sparse_moe", "shared_mlp")
"""A mixture of experts and an MLP whose outputs a layer adds up itself (Granite)."""

# What transformers calls the norms at these places. `post_attention_layernorm` means several things; the other norms
# and the layer's own code tell which.
NAMES = (
    ("input_layernorm", "", "post_attention_layernorm", ""),
    ("input_layernorm", "", "pre_feedforward_layernorm", ""),
    ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
    ("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"),
    ("input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2"),
    ("input_layernorm", "post_attention_layernorm", "", "post_feedforward_layernorm"),
    ("", "post_attention_layernorm", "", "post_feedforward_layernorm"),
    ("input_layernorm", "", "", ""),
    ("attention_layernorm", "", "feedforward_layernorm", ""),
    ("operator_norm", "", "ffn_norm", ""),
    ("operator_norm", "post_operator_norm", "ffn_norm", "post_ffn_norm"),
    ("input_layernorm", "", "pre_ff_layernorm", ""),
    ("self_attn_layer_norm", "", "final_layer_norm", ""),
    ("ln_1", "", "ln_2", ""),
    ("ln_1", "", "", ""),
    ("ln_attn", "", "ln_mlp", ""),
    ("norm_1", "", "norm_2", ""),
    ("norm_attn_norm.norm_1", "", "norm_attn_norm.norm_2", ""),
    ("norm", "", "", ""),
    ("", "", "norm", ""),
)


def blocks_of(layer: nn.Module) -> tuple[str | None, str | None]:
    """Return the names that attention, or what is in its place, and the MLP have in a layer; None for none."""
    holder, mlp = first_of(layer, HOLDERS), first_of(layer, MLPS)
    mixer = first_of(getattr(layer, holder) if holder else layer, MIXERS)
    mixer = f"{holder}.{mixer}" if holder and mixer else mixer
    if mixer is None and mlp is None and first_of(layer, (ALONE,)):
        return (None, ALONE) if is_mlp(getattr(layer, ALONE)) else (ALONE, None)
    return mixer, mlp


def mixer_of(name: str, layer: nn.Module) -> tuple[str, nn.Module]:
    """Return the name that attention, or what is in its place, has in a layer, and the module.

    Raises:
        NotFusableError: there is none.
    """
    role, _ = blocks_of(layer)
    if role is None:
        raise NotFusableError("{name} ({kind}) has no attention.", name=name, kind=type(layer).__name__)
    return role, layer.get_submodule(role)


def read_layer(
    name: str,
    module: nn.Module,
    window: int | None,
    rotary_kind: str,
    layout: Layout | None,
    sight: Sight,
    lent: dict[str, Lent],
    index: int,
) -> LayerShape:
    """Return the shape of a decoder layer whose attention, or what is in its place, is understood if it has any.

    Args:
        name: for messages.
        module: the layer.
        window: of this layer's mask.
        rotary_kind: see `LayerShape`.
        layout, sight: see `read_attention`.
        lent: see `read_sharing`.
        index: of the layer.

    Raises:
        NotFusableError: its attention or its order of parts isn't understood.
    """
    module = as_one_mlp(name, module)
    if blocks_of(module) == (None, ALONE):
        return _around(name, module, None, None, index)[0]
    role, mixer = mixer_of(name, module)
    attention = _read_mixer(role, mixer, window, layout, sight, lent, index)
    if runs_beside(module):
        scan = _read_mixer(SCAN, getattr(module, SCAN), None, layout, sight, lent, index)
        if not isinstance(attention, AttentionShape) or not isinstance(scan, StateSpaceShape):
            raise NotFusableError("{name} combines its parts in an unsupported order.", name=name)
        attention = together(name, module, attention, scan)
    if altup.has_streams(module):
        shape = altup.read_streams(name, module, attention, _read_mlp(name, module), index)
    else:
        shape, _ = _around(name, module, attention, None, index)
    return replace(shape, rotary_kind=rotary_kind)


def _read_mixer(
    role: str,
    mixer: nn.Module,
    window: int | None,
    layout: Layout | None,
    sight: Sight,
    lent: dict[str, Lent],
    index: int,
) -> MixerShape:
    """Return the shape of attention, or of what is in its place; see `read_layer`."""
    mixer = attention_inside(role, mixer)
    scans = role == ALONE and hasattr(mixer, "A_log")
    known, read = OTHERS.get("mamba" if scans else role, (words.ATTENTION, None))
    if is_channel_delta(mixer):
        known, read = words.CHANNEL_DELTA, read_channel_delta
    known |= words.KEY_FACTOR if read is None else frozenset()
    known |= words.LATENT_ATTENTION if is_latent(mixer) else frozenset()
    known |= words.SHARING_ATTENTION if shares(mixer) else frozenset()
    words.check_words(role, mixer, known)
    if read:
        return read(role, mixer)
    if is_latent(mixer) and (window or sight != NOTHING_ELSE):
        raise NotFusableError("{name} doesn't look at all tokens before its own, which is not supported.", name=role)
    if is_latent(mixer):
        return read_latent(role, mixer, layout)
    if shares(mixer) and sight == NOTHING_ELSE:
        return read_sharing(role, mixer, window, layout, lent, index)
    return read_attention(role, mixer, window, layout, sight)


def read_as_written(
    name: str, label: str, module: nn.Module, index: int, handing: Handing, reason: str, before: float
) -> LayerShape | UnfusedLayer:
    """Return the shape of a layer of which only what is around its mixer may be understood.

    Args:
        name: as in `named_modules`.
        label: for reasons, the same for all layers.
        module: the layer.
        index: its number.
        handing: of its decoder; it is told what to hand over.
        reason: why not more is understood.
        before: factor of what the layer before it adds to the stream.
    """
    try:
        if blocks_of(module) == (None, ALONE):
            shape, _ = _around(label, module, None, handing.layer_call(index).on_cpu)
            return replace(shape, name=name)
        role, mixer = mixer_of(label, module)
        shape, forms = _around(label, module, Unfused(mixer, reason), handing.layer_call(index).on_cpu)
        recorder = Recorder(mixer, forms[0])
        handing.hand_mixer(index, hollowed(module, {role: recorder, **_passing(module, forms[1])}), recorder)
    except NotFusableError as error:
        handing.hand_layer(index)
        return UnfusedLayer(name, Unfused(module, error.message), before)
    return replace(shape, name=name)


def _passing(module: nn.Module, num_results: int) -> dict[str, nn.Module]:
    """Return stand-ins that hand on what they are given, for the norms and the MLP of a hollow layer."""
    roles = (*_norms_of(module), *(plain_roles(module) or ()))
    found: dict[str, nn.Module] = {role: Recorder(module.get_submodule(role), 0) for role in roles}
    return found | {role: Recorder(getattr(module, role), num_results) for role in _mlp_roles(module)}


def _mlp_roles(module: nn.Module) -> tuple[str, ...]:
    """Return the name of what is in an MLP's place, or the names of two such parts; none where the parts are loose."""
    if all(isinstance(getattr(module, role, None), nn.Module) for role in BESIDE):
        return BESIDE
    _, role = blocks_of(module)
    return (role,) if role else ()


def _norms_of(module: nn.Module) -> frozenset[str]:
    """Return the names of a layer's norms."""
    if holder := first_of(module, HOLDERS):
        return frozenset(f"{holder}.{role}" for role in _norms_of(getattr(module, holder)))
    named = (word for word in words.words(module) if "norm" in word or word.startswith("ln_"))
    parts = {word: getattr(module, word, None) for word in named}
    modules = {word for word, part in parts.items() if isinstance(part, nn.Module)}
    return frozenset(word for word in modules if not isinstance(parts[word], nn.Identity))


def _around(
    name: str, module: nn.Module, attention: MixerShape | Unfused | None, call: Call | None, index: int = 0
) -> tuple[LayerShape, Forms]:
    """Return the shape of a layer with a given attention or none, and how many results that and the MLP have.

    Args:
        call: how the decoder calls the layer, on the CPU; None for a usual call.
        index: of the layer.

    Raises:
        NotFusableError: its order of parts isn't understood.
    """
    has_mlp = bool(_mlp_roles(module))
    _check_code(name, module, has_mlp, call)
    used, found = words.words(module), _norms_of(module) - {THIRD_NORM}
    mlp = _read_mlp(name, module)
    places = _places(found, attention is not None, mlp is not None)
    misplaced = NotFusableError(
        "{name} has its norms ({names}) in unsupported places.", name=name, names=", ".join(sorted(found))
    )
    if not places:
        raise misplaced
    in_place = {role for names in places for role in names if role}
    norms = {role: read_norm(f"{name}.{role}", module.get_submodule(role)) for role in in_place}
    shape = LayerShape(
        name=name,
        attention=attention,
        mlp=mlp,
        input_norm=None,
        post_attention_norm=None,
        mlp_norm=None,
        post_mlp_norm=None,
        residual_scale=next((float(getattr(module, word)) for word in SCALES if word in used), 1.0),
        per_layer=read_block(name, module, index),
        output_scale=read_scale(module),
    )
    problem: NotFusableError | None = None
    runs = False
    for forms, names, order in product(_forms(shape, has_mlp), places, _orders(shape)):
        if order == BEHIND and not _may_be_behind(shape, names):
            continue
        guess = _with_norms(shape, [norms.get(role) for role in names], order)
        try:
            if _agrees(name, module, names, guess, forms, call):
                idle = tuple(_others(module, guess, names).values())
                return _with_last_norm(replace(guess, idle=idle)), forms
        except NotFusableError as error:
            problem = problem or error
        else:
            runs = True
    if in_place < found:
        raise misplaced
    if runs:
        raise NotFusableError(
            "{name} ({kind}) combines its parts in an unsupported order.", name=name, kind=type(module).__name__
        )
    raise problem or NotFusableError("{name} ({kind}) was not tried.", name=name, kind=type(module).__name__)


def _check_code(name: str, module: nn.Module, has_mlp: bool, call: Call | None) -> None:
    """Refuse a layer whose code mentions what we don't know, or that drops numbers; see `_around`."""
    # What a layer reads of its own comes with a usual call alone.
    known = words.LAYER | words.BLOCKS_LAYER | (frozenset() if call else words.OWN_INPUTS_LAYER)
    known |= words.SPARSE_LAYER if has_mlp else words.MLP
    for part in [module, *(getattr(module, holder) for holder in HOLDERS if hasattr(module, holder))]:
        words.check_words(name, part, known)
        check_no_dropout(name, part)
    if getattr(module, SWITCH, False):
        raise NotFusableError("{name} has experts beside its MLP, which is not supported.", name=name)


def _places(found: frozenset[str], has_mixer: bool, has_mlp: bool) -> list[tuple[str, ...]]:
    """Return at which places of a layer's blocks its norms may stand: all of them, or else some; others are idle."""
    fit: list[tuple[str, ...]] = [
        names
        for names in NAMES
        if (has_mixer or not (names[0] or names[1])) and (has_mlp or not (names[2] or names[3]))
    ]
    exact = [names for names in fit if found == set(names) - {""}]
    return exact or [names for names in fit if found > set(names) - {""}]


def _forms(shape: LayerShape, has_mlp: bool) -> Iterator[Forms]:
    """Yield how many results a layer's mixer and its MLP may have."""
    has_pair = isinstance(shape.attention, AttentionShape | LatentShape | ParallelShape)
    of_mixer: tuple[int, ...] = (2, -1) if has_pair else (0,)
    of_mixer = FORMS if isinstance(shape.attention, Unfused) else of_mixer
    of_mlp: tuple[int, ...] = (2,) if isinstance(shape.mlp, SparseShape) and shape.mlp.returns_pair else (0,)
    of_mlp = FORMS if isinstance(shape.mlp, Unfused) and has_mlp else of_mlp
    return product(of_mixer, of_mlp)


def _orders(shape: LayerShape) -> tuple[str, ...]:
    """Return in which orders a layer may combine its blocks; one block alone leaves no choice."""
    return (IN_TURN,) if shape.attention is None or shape.mlp is None else ORDERS


def _may_be_behind(shape: LayerShape, names: tuple[str, ...]) -> bool:
    """Whether norms may stand behind the sums: one for each block, and nothing else that few layers have."""
    before, after, before_mlp, after_mlp = names
    alone = shape.per_layer is None and shape.output_scale == 1.0
    return alone and bool(before and before_mlp) and not (after or after_mlp)


def _with_last_norm(shape: LayerShape) -> LayerShape:
    """Return a shape whose norm behind the MLP may be the MLP's own.

    Raises:
        NotFusableError: the layer has one beside that.
    """
    own = shape.mlp.norm if isinstance(shape.mlp, SparseShape) else None
    if own is not None and shape.post_mlp_norm is not None:
        raise NotFusableError(
            "{name} has its norms ({names}) in unsupported places.", name=shape.name, names="post_mlp_layernorm"
        )
    return shape if own is None else replace(shape, post_mlp_norm=own)


def _with_norms(shape: LayerShape, norms: Sequence[Norm | None], order: str) -> LayerShape:
    """Return a shape with norms at the places of `PLACES`, or behind the sums."""
    before, after, before_mlp, after_mlp = norms
    if order == BEHIND:
        return replace(shape, mlp_norm=before, norm_behind=before_mlp, norms_stream=True)
    return replace(
        shape,
        input_norm=before,
        post_attention_norm=after,
        mlp_norm=before_mlp,
        post_mlp_norm=after_mlp,
        parallel=order == PARALLEL,
    )


def _others(module: nn.Module, shape: LayerShape, names: tuple[str, ...]) -> dict[str, nn.Module]:
    """Return the parts with weights of a layer that are not read as anything: what it computes must not need them."""
    known = {*names, GATE, OUTPUT, THIRD_NORM, *(_mlp_roles(module) or plain_roles(module) or ())}
    if shape.attention is not None:
        known.add(mixer_of(shape.name, module)[0].partition(".")[0])
    if isinstance(shape.attention, ParallelShape):
        known.add(SCAN)
    function = shape.mlp.function if isinstance(shape.mlp, MlpShape) else None
    return {
        role: part
        for role, part in module.named_children()
        if role not in known and part is not function and any(True for _ in part.parameters())
    }


def _read_mlp(name: str, module: nn.Module) -> MlpShape | SparseShape | Unfused | None:
    """Return the shape of a layer's MLP, whose parts may be the layer's own (OPT); None where attention is alone.

    Raises:
        NotFusableError: there is none.
    """
    mixer, _ = blocks_of(module)
    parts = [getattr(module, role) for role in _mlp_roles(module)]
    if len(parts) > 1:
        return _read_beside(*parts)
    if parts and isinstance(parts[0], TwoMlps):
        return read_sparse(parts[0]) or Unfused(parts[0], parts[0].reason)
    if parts:
        return read_sparse(parts[0]) or read_mlp(parts[0])
    roles = plain_roles(module)
    if roles is None and mixer is None:
        raise NotFusableError("{name} ({kind}) has no MLP.", name=name, kind=type(module).__name__)
    return None if roles is None else plain_parts(module, roles)


def _read_beside(block: nn.Module, shared: nn.Module) -> SparseShape | Unfused:
    """Return the shape of a mixture of experts with an MLP that the layer itself has beside it."""
    sparse, mlp = read_sparse(block), read_mlp(shared)
    if isinstance(sparse, SparseShape) and sparse.shared_module is None and sparse.norm is None:
        fused, reason = (None, mlp.reason) if isinstance(mlp, Unfused) else (mlp, None)
        return replace(sparse, shared=fused, shared_module=shared, unfused_shared=reason)
    if isinstance(sparse, Unfused):
        return Unfused(Beside([block, shared]), sparse.reason)
    problem = NotFusableError(
        "{name} ({kind}) combines its experts in an unsupported way.", name=BESIDE[0], kind=type(block).__name__
    )
    return Unfused(Beside([block, shared]), problem.message)


def _agrees(
    name: str, module: nn.Module, names: tuple[str, ...], shape: LayerShape, forms: Forms, call: Call | None
) -> bool:
    """Whether the layer's own code combines its parts in the order of a shape."""
    make = StandIns()
    matrix = make.matrix(WIDTH, WIDTH)
    attention: Callable[[torch.Tensor], torch.Tensor] = matrix
    other = None if call is None else make.numbers(1)
    parts: dict[str, nn.Module] = {}
    if isinstance(shape.attention, ParallelShape):
        attention = branches = Branches(shape.attention, make, WIDTH)
        parts |= {mixer_of(name, module)[0]: branches.attention, SCAN: branches.scan}
    elif shape.attention is not None:
        role, mixer = mixer_of(name, module)
        adds = isinstance(shape.attention, AttentionShape) and adds_residual(mixer)
        parts[role] = Mixer(matrix.weight, forms[0], other, adds)
    mlp = None if shape.mlp is None else _mlp_stand_in(module, shape, make, parts, forms[1])
    norms: dict[str, Norm | None] = dict.fromkeys((*PLACES, PLACE_BEHIND))
    places = ("mlp_norm", "", PLACE_BEHIND, "") if shape.norms_stream else PLACES
    for place, role in zip(places, names, strict=True):
        norm = getattr(shape, place) if place else None
        if norm is not None:
            parts[role] = make.norm(module.get_submodule(role), WIDTH)
            weights = {each: getattr(parts[role], each, None) for each in ("weight", "bias")}
            norms[place] = replace(norm, **weights)
    twin = replaced(module, parts | dict.fromkeys(_others(module, shape, names), Never()), {})
    x = make.numbers(*(call.hidden.shape[:2] if call else (1, NUM_TOKENS)), WIDTH)
    third = TriedBlock(module, shape.per_layer, make)
    third.put(twin)
    if call is None:
        usual = dict.fromkeys(("attention_mask", "position_embeddings", "position_ids"))
        nothing = accepted(module, usual, {**dict.fromkeys(BIASES), "per_layer_input": third.own})
        result = result_of(name, lambda: twin(x, **nothing))
    else:
        result = result_of(name, lambda: call.run(twin, x))
    return agrees(result, third.after(_expected(shape, x, attention, mlp, norms)))


def _expected(
    shape: LayerShape,
    x: torch.Tensor,
    attention: Callable[[torch.Tensor], torch.Tensor],
    mlp: Callable[[torch.Tensor], torch.Tensor] | None,
    norms: dict[str, Norm | None],
) -> torch.Tensor:
    """Return what a layer of a shape makes of its input, before a third block."""

    def normed(place: str, numbers: torch.Tensor) -> torch.Tensor:
        norm = norms[place]
        return numbers if norm is None else normalise(numbers, norm)

    if shape.norms_stream and mlp is not None:
        middle = normed("mlp_norm", x + shape.residual_scale * attention(x))
        return normed(PLACE_BEHIND, middle + shape.residual_scale * mlp(middle))
    read, result = normed("input_norm", x), x
    if shape.attention is not None:
        result = x + shape.residual_scale * normed("post_attention_norm", attention(read))
    if mlp is not None:
        to_mlp = normed("mlp_norm", x if shape.parallel else result)
        if shape.parallel and shape.mlp_norm is None:
            to_mlp = read
        result = result + shape.residual_scale * normed("post_mlp_norm", mlp(to_mlp))
    return result


def _mlp_stand_in(
    module: nn.Module, shape: LayerShape, make: StandIns, parts: dict[str, nn.Module], num_results: int
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Put a stand-in for the MLP, or for its linear layers, among the parts of a layer; return what it computes."""
    if found := _mlp_roles(module):
        matrices = [make.matrix(WIDTH, WIDTH) for _ in found]
        for role, matrix in zip(found, matrices, strict=True):
            # What stands beside the experts has one result.
            number = num_results if role == found[0] else 0
            parts[role] = Mixer(matrix.weight, number, adds=adds_residual(getattr(module, role)))
        return Beside(matrices)
    roles, own = plain_roles(module), shape.mlp
    if roles is None or not isinstance(own, MlpShape):
        raise NotFusableError("{name} ({kind}) has no MLP.", name=shape.name, kind=type(module).__name__)
    up, down = (parts.setdefault(role, make.matrix(WIDTH, WIDTH)) for role in roles)
    activation = activation_stand_in(module, own, parts)
    return lambda x: down(activation(up(x)))
