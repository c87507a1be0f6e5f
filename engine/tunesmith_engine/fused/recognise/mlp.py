"""The MLP of a layer, with or without a gate, and what its own code must give."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from tunesmith_engine.fused.recognise import words
from tunesmith_engine.fused.recognise.parts import (
    ACTIVATIONS,
    activation_name,
    check_no_dropout,
    linear_sizes,
    normalise,
    read_norm,
)
from tunesmith_engine.fused.recognise.stand_ins import (
    NUM_TOKENS,
    WIDTH,
    StandIns,
    adds_residual,
    agrees,
    replaced,
    result_of,
)
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.shapes import MlpShape, NotFusableError, Unfused

GATED = (
    (("gate_up_proj",), "down_proj"),
    (("gate_proj", "up_proj"), "down_proj"),
    (("w1", "w3"), "w2"),
    (("input_linear",), "output_linear"),
)
"""Names of the inputs of a gated MLP and of its output."""

MERGED = ("fc1", "fc2")
"""Names that an MLP without a gate has as well; the sizes tell (Moshi)."""

PLAIN = (
    ("up_proj", "down_proj"),
    ("fc1", "fc2"),
    ("c_fc", "c_proj"),
    ("fc_in", "fc_out"),
    ("dense_h_to_4h", "dense_4h_to_h"),
)
"""Names of input and output of an MLP without a gate."""

FUNCTIONS = ("act_fn", "activation_fn", "act", "activation", "gelu_impl")

SUB_NORM = "ffn_sub_norm"
"""A norm of what the output reads (BitNet)."""

FACTORS = ("gate_multiplier", "down_multiplier")
"""Of the gate before its activation, and of the output (Falcon H1)."""

CUT = "activation_sparsity"
"""The share of a token's gates that is cut off, were they a normal distribution (Gemma 3n)."""
TRIED_CUT = 0.3

SILU = "silu"

Function = Callable[[torch.Tensor], torch.Tensor]


def read_mlp(module: nn.Module) -> MlpShape | Unfused:
    """Return the shape of an MLP, or the module itself when it is anything else."""
    name = "mlp"
    try:
        words.check_words(name, module, words.MLP | words.MLP_FACTORS | words.CUT_MLP)
        check_no_dropout(name, module)
        for roles, output in GATED:
            if all(hasattr(module, role) for role in (*roles, output)):
                return _read_gated(name, module, roles, output)
        if all(isinstance(getattr(module, role, None), nn.Module) for role in MERGED):
            inner, (width, _) = (linear_sizes(role, getattr(module, role)) for role in MERGED)
            if inner[1] == 2 * width:
                return _read_gated(name, module, MERGED[:1], MERGED[1])
        return _read_plain(name, module)
    except NotFusableError as error:
        if adds_residual(module):
            raise
        # The sentence names no layer: it is the same for all, and counted.
        return Unfused(module, error.message)


def is_mlp(module: nn.Module) -> bool:
    """Whether a module has the linear layers of an MLP, or experts."""
    inputs = [(*roles, output) for roles, output in GATED] + list(PLAIN)
    return any(all(hasattr(module, role) for role in roles) for roles in [*inputs, ("experts",)])


def plain_roles(module: nn.Module) -> tuple[str, str] | None:
    """Return the names of the linear layers of an MLP without a gate; None where there are none."""
    return next((roles for roles in PLAIN if all(hasattr(module, role) for role in roles)), None)


def plain_parts(module: nn.Module, roles: tuple[str, str]) -> MlpShape:
    """Return the shape that the parts of an MLP without a gate have; whether it is one is not tried.

    Raises:
        NotFusableError: they are not linear layers, or have no activation between them.
    """
    up, down = (getattr(module, role) for role in roles)
    width, _ = linear_sizes(roles[1], down)
    num_outputs = linear_sizes(roles[0], up)[1]
    if num_outputs != width:
        raise NotFusableError(
            "{name} has {num_outputs} outputs for {num_inputs} inputs.",
            name=roles[0],
            num_outputs=num_outputs,
            num_inputs=width,
        )
    function = getattr(module, _function(module))
    own = isinstance(function, nn.Module)
    if not (own and any(True for _ in function.parameters())):
        try:
            return MlpShape((up,), down, activation_name(function), width, gated=False)
        except NotFusableError:
            if not own:
                raise
    return MlpShape((up,), down, type(function).__name__, width, gated=False, function=function)


def activation_stand_in(module: nn.Module, shape: MlpShape, parts: dict[str, nn.Module]) -> Function:
    """Return what a shape's activation computes; one without a name is put among the parts, on the CPU in float32."""
    if shape.function is None:
        return ACTIVATIONS[shape.activation]
    stand_in = parts[_function(module)] = copy.deepcopy(shape.function).cpu().float()
    return stand_in


def _function(module: nn.Module) -> str:
    """Return the name of an MLP's activation.

    Raises:
        NotFusableError: it has none.
    """
    used = words.words(module)
    for name in FUNCTIONS:
        if name in used and callable(getattr(module, name, None)):
            return name
    raise NotFusableError("{name} ({kind}) has no activation.", name="mlp", kind=type(module).__name__)


