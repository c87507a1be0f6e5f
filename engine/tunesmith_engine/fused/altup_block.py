"""The streams of one layer: predicted before its blocks and corrected behind them, see `AltUpShape`.

The coefficients are few and their code differs in training, so it runs as it is written; the streams, which are wide,
are mixed here.

# T tokens, N streams, d hidden size
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tunesmith_engine.altup_shapes import AltUpShape
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import rms_norm

REGION = "coefficients"
"""Of the workspace."""


class Predicting(nn.Module):
    """From what the router's norm gives to the coefficients p of every token, a row for each stream."""

    def __init__(self, shape: AltUpShape) -> None:
        super().__init__()
        self.router, self.prediction = shape.router, shape.prediction
        self.__dict__["_shape"] = shape

    def forward(self, normed: torch.Tensor) -> torch.Tensor:
        """Return p."""
        shape: AltUpShape = self.__dict__["_shape"]
        if shape.module.training:
            weight: torch.Tensor = shape.prediction.weight
            weight.data.clamp_(-shape.clip, shape.clip)
        coefficients: torch.Tensor = self.prediction(_modalities(shape, normed))
        return coefficients


class Correcting(nn.Module):
    """The same for the factors 1 + c."""

    def __init__(self, shape: AltUpShape) -> None:
        super().__init__()
        self.router, self.correction = shape.router, shape.correction
        self.__dict__["_shape"] = shape

    def forward(self, normed: torch.Tensor) -> torch.Tensor:
        """Return 1 + c."""
        shape: AltUpShape = self.__dict__["_shape"]
        modalities = _modalities(shape, normed)
        if shape.module.training:
            # No adapter has a part in it, and none of the correction's gets a gradient.
            weight: torch.Tensor = shape.correction.weight
            return functional.linear(modalities, weight.clamp(-shape.clip, shape.clip)) + 1.0
        factors: torch.Tensor = self.correction(modalities) + 1.0
        return factors


def _modalities(shape: AltUpShape, normed: torch.Tensor) -> torch.Tensor:
    return torch.tanh(shape.router(normed * shape.factor).float()).to(normed.dtype)


def coefficients_of(
    shape: AltUpShape, hidden_size: int, autocast: torch.dtype | None
) -> tuple[PlainModules, PlainModules]:
    """Return what computes p and 1 + c."""
    number = shape.num_streams
    predicting = PlainModules((Predicting(shape),), hidden_size, number * number, autocast)
    return predicting, PlainModules((Correcting(shape),), hidden_size, number, autocast)


