"""Linear layers that read the same input, with their adapters inside one matrix product.

For layers W_i with adapters s_i B_i A_i the product is [X | S] [W | sB]^T with S = X A^T: the r columns of all adapters
stand beside the input, and beside the weights stand the scaled B_i, each in the columns of its own A_i. Backward the
same buffer serves as [dY | dS] [W ; A] with dS = dY (sB). So an adapter costs no pass over the output, and a bias is
one more column, whose input is 1.

DoRA (Liu et al. 2024, arXiv 2402.09353) multiplies each output by g = m / ||W + sBA||, a number for each row of the
weights. It goes into the buffer: [gW | gsB] takes the place of [W | sB], and both products and dS come out right. The
norm follows from ||W||^2 + 2s B.(WA^T) + s^2 B.(B AA^T) row by row, so no product of weights is as wide as W; and the
gradient of m is sum(dY * (Y - bias)) / m, for which the outputs are kept.

With dropout each adapter has a mask M of its own on its input: S = (X * M) A^T. Its products with A are then apart from
those with W, in kernels that compute the mask where they need it (see kernels/dropout.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from tunesmith_core.messages import MessageError
from tunesmith_engine.fused.masks import Masks
from tunesmith_engine.fused.plain_modules import PlainModules
from tunesmith_engine.fused.recognise.parts import is_linear
from tunesmith_engine.kernels import dropout, nf4, registry
from tunesmith_engine.kernels.adapter_gradients import AdapterGradients, Part
from tunesmith_engine.kernels.column_dots import column_dots
from tunesmith_engine.kernels.copy_rows import copy_rows

COLUMN_ALIGNMENT = {"cuda": 64, "cpu": 16}
"""Numbers. The columns beside the input are filled up to this, so that every row starts at a line of the cache."""

OF_EXPERTS = (2, 3)
"""Places of a scratch."""
NUM_PLACES = 4


class PlainOnlyError(MessageError):
    """A layer that only its own module can compute; the message says why."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One layer's LoRA: A is [rank, inputs], B is [outputs, rank], DoRA's magnitudes are [outputs], all float32."""

    a: nn.Parameter
    b: nn.Parameter
    scale: float
    magnitude: nn.Parameter | None = None
    dropout: float = 0.0

    @property
    def rank(self) -> int:
        """Number of rows of A."""
        return self.a.shape[0]


@dataclass(frozen=True, slots=True)
class Member:
    """One linear layer: its frozen weight as a tensor [outputs, inputs] or in NF4, its bias, its adapter.

    `transposed` says that the module itself has its weight as [inputs, outputs] (GPT-2).
    """

    base: nn.Module
    weight: torch.Tensor | nf4.FourBitWeight
    bias: torch.Tensor | None
    adapter: Adapter | None
    num_outputs: int
    num_inputs: int
    transposed: bool = False

    @classmethod
    def of(cls, module: nn.Module) -> Member:
        """Read a linear layer or a PEFT LoRA layer.

        Raises:
            PlainOnlyError: for what a product can't hold.
        """
        base = module.base_layer if hasattr(module, "base_layer") else module
        adapter = _adapter(module) if hasattr(module, "lora_A") else None
        if hasattr(base.weight, "quant_state"):
            try:
                weight: torch.Tensor | nf4.FourBitWeight = nf4.FourBitWeight.of(base.weight)
            except ValueError as error:
                raise PlainOnlyError(str(error)) from error
        elif type(base) is Conv1D:
            num_inputs, num_outputs = base.weight.shape
            return cls(base, base.weight.data.t(), base.bias, adapter, num_outputs, num_inputs, transposed=True)
        elif is_linear(base):
            weight = base.weight.data
        else:
            raise PlainOnlyError("{kind} is not a supported linear layer.", kind=type(base).__name__)
        return cls(base, weight, base.bias, adapter, base.out_features, base.in_features)

    def hold(self, weight: torch.Tensor) -> None:
        """Let the module have its weight, given as [outputs, inputs], as a view."""
        self.base.weight.data = weight.t() if self.transposed else weight


def _adapter(module: nn.Module) -> Adapter | None:
    """Return the active adapter of a PEFT LoRA layer."""
    names = [name for name in module.active_adapters if name in module.lora_A]
    if not names:
        return None
    if len(names) > 1:
        raise PlainOnlyError("Several adapters are active.")
    name = names[0]
    share = float(getattr(module.lora_dropout[name], "p", 0.0))
    device = module.lora_A[name].weight.device
    if share and device.type == "cuda" and not registry.runs(dropout.NAME, device, needs_dot=True):
        raise PlainOnlyError("Dropout runs in plain PyTorch.")
    if module.lora_A[name].bias is not None or module.lora_B[name].bias is not None:
        raise PlainOnlyError("The adapter has a bias.")
    magnitude = module.lora_magnitude_vector[name].weight if module.use_dora.get(name, False) else None
    if share and magnitude is not None:
        raise PlainOnlyError("DoRA with dropout runs in plain PyTorch.")
    a, b = module.lora_A[name].weight, module.lora_B[name].weight
    return Adapter(a, b, float(module.scaling[name]), magnitude, share)