def _read_gated(name: str, module: nn.Module, roles: tuple[str, ...], output: str) -> MlpShape:
    inputs = tuple(getattr(module, role) for role in roles)
    down: nn.Module = getattr(module, output)
    width, _ = linear_sizes(output, down)
    num_outputs = sum(linear_sizes(role, part)[1] for role, part in zip(roles, inputs, strict=True))
    if num_outputs != 2 * width:
        raise NotFusableError(
            "{name} has {num_outputs} outputs for {num_inputs} inputs.",
            name=name,
            num_outputs=num_outputs,
            num_inputs=width,
        )
    norm = read_norm(f"{name}.{SUB_NORM}", getattr(module, SUB_NORM)) if SUB_NORM in words.words(module) else None
    # Some have it in their code alone (LFM2).
    written = SILU in words.words(module)
    activation = SILU if written else activation_name(getattr(module, _function(module)))
    shape = MlpShape(inputs, down, activation, width, norm=norm, scales=_scales(name, module, down, norm))
    if CUT in words.words(module) and getattr(module, CUT) > 0:
        shape = replace(shape, cut=_deviations(float(getattr(module, CUT))))
    _try_gated(name, module, (*roles, output), shape)
    return shape


def _deviations(share: float) -> float:
    """Return below how many standard deviations from the mean a share of a normal distribution is."""
    return float(torch.special.ndtri(torch.tensor(share)))


def _scales(name: str, module: nn.Module, down: nn.Module, norm: Norm | None) -> tuple[float, float] | None:
    """Return the factors of gate and up: what multiplies the MLP's output may stand at up as well.

    Raises:
        NotFusableError: it may not, for a bias or a norm is behind that.
    """
    if not set(FACTORS) <= words.words(module):
        return None
    gate, of_output = (float(getattr(module, role)) for role in FACTORS)
    if of_output != 1.0 and (norm or getattr(getattr(down, "base_layer", down), "bias", None) is not None):
        raise NotFusableError("{name} multiplies the output of a projection with a bias.", name=name)
    return None if (gate, of_output) == (1.0, 1.0) else (gate, of_output)


def _try_gated(name: str, module: nn.Module, roles: tuple[str, ...], shape: MlpShape) -> None:
    """Hold the formula of a gated MLP against the module's own code.

    Raises:
        NotFusableError: it gives something else.
    """
    make, norm = StandIns(), shape.norm
    half, roles, output = WIDTH + 2, roles[:-1], roles[-1]
    parts = {role: make.matrix(WIDTH, 2 * half // len(roles)) for role in roles}
    down = make.matrix(half, WIDTH)
    beside = {} if norm is None else {SUB_NORM: make.norm(getattr(module, SUB_NORM), half)}
    twin = replaced(module, {**parts, output: down, **beside}, {})
    if shape.cut is not None:
        # Of as few numbers as these, the model's own share may leave none.
        setattr(twin, CUT, TRIED_CUT)
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    gate, up = torch.cat([parts[role](x) for role in roles], dim=-1).chunk(2, dim=-1)
    scales = shape.scales or (1.0, 1.0)
    if shape.cut is not None:
        deviation, mean = torch.std_mean(gate, dim=-1, correction=0, keepdim=True)
        gate = (gate - mean - _deviations(TRIED_CUT) * deviation).clamp_min(0.0)
    inner = ACTIVATIONS[shape.activation](gate * scales[0]) * (up * scales[1])
    if norm is not None:
        inner = normalise(inner, replace(norm, weight=beside[SUB_NORM].weight))
    if not agrees(result_of(name, lambda: twin(x)), down(inner)):
        raise NotFusableError("{name} ({kind}) is not a gated MLP.", name=name, kind=type(module).__name__)


def _read_plain(name: str, module: nn.Module) -> MlpShape:
    """Return the shape of an MLP without a gate, held against the module's own code.

    Raises:
        NotFusableError: it is something else.
    """
    roles = plain_roles(module)
    if roles is None:
        raise NotFusableError("{name} ({kind}) has an unsupported form.", name=name, kind=type(module).__name__)
    shape = plain_parts(module, roles)
    make = StandIns()
    up, down = make.matrix(WIDTH, WIDTH + 2), make.matrix(WIDTH + 2, WIDTH)
    parts: dict[str, nn.Module] = {roles[0]: up, roles[1]: down}
    activation = activation_stand_in(module, shape, parts)
    twin = replaced(module, parts, {})
    x, residual = (make.numbers(1, NUM_TOKENS, WIDTH) for _ in range(2))
    expected = result_of(name, lambda: down(activation(up(x))))
    result = result_of(name, lambda: twin(x, residual) - residual if adds_residual(module) else twin(x))
    if not agrees(result, expected):
        raise NotFusableError("{name} ({kind}) has an unsupported form.", name=name, kind=type(module).__name__)
    return shape
