"""Stacked weights in MXFP4, kept number for number: the published form of gpt-oss's experts.

Blocks of 32 inputs of an output share a power of two (OCP Microscaling Formats 1.0). That is bitsandbytes' 4-bit layout
with another table, scales that are exponents and an outer table that reads them, so what takes packed NF4 takes these.
"""

from __future__ import annotations

import torch
from bitsandbytes.functional import QuantState
from bitsandbytes.nn import Params4bit
from bitsandbytes.nn.parametrize import Bnb4bitParametrization, _register_parametrization_hooks
from torch import nn
from torch.nn.utils import parametrize

from tunesmith_core.packed_weights import MXFP4_GROUP
from tunesmith_engine.kernels import nf4
from tunesmith_engine.model.packed import EXPONENT_BIAS, FP4_E2M1

QUANT_TYPE = "mxfp4"
NUM_EXPONENTS = 256
ONE_OUTER_BLOCK = 2**30
"""Scales that share an outer scale: all of them."""


@torch.no_grad()
def packed(whole: torch.Tensor) -> Params4bit | None:
    """Return a stack in MXFP4; None where one of its numbers has no place in that format.

    A block's exponent may be another than the one that it was published with, if its largest number is at most 3 times
    the power: the numbers are the same.

    Args:
        whole: [experts, inputs, outputs] in any number format.
    """
    if whole.shape[1] % MXFP4_GROUP:
        return None
    found = []
    for expert in whole:
        coded = _coded(expert.T)
        if coded is None:
            return None
        found.append(coded)
    codes, exponents = (torch.stack(parts) for parts in zip(*found, strict=True))
    table = torch.tensor(FP4_E2M1, device=whole.device)
    powers = torch.ldexp(torch.ones(NUM_EXPONENTS), torch.arange(NUM_EXPONENTS) - EXPONENT_BIAS).to(whole.device)
    state = QuantState(
        exponents.flatten(),
        shape=whole.shape,
        code=torch.cat([table, -table]),
        blocksize=MXFP4_GROUP,
        quant_type=QUANT_TYPE,
        dtype=whole.dtype,
        offset=torch.zeros((), device=whole.device),
        state2=QuantState(
            torch.ones(1, device=whole.device), code=powers, blocksize=ONE_OUTER_BLOCK, dtype=torch.float32
        ),
    )
    return Params4bit(
        codes.view(-1, 1), quant_state=state, blocksize=MXFP4_GROUP, quant_type=QUANT_TYPE, bnb_quantized=True
    )


def _coded(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return a matrix's codes, two a byte with the first in the high half, and exponents; None where it has none."""
    blocks = matrix.float().contiguous().unflatten(1, (-1, MXFP4_GROUP))
    # The largest of a block becomes 4 or 6.
    _, exponents = torch.frexp(blocks.abs().amax(-1, keepdim=True))
    exponents = (exponents - 3).clamp(-EXPONENT_BIAS, EXPONENT_BIAS)
    sized = torch.ldexp(blocks, -exponents)
    table = torch.tensor(FP4_E2M1, device=matrix.device)
    codes = torch.searchsorted(table, sized.abs()).clamp(max=len(table) - 1)
    if not torch.equal(table[codes], sized.abs()):
        return None
    codes = codes.to(torch.uint8) | sized.signbit().to(torch.uint8) << 3
    return codes[..., 0::2] << 4 | codes[..., 1::2], (exponents + EXPONENT_BIAS).to(torch.uint8)


def unpack_when_read(module: nn.Module, role: str) -> None:
    """Give a module its weight whole whenever it reads it, as bitsandbytes does for its own formats."""
    weight = module._parameters[role]
    parametrize.register_parametrization(module, role, _Unpack(weight.quant_state), unsafe=True)
    _register_parametrization_hooks(module, role)


class _Unpack(Bnb4bitParametrization):
    """Unpacks a stack."""

    @torch.no_grad()
    def forward(self, quantized_param: torch.Tensor) -> torch.Tensor:
        """Return [experts, inputs, outputs]."""
        experts, inputs, outputs = self.quant_state.shape
        weight = nf4.FourBitWeight.of(quantized_param)
        whole = torch.empty(weight.shape, dtype=self.quant_state.dtype, device=quantized_param.device)
        return nf4.dequantise(weight, whole).view(experts, outputs, inputs).transpose(1, 2)
