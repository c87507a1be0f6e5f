"""NF4 weights are unpacked bit for bit as bitsandbytes does, MXFP4 weights as their files say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests import packed_models
from tunesmith_engine.kernels.nf4 import FourBitWeight, dequantise

bitsandbytes = pytest.importorskip("bitsandbytes")
functional = bitsandbytes.functional
mxfp4 = pytest.importorskip("tunesmith_engine.model.mxfp4")

SHAPES = [(8, 64), (7, 100), (5, 33), (3, 5000), (1, 1), (67, 256), (3, 4160)]
"""Whole blocks in a row, blocks across rows, an odd end, more than a program's span, the least, many rows, two spans of
a row."""
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _no_compiler() -> Iterator[None]:
    """Odd shapes take bitsandbytes' plain PyTorch code on the CPU, which asks for torch.compile."""
    with torch.compiler.set_stance("force_eager"):
        yield


def _weight(
    shape: tuple[int, int], device: torch.device, block_size: int = 64, nested: bool = True, **changes: object
) -> torch.nn.Parameter:
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(shape, generator=generator) * torch.rand(shape[0], 1, generator=generator)
    packed, state = functional.quantize_4bit(
        values.to(device), blocksize=block_size, compress_statistics=nested, quant_type="nf4", **changes
    )
    return bitsandbytes.nn.Params4bit(packed, requires_grad=False, quant_state=state, bnb_quantized=True)


def _by_bitsandbytes(weight: torch.nn.Parameter, dtype: torch.dtype) -> torch.Tensor:
    weight.quant_state.dtype = dtype
    return functional.dequantize_4bit(weight.data, weight.quant_state)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("nested", [True, False])
def test_same_bits_as_bitsandbytes(shape: tuple[int, int], nested: bool, device: torch.device) -> None:
    weight = _weight(shape, device, nested=nested)
    parts = FourBitWeight.of(weight)
    for dtype in DTYPES:
        room = torch.full((shape[0], shape[1] + 9), 7.0, dtype=dtype, device=device)
        out = room[:, : shape[1]]
        assert dequantise(parts, out) is out
        assert torch.equal(out, _by_bitsandbytes(weight, dtype)), dtype
        assert torch.all(room[:, shape[1] :] == 7.0), dtype


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_scaled_before_they_are_rounded(shape: tuple[int, int], device: torch.device) -> None:
    weight = _weight(shape, device)
    scales = torch.rand(shape[0], generator=torch.Generator().manual_seed(4)).to(device) + 0.5
    exact = _by_bitsandbytes(weight, torch.float32) * scales[:, None]
    for dtype in DTYPES:
        out = torch.empty(shape, dtype=dtype, device=device)
        assert torch.equal(dequantise(FourBitWeight.of(weight), out, scales), exact.to(dtype)), dtype


@pytest.mark.parametrize("shape", [(6, 4096), (6, 2100)])
def test_experts_to_whom_no_token_goes_are_not_needed(
    shape: tuple[int, int], device: torch.device, implementation: str
) -> None:
    weight = _weight(shape, device)
    counts = torch.tensor([0, 3, 1], dtype=torch.int32, device=device)
    out = torch.full(shape, 7.0, dtype=torch.bfloat16, device=device)
    dequantise(FourBitWeight.of(weight), out, counts=counts)
    assert torch.equal(out[2:], _by_bitsandbytes(weight, torch.bfloat16)[2:])
    if implementation == "kernel":
        assert (out[:2] == 7.0).all()


@pytest.mark.parametrize("block_size", [128, 512, 4096])
@pytest.mark.parametrize("shape", [(3, 4096), (3, 2100)])
def test_every_block_size(block_size: int, shape: tuple[int, int], device: torch.device) -> None:
    weight = _weight(shape, device, block_size)
    out = torch.empty(shape, dtype=torch.bfloat16, device=device)
    assert torch.equal(dequantise(FourBitWeight.of(weight), out), _by_bitsandbytes(weight, torch.bfloat16))


def test_many_outer_scales(device: torch.device) -> None:
    """More than 256 blocks: the second outer scale is taken, and blocks beyond the end touch nothing."""
    weight = _weight((261, 64), device)
    assert weight.quant_state.state2.absmax.numel() == 2
    out = torch.empty((261, 64), dtype=torch.float32, device=device)
    assert torch.equal(dequantise(FourBitWeight.of(weight), out), _by_bitsandbytes(weight, torch.float32))


@pytest.mark.parametrize("width", [32, 96, 2080])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_experts_in_mxfp4_are_what_their_file_says(width: int, dtype: torch.dtype, device: torch.device) -> None:
    blocks, scales, meant = packed_models.mxfp4(torch.Size((2, width, 5)), torch.Generator().manual_seed(5))
    kept = mxfp4.packed(meant.to(device))
    assert kept is not None
    assert kept.numel() == blocks.numel()
    assert kept.quant_state.absmax.numel() == scales.numel()
    out = torch.empty((10, width), dtype=dtype, device=device)
    whole = dequantise(FourBitWeight.of(kept), out).view(2, 5, width).transpose(1, 2)
    assert torch.equal(whole, meant.to(device, dtype))


def test_numbers_that_mxfp4_lacks_are_not_rounded_to_it(device: torch.device) -> None:
    _, _, meant = packed_models.mxfp4(torch.Size((2, 64, 3)), torch.Generator().manual_seed(6))
    meant[0, 0, 0] = 0.0
    whole = meant.to(device)
    assert mxfp4.packed(whole) is not None
    assert mxfp4.packed(whole[:, :48]) is None
    for wrong in (whole[1, 5].abs().amax() * 1.25, torch.tensor(2.0**40), torch.tensor(float("nan"))):
        changed = whole.clone()
        changed[1, 5, 2] = wrong
        assert mxfp4.packed(changed) is None


@pytest.mark.long
@pytest.mark.parametrize("block_size", [64, 4096])
def test_rows_behind_2_to_the_31_numbers(far_rows: torch.Tensor, block_size: int) -> None:
    """In whole blocks a row, and with blocks across rows."""
    weight = _weight(tuple(far_rows.shape), far_rows.device, block_size)
    assert torch.equal(dequantise(FourBitWeight.of(weight), far_rows), _by_bitsandbytes(weight, far_rows.dtype))


def test_parts_are_not_copied(device: torch.device) -> None:
    weight = _weight((64, 64), device, quant_storage=torch.bfloat16)
    parts = FourBitWeight.of(weight)
    assert parts.packed.data_ptr() == weight.data.data_ptr()
    assert parts.packed.numel() == 64 * 32
    assert parts.offset is weight.quant_state.offset
    out = torch.empty((64, 64), dtype=torch.float16, device=device)
    assert torch.equal(dequantise(parts, out), _by_bitsandbytes(weight, torch.float16))


def test_other_formats_are_refused_by_name(device: torch.device) -> None:
    values = torch.randn(8, 64, device=device)
    packed, state = functional.quantize_4bit(values, quant_type="fp4")
    four_bit = bitsandbytes.nn.Params4bit(packed, requires_grad=False, quant_state=state, bnb_quantized=True)
    with pytest.raises(ValueError, match="fp4"):
        FourBitWeight.of(four_bit)
    with pytest.raises(ValueError, match="isn't quantised"):
        FourBitWeight.of(torch.nn.Parameter(values))
    weight = _weight((8, 64), device)
    weight.quant_state.packing_format_for_cpu = True
    with pytest.raises(ValueError, match="inference"):
        FourBitWeight.of(weight)