class Unpackable(Protocol):
    """What has weights to unpack."""

    @property
    def buffer_shape(self) -> tuple[int, int]:
        """Rows and columns of the whole buffer."""

    def unpack(self, weight: torch.Tensor, scaled: bool = True) -> None:
        """Unpack the weights into a buffer, rows times DoRA's scales unless they are to stay out."""


class WeightScratch:
    """Memory in which 4-bit weights are unpacked, and what it holds at the moment.

    Two places, and two more for experts: a product and the next one that overwrites it never wait for the same
    unpacking twice.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._sizes = [0] * NUM_PLACES
        self._buffers: list[torch.Tensor | None] = [None] * NUM_PLACES
        self._holders: list[tuple[Unpackable, bool] | None] = [None] * NUM_PLACES
        self._filled: list[set[str]] = [set() for _ in range(NUM_PLACES)]

    def reserve(self, place: int, num_elements: int) -> None:
        """Make a place large enough; nothing is allocated before the first use."""
        self._sizes[place] = max(self._sizes[place], num_elements)

    @property
    def num_bytes(self) -> int:
        """Memory of all places."""
        return sum(self._sizes) * self._dtype.itemsize

    def forget(self) -> None:
        """Let every weight be unpacked again at its next use: adapters have changed, or a step begins."""
        self._holders = [None] * NUM_PLACES

    def give_back(self) -> None:
        """Let the memory go until the next use."""
        self._buffers = [None] * NUM_PLACES
        self.forget()

    def weight(self, projection: Projection, place: int, part: str, scaled: bool = True) -> torch.Tensor:
        """Return the buffer of a projection, unpacking its weights unless they are still there.

        Args:
            projection: whose weights.
            place: 0 or 1.
            part: "beside" or "below": the part of the adapters that the product at hand reads; "" for none.
            scaled: False leaves the rows' scales of DoRA out.
        """
        weight = self.unpacked(projection, place, scaled)
        if part and part not in self._filled[place]:
            projection.place_adapters(weight, part)
            self._filled[place].add(part)
        return weight

    def unpacked(self, packed: Unpackable, place: int, scaled: bool = True) -> torch.Tensor:
        """Return a buffer with weights, without adapters; see `weight`."""
        weight = self._room(packed, place)
        if self._holders[place] != (packed, scaled):
            packed.unpack(weight, scaled)
            self._holders[place] = (packed, scaled)
            self._filled[place].clear()
        return weight

    def room(self, packed: Unpackable, place: int) -> torch.Tensor:
        """Return a buffer for some of the weights, which nobody takes for all of them later."""
        self._holders[place] = None
        return self._room(packed, place)

    def _room(self, packed: Unpackable, place: int) -> torch.Tensor:
        buffer = self._buffers[place]
        if buffer is None:
            buffer = self._buffers[place] = torch.empty(self._sizes[place], device=self._device, dtype=self._dtype)
        rows, columns = packed.buffer_shape
        return buffer[: rows * columns].view(rows, columns)


class Projection:
    """A group of linear layers as one product.

    Attributes:
        num_inputs, num_outputs: K and N.
        num_extra: columns R beside the input and rows below the weights.
        has_bias: one of the columns is for biases.
        beside, below: the adapters' sB (and biases), [N, R], and A, [R, K], in the run's number format.
        has_magnitudes: some members have DoRA; the backward pass needs the outputs then.
        row_scales: DoRA's g of each output, float32 [N], 1 where a member has none; None without DoRA.
        has_dropout: some members have it.
        first_row: where in the micro-batch the rows at hand begin, by which dropout knows them again.
        quantised_bytes_per_row: memory that a product takes on top of its buffers for each row.
    """

    quantised_bytes_per_row = 0

    def __init__(
        self,
        members: Sequence[Member],
        scratch: WeightScratch,
        place: int,
        dtype: torch.dtype,
        masks: Masks | None = None,
    ) -> None:
        self.members = list(members)
        self.first_row = 0
        self._masks = masks
        self._mask_numbers = [
            masks.reserve() if masks and member.adapter and member.adapter.dropout else None for member in members
        ]
        self.has_dropout = any(number is not None for number in self._mask_numbers)
        self.num_inputs = members[0].num_inputs
        self.num_outputs = sum(member.num_outputs for member in members)
        self.num_ranks = sum(member.adapter.rank for member in members if member.adapter)
        self.has_bias = any(member.bias is not None for member in members)
        used = self.num_ranks + self.has_bias
        self._device, self._dtype = members[0].base.weight.device, dtype
        alignment = COLUMN_ALIGNMENT[self._device.type]
        self.num_extra = -(-used // alignment) * alignment
        self._scratch, self._place = scratch, place
        self._parts, self._gradients = self._lay_out(), AdapterGradients()
        self._own: torch.Tensor | None = None
        self.has_magnitudes = any(member.adapter and member.adapter.magnitude is not None for member in members)
        self.row_scales: torch.Tensor | None = None
        if all(isinstance(member.weight, torch.Tensor) for member in members) and not self.has_magnitudes:
            self._take_over_dense_weights()
        else:
            scratch.reserve(place, self.buffer_shape[0] * self.buffer_shape[1])
            # The adapters in the run's number format, made once per update: beside the weights and below them.
            self.beside = torch.zeros(self.num_outputs, self.num_extra, device=self._device, dtype=dtype)
            self.below = torch.zeros(self.num_extra, self.num_inputs, device=self._device, dtype=dtype)
        self._squares = torch.empty(0)
        if self.has_magnitudes:
            self.row_scales = torch.ones(self.num_outputs, device=self._device)
            frozen = (self._frozen(part, None) for part in self._parts)
            self._squares = torch.cat(
                [torch.linalg.vector_norm(weight, dim=1, dtype=torch.float32).square() for weight in frozen]
            )
        self._refresh(None)

    def _lay_out(self) -> list[tuple[Member, slice, slice]]:
        """Return each member with its rows of the output and its adapter's columns."""
        parts, row, column = [], 0, 0
        for member in self.members:
            rank = member.adapter.rank if member.adapter else 0
            parts.append((member, slice(row, row + member.num_outputs), slice(column, column + rank)))
            row, column = row + member.num_outputs, column + rank
        return parts

    @property
    def buffer_shape(self) -> tuple[int, int]:
        """Rows and columns of the whole buffer: [N + R, K + R]."""
        return self.num_outputs + self.num_extra, self.num_inputs + self.num_extra

    @property
    def dense_weight(self) -> torch.Tensor | None:
        """The weights with the adapters' columns beside them, [N, K + R]; None where weights are packed in 4 bits."""
        return None if self._own is None else self._own[: self.num_outputs]

    def _take_over_dense_weights(self) -> None:
        """Move 16-bit weights into one buffer with room for the adapters; the modules keep views of it."""
        if len(self.members) == 1 and not self.num_extra:
            weight = self.members[0].weight
            self._own = weight if isinstance(weight, torch.Tensor) else None
            return
        self._own = torch.zeros(self.buffer_shape, device=self._device, dtype=self._dtype)
        for index, (member, rows, columns) in enumerate(self._parts):
            view = self._own[rows, : self.num_inputs]
            if isinstance(member.weight, torch.Tensor):
                view.copy_(member.weight)
            member.hold(view)
            # Nothing may hold on to the old weight: both together would not fit.
            self.members[index] = replace(member, weight=view)
            self._parts[index] = (self.members[index], rows, columns)
        self.beside = self._own[: self.num_outputs, self.num_inputs :]
        self.below = self._own[self.num_outputs :, : self.num_inputs]

    def release(self) -> None:
        """Give the modules weights of their own again; the projection can't be used after that."""
        for member in self.members:
            if isinstance(member.weight, torch.Tensor):
                member.base.weight.data = member.base.weight.data.contiguous()
        # Nothing may hold on to the wide buffer while the next layer's weights are copied.
        self.members, self._parts, self._own = [], [], None
        self.beside = self.below = torch.empty(0)

    def refresh(self) -> None:
        """Take over the adapters' present weights."""
        packed = self.has_magnitudes and not all(isinstance(member.weight, torch.Tensor) for member in self.members)
        self._refresh(self._scratch.weight(self, self._place, "", scaled=False) if packed else None)

    def _frozen(self, part: tuple[Member, slice, slice], unpacked: torch.Tensor | None) -> torch.Tensor:
        """Return a member's weight [N, K] in the run's number format, from a buffer of the group's if there is one."""
        member, rows, _ = part
        if isinstance(member.weight, torch.Tensor):
            return member.weight.to(self._dtype)
        if unpacked is not None:
            return unpacked[rows, : self.num_inputs]
        weight = torch.empty(member.num_outputs, self.num_inputs, device=self._device, dtype=self._dtype)
        return nf4.dequantise(member.weight, weight)

    def _refresh(self, unpacked: torch.Tensor | None) -> None:
        if not self.num_extra:
            return
        if self.has_bias:
            for member, rows, _ in self._parts:
                if member.bias is not None:
                    self.beside[rows, self.num_ranks].copy_(member.bias.data)
        for member, rows, columns in self._parts:
            if member.adapter:
                self.below[columns].copy_(member.adapter.a.data)
                factor: float | torch.Tensor = member.adapter.scale
                if member.adapter.magnitude is not None and self.row_scales is not None:
                    frozen = self._frozen((member, rows, columns), unpacked)
                    norms = self._norms(member.adapter, frozen, rows, columns)
                    torch.div(member.adapter.magnitude.data, norms, out=self.row_scales[rows])
                    factor = member.adapter.scale * self.row_scales[rows, None]
                torch.mul(member.adapter.b.data, factor, out=self.beside[rows, columns])

    def _norms(self, adapter: Adapter, frozen: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:
        """Return ||W + sBA|| of a member's rows, float32 [outputs]."""
        a, b, scale = adapter.a.data, adapter.b.data, adapter.scale
        crossed = torch.mm(frozen, self.below[columns].t()).float()
        return (self._squares[rows] + (b * (2 * scale * crossed + scale**2 * (b @ (a @ a.t())))).sum(1)).sqrt()

    def unpack(self, weight: torch.Tensor, scaled: bool = True) -> None:
        """Unpack the weights into a buffer [N + R, K + R], rows times DoRA's scales unless they are to stay out."""
        for member, rows, _ in self._parts:
            view = weight[rows, : self.num_inputs]
            has_scales = scaled and member.adapter and member.adapter.magnitude is not None
            scales = self.row_scales[rows] if has_scales and self.row_scales is not None else None
            if not isinstance(member.weight, torch.Tensor):
                nf4.dequantise(member.weight, view, scales)
            elif scales is None:
                view.copy_(member.weight)
            else:
                torch.mul(member.weight, scales[:, None], out=view)

    def frozen_weight(self) -> torch.Tensor:
        """Return the weights of all members below each other in memory of their own, [N, K]."""
        weight = torch.empty(self.num_outputs, self.num_inputs, device=self._device, dtype=self._dtype)
        self.unpack(weight, scaled=False)
        return weight

    def place_adapters(self, weight: torch.Tensor, part: str) -> None:
        """Copy the adapters' B "beside" the weights of a buffer, or A "below" them."""
        if self.num_extra and part == "beside":
            copy_rows(self.beside, weight[: self.num_outputs, self.num_inputs :])
        elif self.num_extra:
            copy_rows(self.below, weight[self.num_outputs :, : self.num_inputs])

    def _weight(self, part: str, scaled: bool = True) -> torch.Tensor:
        return self._own if self._own is not None else self._scratch.weight(self, self._place, part, scaled)

    @property
    def _drops(self) -> bool:
        """Whether numbers are dropped at the moment."""
        return self.has_dropout and self._masks is not None and self._masks.active

    def _masked(self) -> Iterator[tuple[slice, dropout.Mask]]:
        """Yield the columns of each adapter and its mask for the rows at hand."""
        for (member, _, columns), number in zip(self._parts, self._mask_numbers, strict=True):
            if self._masks is not None and number is not None and member.adapter:
                yield columns, dropout.Mask(self._masks.seed(number), member.adapter.dropout, self.first_row)

    def shrink(self, x: torch.Tensor, with_adapter: bool = True) -> None:
        """Fill the columns beside the input: S = X A^T, and ones for a bias.

        Args:
            x: [T, K + R], whose last R columns are written.
            with_adapter: False leaves the adapters out, as if they were zero.
        """
        if not self.num_extra:
            return
        beside = x[:, self.num_inputs :]
        if with_adapter and self._drops:
            beside.zero_()
            for columns, mask in self._masked():
                dropout.shrink(x[:, : self.num_inputs], self.below[columns], mask, beside[:, columns])
        elif with_adapter and self.num_ranks:
            torch.mm(x[:, : self.num_inputs], self.below.t(), out=beside)
        else:
            beside.zero_()
        if self.has_bias:
            beside[:, self.num_ranks].fill_(1.0)

    def forward(self, x: torch.Tensor, out: torch.Tensor, with_adapter: bool = True) -> None:
        """Write the outputs of all members side by side.

        Args:
            x: [T, K + R]; its last R columns are written.
            out: [T, N].
            with_adapter: False gives the base layers' outputs.
        """
        self.shrink(x, with_adapter)
        scaled = with_adapter or not self.has_magnitudes
        torch.mm(x, self._weight("beside", scaled)[: self.num_outputs].t(), out=out)

    def input_gradient(self, gradient: torch.Tensor, out: torch.Tensor | None) -> None:
        """Write the input's gradient.

        Args:
            gradient: [T, N + R]: of the outputs; its last R columns are written.
            out: [T, K], or None when nobody needs it.
        """
        if self.num_extra:
            torch.mm(gradient[:, : self.num_outputs], self.beside, out=gradient[:, self.num_outputs :])
        if out is not None and self._drops:
            frozen = self._weight("")[: self.num_outputs, : self.num_inputs]
            torch.mm(gradient[:, : self.num_outputs], frozen, out=out)
            for columns, mask in self._masked():
                dropout.add_input_gradient(
                    gradient[:, self.num_outputs :][:, columns], self.below[columns], mask, out
                )
        elif out is not None:
            torch.mm(gradient, self._weight("below")[:, : self.num_inputs], out=out)

    def accumulate(self, gradient: torch.Tensor, x: torch.Tensor) -> None:
        """Add the adapters' gradients, dB = s dY^T S and dA = dS^T X, and those of biases that are trained.

        Args:
            gradient: [T, N + R] as `input_gradient` left it.
            x: [T, K + R] as `shrink` left it.
        """
        self.add_to_biases(gradient)
        if not self.num_ranks:
            return
        ranks = self.num_ranks
        self.add_to_adapters(
            gradient[:, : self.num_outputs],
            gradient[:, self.num_outputs : self.num_outputs + ranks],
            x[:, : self.num_inputs],
            x[:, self.num_inputs : self.num_inputs + ranks],
        )

    def add_to_biases(self, gradient: torch.Tensor) -> None:
        """Add the gradients of the biases that are trained: dY, [T, N or more], summed over the tokens."""
        for member, rows, _ in self._parts:
            if member.bias is not None and member.bias.requires_grad:
                member.bias.grad.add_(gradient[:, rows].sum(0, dtype=torch.float32))

    def add_to_adapters(
        self, gradient: torch.Tensor, to_shrunk: torch.Tensor, x: torch.Tensor, shrunk: torch.Tensor
    ) -> None:
        """Do that with dY [T, N], dS [T, ranks], X [T, K] and S [T, ranks]."""
        to_b = torch.mm(gradient.t(), shrunk)
        if self.row_scales is not None:
            to_b = to_b * self.row_scales[:, None]
        if self._drops:
            to_a = torch.zeros(self.num_ranks, self.num_inputs, device=x.device)
            for columns, mask in self._masked():
                to_a[columns] = dropout.weight_gradient(to_shrunk[:, columns], x, mask)
        else:
            to_a = torch.mm(to_shrunk.t(), x)
        self._gradients.add(to_b, to_a, list(self._gradient_parts()))

    def _gradient_parts(self) -> Iterator[Part]:
        """Yield where the adapters' gradients lie."""
        for member, rows, columns in self._parts:
            if member.adapter:
                yield Part(member.adapter.b.grad, member.adapter.a.grad, rows, columns, member.adapter.scale)

    def add_to_magnitudes(self, dots: torch.Tensor, gradient: torch.Tensor) -> None:
        """Add the gradients of DoRA's magnitudes.

        Args:
            dots: sum of dY * Y over the tokens, float32 [N].
            gradient: dY, [T, N or more].
        """
        for member, rows, _ in self._parts:
            if member.adapter is None or member.adapter.magnitude is None:
                continue
            dot, magnitude = dots[rows], member.adapter.magnitude
            if member.bias is not None:
                dot = dot - member.bias.data.float() * gradient[:, rows].sum(0, dtype=torch.float32)
            magnitude.grad.add_(dot / magnitude.data)

    def backward(self, gradient: torch.Tensor, x: torch.Tensor, out: torch.Tensor | None) -> None:
        """Do both: see `input_gradient` and `accumulate`."""
        self.input_gradient(gradient, out)
        self.accumulate(gradient, x)


def add_to_magnitudes(part: Projection | PlainModules, gradient: torch.Tensor, output: torch.Tensor) -> None:
    """Add the gradient of DoRA's magnitudes, if there are any, from that of the output, [T, N + R], and the output."""
    if isinstance(part, Projection) and part.has_magnitudes:
        part.add_to_magnitudes(column_dots(gradient[:, : output.shape[1]], output), gradient)
