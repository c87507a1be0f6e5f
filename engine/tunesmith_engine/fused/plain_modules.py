"""Parts of a layer that run as transformers and PEFT wrote them, between fused parts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tunesmith_core.errors import TunesmithError


class PlainModules:
    """Modules that only they themselves can compute: run as written, and once more in the backward pass.

    Random numbers, as of a dropout, are the same each time: for each call of the forward pass, one for each tile of
    rows, the state before it is kept, and the backward pass takes the tiles in reverse.
    """

    num_extra = 0
    has_magnitudes = False

    def __init__(
        self, modules: Sequence[nn.Module], num_inputs: int, num_outputs: int, autocast: torch.dtype | None
    ) -> None:
        self.modules = list(modules)
        self.num_inputs, self.num_outputs = num_inputs, num_outputs
        self._autocast = autocast
        self._states: list[list[torch.Tensor]] = []
        self._tile: int | None = None

    def begin_forward(self) -> None:
        """Draw new random numbers from now on."""
        self._states, self._tile = [], None

    def begin_backward(self) -> None:
        """Repeat the random numbers of the forward pass from now on, beginning with its last tile."""
        self._tile = len(self._states) - 1

    def _run(self, x: torch.Tensor) -> list[torch.Tensor]:
        enabled = self._autocast is not None
        with torch.autocast(x.device.type, self._autocast or torch.float32, enabled=enabled):
            outputs = [module(x[None]) for module in self.modules]
        return [(output[0] if isinstance(output, tuple) else output).view(x.shape[0], -1) for output in outputs]

    def forward(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool = True) -> None:  # noqa: ARG002 (as a Projection has it)
        """Write the modules' outputs side by side: x is [T, K], out [T, N].

        PEFT's own `disable_adapter` switches their adapters off, so `with_adapter` changes nothing here.
        """
        present = random_states(x.device)
        if self._tile is None:
            self._states.append(present)
        else:
            set_random_states(self._states[self._tile], x.device)
        column = 0
        with torch.no_grad():
            for output in self._run(x[:, : self.num_inputs]):
                out[:, column : column + output.shape[1]].copy_(output)
                column += output.shape[1]
        if self._tile is not None:
            set_random_states(present, x.device)

    def backward(self, gradient: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None) -> None:
        """Write the input's gradient to out, if given, and add those of trained weights to what is there."""
        if self._tile is None:
            raise TunesmithError("bug", "A backward pass of plain modules has not begun.")
        x = x[:, : self.num_inputs]
        present = random_states(x.device)
        set_random_states(self._states[self._tile], x.device)
        self._tile -= 1
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            # Some change what they are given where it lies.
            outputs = self._run(leaf.clone())
            widths = [output.shape[1] for output in outputs]
            torch.autograd.backward(outputs, list(gradient[:, : sum(widths)].split(widths, dim=1)))
        set_random_states(present, x.device)
        if out is not None and leaf.grad is not None:
            out.copy_(leaf.grad)


def random_states(device: torch.device) -> list[torch.Tensor]:
    """Return the states of the generators that an operation on a device may draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def set_random_states(states: list[torch.Tensor], device: torch.device) -> None:
    """Take back what `random_states` returned."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
