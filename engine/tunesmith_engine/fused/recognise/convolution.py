"""The gated convolution of a layer: read from the module's attributes, then held against what its own code computes."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.fused.recognise.parts import linear_sizes
from tunesmith_engine.fused.recognise.stand_ins import NUM_TOKENS, WIDTH, StandIns, agrees, replaced, result_of
from tunesmith_engine.kernels.gated_convolution import LARGEST_WIDTH, NUM_PARTS
from tunesmith_engine.mixer_shapes import ConvolutionShape
from tunesmith_engine.shapes import NotFusableError


def read_convolution(name: str, module: nn.Module) -> ConvolutionShape:
    """Return the shape of a module with a convolution between two gates.

    Args:
        name: for messages.
        module: one whose forward pass has only words that we know.

    Raises:
        NotFusableError: it is computed in a way that we don't know, or its convolution is wider than the kernels'.
    """
    convolution, inputs, output = module.conv, module.in_proj, module.out_proj
    if not isinstance(convolution, nn.Conv1d) or not isinstance(inputs, nn.Module) or not isinstance(output, nn.Module):
        raise NotFusableError(
            "{name} ({kind}) is missing a projection or a size that is needed.", name=name, kind=type(module).__name__
        )
    bias = convolution.bias
    shape = ConvolutionShape(
        inputs=(inputs,),
        output=output,
        convolution=convolution.weight.detach().flatten(1),
        bias=None if bias is None else bias.detach(),
    )
    channels, width = shape.convolution.shape
    num_outputs, num_inputs = (
        linear_sizes(f"{name}.in_proj", inputs)[1],
        linear_sizes(f"{name}.out_proj", output)[0],
    )
    if (num_outputs, num_inputs) != (NUM_PARTS * channels, channels):
        raise NotFusableError("The sizes of {name} don't fit each other.", name=name)
    if width > LARGEST_WIDTH:
        raise NotFusableError(
            "{name} has a convolution of {width}; at most {widest} is supported.",
            name=name,
            width=width,
            widest=LARGEST_WIDTH,
        )
    _try(name, module)
    return shape


def copied(convolution: nn.Conv1d, make: StandIns) -> nn.Module:
    """Return a convolution with random weights of the same sizes."""
    weights = {role: nn.Parameter(make.numbers(*weight.shape)) for role, weight in convolution.named_parameters()}
    return replaced(convolution, {}, weights)


def convolved(x: torch.Tensor, convolution: nn.Module) -> torch.Tensor:
    """Return the causal convolution of one document, [T, channels], by plain operations."""
    weight = convolution.weight.flatten(1)
    windows = functional.pad(x, (0, 0, weight.shape[1] - 1, 0)).unfold(0, weight.shape[1], 1)
    result: torch.Tensor = (windows * weight).sum(-1)
    return result if convolution.bias is None else result + convolution.bias


def _try(name: str, module: nn.Module) -> None:
    """Hold the formula against the module's own code on stand-ins.

    Raises:
        NotFusableError: it gives something else.
    """
    make = StandIns()
    convolution = copied(module.conv, make)
    inputs = make.matrix(WIDTH, NUM_PARTS * len(module.conv.weight))
    parts: dict[str, nn.Module] = {"in_proj": inputs, "conv": convolution, "out_proj": nn.Identity()}
    twin = replaced(module, parts, {})
    x = make.numbers(1, NUM_TOKENS, WIDTH)
    result = result_of(name, lambda: twin(hidden_states=x, past_key_values=None, attention_mask=None))
    b, c, numbers = inputs(x)[0].chunk(NUM_PARTS, dim=1)
    if not agrees(result[0], c * convolved(b * numbers, convolution)):
        raise NotFusableError(
            "{name} ({kind}) doesn't compute what its attributes say.", name=name, kind=type(module).__name__
        )
