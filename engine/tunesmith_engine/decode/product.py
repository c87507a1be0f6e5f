"""A projection for the few rows of a decoding step: by our kernels where they can, else by the products of training."""

from __future__ import annotations

import torch

from tunesmith_engine.fused.projection import Projection
from tunesmith_engine.kernels import glu, matvec, nf4_matvec, nf4_rows, registry
from tunesmith_engine.kernels.nf4 import FourBitWeight


class Inputs:
    """What products read; those of one kind share it, for a layer needs it no longer when the next one writes it."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._rows: dict[tuple[int, int, int, bool, bool], torch.Tensor] = {}
        self._planes: dict[int, torch.Tensor] = {}
        self._sums: dict[tuple[int, int], torch.Tensor] = {}

    def rows(self, projection: Projection, like: torch.Tensor, is_last: bool) -> torch.Tensor:
        """Return [M, K + R] with zeros in the adapters' columns and ones in that of the bias.

        What the last product of a block reads is written while the first one reads, so they share nothing.
        """
        key = (projection.num_inputs, projection.num_extra, projection.num_ranks, projection.has_bias, is_last)
        if key not in self._rows:
            rows = like.new_zeros(self.num_rows, projection.num_inputs + projection.num_extra)
            if projection.has_bias:
                rows[:, projection.num_inputs + projection.num_ranks] = 1.0
            self._rows[key] = rows
        return self._rows[key]

    def planes(self, width: int, device: torch.device) -> torch.Tensor:
        """Return [8, width / 8] float32; see `matvec.multiply_row`."""
        if width not in self._planes:
            self._planes[width] = torch.empty(matvec.WORD, width // matvec.WORD, device=device)
        return self._planes[width]

    def sums(self, num_splits: int, num_outputs: int, device: torch.device) -> torch.Tensor:
        """Return [S, M, N] float32; see `nf4_rows.multiply_rows_nf4`."""
        key = (num_splits, num_outputs)
        if key not in self._sums:
            self._sums[key] = torch.empty(num_splits, self.num_rows, num_outputs, device=device)
        return self._sums[key]


class Product:
    """One projection, for a fixed number of rows.

    Attributes:
        x: [M, K + R]; whoever comes before writes the first K columns.
    """

    def __init__(
        self,
        projection: Projection,
        inputs: Inputs,
        like: torch.Tensor,
        with_adapter: bool,
        activation: str | None = None,
        is_last: bool = False,
    ) -> None:
        """Choose the way.

        Args:
            projection: what is computed.
            inputs: of the step.
            like: any tensor of the run's number format on its device.
            with_adapter: False leaves the adapters out.
            activation: of a gated MLP whose gate and up these are; `forward` writes their gated product then.
            is_last: it is the last product of a block.
        """
        self._projection, self._activation, self._with_adapter = projection, activation, with_adapter
        wide = inputs.rows(projection, like, is_last)
        self._width = projection.num_inputs
        self.x = wide
        self._halves = (
            like.new_empty(inputs.num_rows, projection.num_outputs) if activation is not None else like.new_empty(0)
        )
        self._four_bit = _four_bit_weights(projection)
        one = inputs.num_rows == 1 and type(projection) is Projection and registry.runs(matvec.NAME, like.device)
        gated = activation is not None
        self._by_kernel = one and (
            projection.dense_weight is not None
            or (
                bool(self._four_bit)
                and registry.runs(nf4_matvec.NAME, like.device)
                and nf4_matvec.problem(self._four_bit, gated) is None
            )
        )
        self._sums = self._room_for_sums(inputs, like)
        self._planes = (
            inputs.planes(self._width, like.device) if self._by_kernel and projection.dense_weight is None else None
        )

    def _room_for_sums(self, inputs: Inputs, like: torch.Tensor) -> torch.Tensor | None:
        """Return what `nf4_rows` needs, None where it can't serve."""
        if (
            self._by_kernel
            or not self._four_bit
            or type(self._projection) is not Projection
            or not registry.runs(nf4_rows.NAME, like.device, needs_dot=True)
            or nf4_rows.problem(self._four_bit, inputs.num_rows, like.dtype) is not None
        ):
            return None
        num_splits = nf4_rows.num_splits(self._four_bit)
        return inputs.sums(num_splits, self._projection.num_outputs if num_splits > 1 else 0, like.device)

    def forward(self, out: torch.Tensor) -> None:
        """Write the outputs of all members side by side, [M, N], or the gated product, [M, N / 2].

        The adapters' columns of `x` are written, too.
        """
        if self._by_kernel:
            self._forward_row(out[0])
        elif self._activation is None:
            self._forward_rows(out)
        else:
            self._forward_rows(self._halves)
            gate, up = self._halves.chunk(2, dim=1)
            glu.gate_and_multiply(gate, up, self._activation, out)

    def _forward_rows(self, out: torch.Tensor) -> None:
        projection, with_adapter = self._projection, self._with_adapter
        if self._sums is None:
            projection.forward(self.x, out, with_adapter)
            return
        projection.shrink(self.x, with_adapter)
        beside = projection.beside if projection.num_extra else None
        nf4_rows.multiply_rows_nf4(self.x, self._four_bit, beside, out, self._sums)

    def _forward_row(self, out: torch.Tensor) -> None:
        projection, with_adapter = self._projection, self._with_adapter
        row, beside = self.x[0, : self._width], self.x[0, self._width :]
        ranks = projection.num_ranks
        below = projection.below[: ranks if with_adapter else 0] if projection.num_extra else self.x[:0, : self._width]
        if ranks and not with_adapter:
            beside[:ranks].zero_()
        if below.shape[0] or self._planes is not None:
            matvec.multiply_row(row, below, beside[: below.shape[0]], self._planes)
        dense = projection.dense_weight
        if self._planes is not None:
            adapter = (projection.beside, beside) if projection.num_extra else None
            nf4_matvec.multiply_row_nf4(self._planes, self._four_bit, adapter, out, self._activation)
        elif self._activation is not None and dense is not None:
            matvec.multiply_row_gated(self.x[0], dense, self._activation, out)
        elif dense is not None:
            matvec.multiply_row(self.x[0], dense, out)


class StepProjection(Projection):
    """A projection with the training's face whose forward pass is a product for few rows."""

    def __init__(self, projection: Projection, product: Product) -> None:
        vars(self).update(vars(projection))
        self._product = product

    def forward(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool = True) -> None:  # noqa: ARG002 (the product knows)
        """Write the outputs, [M, N], for x, [M, K + R]."""
        product = self._product
        if x.data_ptr() != product.x.data_ptr():
            product.x[:, : self.num_inputs].copy_(x[:, : self.num_inputs])
        product.forward(out)


def _four_bit_weights(projection: Projection) -> list[FourBitWeight]:
    """Return the weights of a projection whose members are all packed in 4 bits, else none.

    DoRA multiplies whole weights, so its projections are no case for the kernels that read them packed.
    """
    if projection.has_magnitudes:
        return []
    weights = [member.weight for member in projection.members]
    four_bit = [weight for weight in weights if isinstance(weight, FourBitWeight)]
    return four_bit if len(four_bit) == len(weights) else []
