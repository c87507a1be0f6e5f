"""The end of the model: final norm, output projection and cross-entropy, in chunks of the rows that are trained.

Rows without a trained token are never multiplied. A chunk's logits exist once, in the run's number format, and are
overwritten by their gradient. They lie where the layers' blocks have their intermediate results: none runs then.
"""

from __future__ import annotations

import torch

from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.fused.tables import Tables
from tunesmith_engine.fused.weight_gradients import WeightGradients
from tunesmith_engine.fused.workspace import Workspace
from tunesmith_engine.kernels import rms_norm
from tunesmith_engine.kernels.cross_entropy import cross_entropy
from tunesmith_engine.kernels.soft_targets import divergence
from tunesmith_engine.packed.batch import SoftTokens
from tunesmith_engine.shapes import ModelShape


class Head:
    """Computes the losses of the trained rows and their gradient."""

    def __init__(
        self,
        shape: ModelShape,
        tables: Tables,
        workspace: Workspace,
        chunk_rows: int,
        gradients: WeightGradients | None = None,
    ) -> None:
        self._shape, self._tables, self._workspace = shape, tables, workspace
        self._gradients = gradients
        self._chunk_rows = chunk_rows
        workspace.reserve("block", *self._shapes(tables.head(True), chunk_rows))

    def _shapes(self, projection: Projection, rows: int) -> list[tuple[int, int]]:
        extra = projection.num_extra
        hidden = self._shape.hidden_size
        return [(rows, projection.num_outputs + extra), (rows, hidden + extra), (rows, hidden), (rows, hidden)]

    def losses(
        self,
        x: torch.Tensor,
        pending: torch.Tensor | None,
        pending_scale: float,
        trained_rows: torch.Tensor,
        targets: torch.Tensor,
        gradient_scale: torch.Tensor | None,
        gradient: torch.Tensor | None,
        with_adapter: bool = True,
        temperature: float = 1.0,
        soft: SoftTokens | None = None,
    ) -> torch.Tensor:
        """Return each trained row's cross-entropy in nats, float32 [R] on the device.

        Args:
            x, pending: the pair that the last layer returned, [T, hidden]; None for nothing pending.
            pending_scale: factor of `pending`.
            trained_rows, targets: as in PackedBatch.
            gradient_scale: factor of the gradient, float32 on the device, one (0-dim) or one for each trained row
                ([R]); None computes the losses alone.
            gradient: [T, hidden], overwritten by the gradient of x + pending; zeros where no row is trained.
            with_adapter: False leaves an adapter of the output projection out.
            temperature: what logits are divided by before they are probabilities.
            soft: targets of the trained rows, from which the divergence is computed instead.
        """
        # A softcap of c makes c tanh(s x / c); divided by t that is (c / t) tanh((s / t) x / (c / t)).
        scale = self._shape.logit_scale / temperature
        softcap = self._shape.softcap / temperature if self._shape.softcap else None
        losses = torch.zeros(trained_rows.shape[0], device=x.device)
        projection = self._tables.head(with_adapter)
        if gradient is not None:
            gradient.zero_()
        for start in range(0, trained_rows.shape[0], self._chunk_rows):
            rows = trained_rows[start : start + self._chunk_rows]
            chunk = slice(start, start + rows.shape[0])
            logits, normed, total, to_total = self._workspace.carve("block", *self._shapes(projection, rows.shape[0]))
            hidden = self._shape.hidden_size
            torch.index_select(x, 0, rows, out=total)
            added = None if pending is None else torch.index_select(pending, 0, rows, out=to_total)
            statistics = rms_norm.add_norm(
                total, added, self._shape.final_norm, normed[:, :hidden], total, pending_scale
            )
            wide = logits[:, : projection.num_outputs]
            projection.first_row = start
            projection.forward(normed, wide, with_adapter)
            factors = gradient_scale if gradient_scale is None or not gradient_scale.ndim else gradient_scale[chunk]
            _write_losses(wide, targets[chunk], soft and soft.part(chunk), losses[chunk], factors, scale, softcap)
            if gradient is None:
                continue
            projection.input_gradient(logits, to_total)
            projection.accumulate(logits, normed)
            self._tables.add_to_head(logits, normed)
            if self._gradients:
                self._gradients.add_norm(self._shape.final_norm, to_total, total, statistics)
            rms_norm.norm_backward(to_total, total, self._shape.final_norm, statistics, to_total)
            # Rows that only fill up a fixed number repeat the last row and add zero.
            gradient.index_add_(0, rows, to_total)
        return losses


def _write_losses(
    logits: torch.Tensor,
    targets: torch.Tensor,
    soft: SoftTokens | None,
    losses: torch.Tensor,
    factors: torch.Tensor | None,
    scale: float,
    softcap: float | None,
) -> None:
    """Write the losses of a chunk and, in place of the logits, their gradient; see `cross_entropy`."""
    if soft is None:
        cross_entropy(logits, targets, losses, factors, scale, softcap)
    else:
        divergence(logits, targets, soft.ids, soft.shares, losses, factors, scale, softcap)