class AltUpBlock:
    """Mixes the streams of one layer; they lie side by side in a token's row, [T, N d].

    Attributes:
        predicting, correcting: what computes the coefficients.
    """

    def __init__(
        self,
        shape: AltUpShape,
        predicting: PlainModules,
        correcting: PlainModules,
        workspace: Workspace,
        capacity_tokens: int,
        hidden_size: int,
    ) -> None:
        self.shape, self.predicting, self.correcting = shape, predicting, correcting
        self._workspace, self._hidden_size = workspace, hidden_size
        workspace.reserve(REGION, *self._sizes(capacity_tokens))

    def _sizes(self, num_tokens: int) -> list[tuple[int, int]]:
        """Return the sizes of p and 1 + c, and of their gradients."""
        number = self.shape.num_streams
        return 2 * [(num_tokens, number * number), (num_tokens, number)]

    def _coefficients(self, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return p, [T, N, N], 1 + c, [T, N, 1], and their gradients of the same sizes."""
        number = self.shape.num_streams
        p, c, to_p, to_c = self._workspace.carve(REGION, *self._sizes(num_tokens))
        square = (num_tokens, number, number)
        return p.view(square), c.unsqueeze(-1), to_p.view(square), to_c.unsqueeze(-1)

    def _apart(self, streams: torch.Tensor) -> torch.Tensor:
        return streams.view(len(streams), self.shape.num_streams, self._hidden_size)

    def active(self, streams: torch.Tensor) -> torch.Tensor:
        """Return the stream that goes through the blocks, [T, d]."""
        return self._apart(streams)[:, self.shape.active]

    def others(self, streams: torch.Tensor) -> torch.Tensor:
        """Return the streams to which the third block's output is added, [T, N - 1, d]."""
        return self._apart(streams)[:, 1:]

    # Forward

    def predict(self, streams: torch.Tensor, out: torch.Tensor, normed: torch.Tensor) -> None:
        """Write P to `out`, [T, N d], from S, [T, N d]; `normed`, [T, d], is overwritten."""
        p, *_ = self._coefficients(len(streams))
        rms_norm.add_norm(self.active(streams), None, self.shape.norm, normed)
        self.predicting.forward(normed, p.flatten(1))
        torch.baddbmm(self._apart(streams), p, self._apart(streams), out=self._apart(out))

    def correct(self, predicted: torch.Tensor, end: torch.Tensor, normed: torch.Tensor) -> None:
        """Turn P into C, where it is, with what the blocks made, [T, d]; `normed`, [T, d], is overwritten."""
        _, factors, *_ = self._coefficients(len(predicted))
        self.weigh(end, normed)
        torch.sub(end, self.active(predicted), out=normed)
        self._apart(predicted).baddbmm_(factors, normed[:, None])

    def weigh(self, end: torch.Tensor, normed: torch.Tensor) -> None:
        """Compute 1 + c from what the blocks made, [T, d]; `normed`, [T, d], is overwritten."""
        _, factors, *_ = self._coefficients(len(end))
        rms_norm.add_norm(end, None, self.shape.norm, normed)
        self.correcting.forward(normed, factors.squeeze(-1))

    def read(self, predicted: torch.Tensor, end: torch.Tensor | None, out: torch.Tensor) -> None:
        """Write what the third block reads, scale * C_a, [T, d].

        Args:
            predicted: C; or P, where `end` is given.
            end: what the blocks made, behind `weigh`; may be `out`.
            out: where it is written.
        """
        active = self.active(predicted)
        if end is None:
            out.copy_(active)
        else:
            _, factors, *_ = self._coefficients(len(out))
            torch.sub(end, active, out=out)
            out.mul_(factors[:, self.shape.active]).add_(active)
        self.scale(out)

    def scale(self, x: torch.Tensor) -> None:
        """Multiply what the third block reads, or its gradient, [T, d]."""
        if self.shape.scale is not None:
            x.mul_(self.shape.scale)

    # Backward

    def correct_backward(
        self, slopes: torch.Tensor, predicted: torch.Tensor, end: torch.Tensor, out: torch.Tensor, normed: torch.Tensor
    ) -> None:
        """Turn the gradient of C into that of P, where it is, and write that of what the blocks made; behind `weigh`.

        Args:
            slopes: gradient of C, [T, N d].
            predicted: P, [T, N d].
            end: what the blocks made, [T, d].
            out: where its gradient is written, [T, d].
            normed: [T, d], overwritten.
        """
        _, factors, _, to_factors = self._coefficients(len(slopes))
        apart, active = self._apart(slopes), self.active(slopes)
        torch.sub(end, self.active(predicted), out=normed)
        torch.bmm(apart, normed[:, :, None], out=to_factors)
        torch.bmm(factors.mT, apart, out=out[:, None])
        active.sub_(out)
        self._router_backward(self.correcting, to_factors.flatten(1), end, out, normed)

    def predict_backward(
        self,
        slopes: torch.Tensor,
        streams: torch.Tensor,
        out: torch.Tensor | None,
        normed: torch.Tensor,
    ) -> None:
        """Write the gradient of S, [T, N d], if it is wanted, and add those of the adapters.

        Args:
            slopes: gradient of P, [T, N d].
            streams: S, [T, N d].
            out: where the gradient is written, or None.
            normed: [T, d], overwritten.
        """
        p, _, to_p, _ = self._coefficients(len(slopes))
        apart = self._apart(slopes)
        torch.bmm(apart, self._apart(streams).mT, out=to_p)
        if out is not None:
            torch.baddbmm(apart, p.mT, apart, out=self._apart(out))
        to_active = None if out is None else self.active(out)
        self._router_backward(self.predicting, to_p.flatten(1), self.active(streams), to_active, normed)

    def _router_backward(
        self,
        coefficients: PlainModules,
        gradient: torch.Tensor,
        x: torch.Tensor,
        out: torch.Tensor | None,
        normed: torch.Tensor,
    ) -> None:
        """Go from the coefficients' gradient to that of what the router's norm read, [T, d], which is added."""
        statistics = rms_norm.add_norm(x, None, self.shape.norm, normed)
        coefficients.backward(gradient, normed, normed)
        if out is not None:
            rms_norm.norm_backward(normed, x, self.shape.norm, statistics, out, residual=out)
