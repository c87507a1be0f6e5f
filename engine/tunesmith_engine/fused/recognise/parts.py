"""Norms, activations and linear layers of a model, told apart by what they compute, not by what they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, agrees, replaced, result_of
from tunesmith_engine.mixer_shapes import Norm
from tunesmith_engine.shapes import NotFusableError

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
}

USUAL_EPS = (1e-5, 1e-6, 1e-8, 1e-12)
"""Of norms that have no weight and don't say theirs."""

NUM_ROWS = 16
"""Of the trial of a norm."""


def linear_sizes(name: str, module: nn.Module) -> tuple[int, int]:
    """Return inputs and outputs of a linear layer, with or without a PEFT layer around it.

    Raises:
        NotFusableError: it is no linear layer.
    """
    base = getattr(module, "base_layer", module)
    if isinstance(base, Conv1D):
        num_inputs, num_outputs = base.weight.shape
        return num_inputs, num_outputs
    if not isinstance(base, nn.Linear):
        raise NotFusableError("{name} ({kind}) is not a linear layer.", name=name, kind=type(base).__name__)
    return base.in_features, base.out_features


def is_linear(module: nn.Module) -> bool:
    """Whether a module is PyTorch's linear layer or computes the same by code of its own (Falcon)."""
    if type(module) is nn.Linear:
        return True
    if not isinstance(module, nn.Linear) or not module.weight.is_floating_point():
        return False
    make = StandIns()
    weight, bias, x = make.numbers(WIDTH, WIDTH), make.numbers(WIDTH), make.numbers(1, NUM_TOKENS, WIDTH)
    twin = replaced(module, {}, {"weight": nn.Parameter(weight), "bias": nn.Parameter(bias)})
    try:
        return agrees(result_of("linear", lambda: twin(x)), functional.linear(x, weight, bias))
    except NotFusableError:
        return False


def check_no_dropout(name: str, module: nn.Module) -> None:
    """Refuse a module that drops some of its numbers in training.

    Raises:
        NotFusableError: it does.
    """
    for attribute, value in [*vars(module).items(), *module.named_children()]:
        share = value.p if isinstance(value, nn.Dropout) else value
        named = any(name in attribute for name in ("dropout", "pdrop")) or attribute == "layerdrop"
        drops = isinstance(value, nn.Dropout) or named
        if drops and isinstance(share, float) and share > 0:
            raise NotFusableError(
                "{name} uses dropout ({attribute} {share:g}).", name=name, attribute=attribute, share=share
            )


def activation_name(function: Callable[[torch.Tensor], torch.Tensor]) -> str:
    """Return the name of an activation, see `MlpShape.activation`.

    Raises:
        NotFusableError: none of those we know has its values.
    """
    x = torch.linspace(-6.0, 6.0, 97)
    values = function(x)
    for known, formula in ACTIVATIONS.items():
        if values.shape == x.shape and torch.allclose(values, formula(x), rtol=0.0, atol=2e-6):
            return known
    raise NotFusableError("The activation {kind} is not supported.", kind=type(function).__name__)


def normalise(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    """Apply a norm over the last dimension by plain operations, rounded as transformers rounds."""
    value = x.float()
    if norm.centred:
        value = value - value.mean(-1, keepdim=True)
    value = value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + norm.eps)
    if norm.weight is None:
        return value.to(x.dtype)
    if norm.cast_last:
        weight = (1.0 + norm.weight).float() if norm.plus_one and norm.centred else norm.weight.float()
        value = (1.0 + weight if norm.plus_one and not norm.centred else weight) * value
        return (value if norm.bias is None else value + norm.bias.float()).to(x.dtype)
    value = (1.0 + norm.weight if norm.plus_one else norm.weight) * value.to(x.dtype)
    return value if norm.bias is None else value + norm.bias


def read_norm(name: str, module: nn.Module) -> Norm:
    """Return what a norm computes.

    It is run on random numbers in bfloat16 with random weights in place of its own, on the CPU, and the formula that
    gives the same is taken. So trained weights of ones or zeros hide nothing, and no GPU is needed.

    Raises:
        NotFusableError: no formula gives what it gives.
    """
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    parameters = dict(module.named_parameters())
    has_eps = isinstance(eps, float) or (eps is None and not parameters)
    if list(parameters) not in ([], ["weight"], ["weight", "bias"]) or not has_eps:
        raise NotFusableError("{name} ({kind}) is not a norm.", name=name, kind=type(module).__name__)
    for known in (eps,) if isinstance(eps, float) else USUAL_EPS:
        found = _formula(name, module, parameters, known)
        if found is not None:
            trained = {role: part for role, part in parameters.items() if part.requires_grad}
            return replace(
                found,
                weight=parameters["weight"].detach() if parameters else None,
                trained=trained.get("weight"),
                bias=parameters["bias"].detach() if "bias" in parameters else None,
                trained_bias=trained.get("bias"),
            )
    raise NotFusableError(
        "{name} ({kind}) is a norm with an unsupported formula.", name=name, kind=type(module).__name__
    )


def _formula(name: str, module: nn.Module, parameters: dict[str, nn.Parameter], eps: float) -> Norm | None:
    """Return the formula that gives what a norm gives on random numbers, with random weights; None for none."""
    width = parameters["weight"].shape if parameters else tuple(getattr(module, "normalized_shape", (WIDTH * WIDTH,)))
    generator = torch.Generator().manual_seed(0)
    # The variance is about eps, so that a wrong eps shows.
    x = (torch.randn(NUM_ROWS, *width, generator=generator) * eps**0.5 + eps**0.5).bfloat16()
    stand_ins = {role: torch.randn(width, generator=generator).bfloat16() for role in parameters}
    ours = result_of(name, lambda: torch.func.functional_call(module, stand_ins, (x,)))
    for flags in range(8) if parameters else (0, 2):
        plus_one, centred, cast_last = bool(flags & 1), bool(flags & 2), bool(flags & 4)
        guess = Norm(stand_ins.get("weight"), eps, plus_one, centred, cast_last, bias=stand_ins.get("bias"))
        # The order of a sum may turn a rounding here and there; the wrong formula turns a fifth of all.
        if (normalise(x, guess) == ours).float().mean() > 0.98:
            return guess
    return None
