"""All trained weights in one flat tensor, their gradients in another: one launch updates, clips or clears them all."""

from __future__ import annotations

import torch
from torch import nn

ALIGNMENT = 256
"""Elements. Each parameter starts at such a place, so blocks of an 8-bit optimizer never hold two parameters."""


class AdapterArena:
    """Owns the storage of the trained parameters, which become views of it.

    Attributes:
        weights, gradients: flat float32 tensors; the gaps between parameters hold zeros.
        parameters: by name, in the model's own order.
        slices: where each parameter lies.
    """

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.slices: dict[str, slice] = {}
        end = 0
        for name, parameter in parameters.items():
            self.slices[name] = slice(end, end + parameter.numel())
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        device = next(iter(parameters.values())).device
        self.weights = torch.zeros(end, device=device)
        self.gradients = torch.zeros(end, device=device)
        for name, parameter in parameters.items():
            weight = self.view(self.weights, name)
            weight.copy_(parameter.data)
            parameter.data = weight
            parameter.grad = self.view(self.gradients, name)

    def view(self, flat: torch.Tensor, name: str) -> torch.Tensor:
        """Return a parameter's part of a flat tensor, in the parameter's shape."""
        return flat[self.slices[name]].view(self.parameters[name].shape)
