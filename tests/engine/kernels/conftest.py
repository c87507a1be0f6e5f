"""Every test of a kernel runs on what this process has: the PyTorch twin, and the Triton program where one can run.

Triton decides when it is imported whether its interpreter runs kernels, so one process has kernels or twins on the CPU,
never both: this process has the twins, and ../test_interpreter.py starts a child with TRITON_INTERPRET=1 that runs
the same files with the kernels. On a GPU both run here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tunesmith_engine.kernels import registry
from tunesmith_engine.kernels.triton_import import triton_problem

ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def rows(
    num_rows: int, width: int, dtype: torch.dtype, device: torch.device, seed: int, offset: int = 0
) -> torch.Tensor:
    """Return normal random numbers [num_rows, width], `offset` numbers into memory, with 16 columns of NaN behind."""
    stride = width + 16
    values = torch.full((offset + num_rows * stride,), float("nan"), dtype=dtype)
    view = values[offset:].view(num_rows, stride)[:, :width]
    view.copy_(torch.randn(num_rows, width, generator=torch.Generator().manual_seed(seed)))
    return values.to(device)[offset:].view(num_rows, stride)[:, :width]


def _round_as_a_gpu() -> None:
    """Let the interpreter round float32 to the nearest bfloat16, as every GPU does: Triton 3.2 cuts the digits off."""
    from triton import language as tl
    from triton.runtime import interpreter

    usual = interpreter._convert_float

    def convert(values: Any, source: Any, target: Any, rounding: Any) -> Any:  # Any: numpy and Triton's own types
        if source != tl.float32 or target != tl.bfloat16:
            return usual(values, source, target, rounding)
        return torch.tensor(values).to(torch.bfloat16).view(torch.int16).numpy().view("uint16")

    interpreter._convert_float = convert


def _let_tensors_bound_loops() -> None:
    """Let the interpreter take a tensor as the bound of a loop: Triton 3.2's way is an error since NumPy 2.4."""
    from triton.runtime import interpreter

    usual = interpreter._patch_lang_tensor

    def patch(tensor: Any, *scope: Any) -> None:  # Any: Triton's tensor class, and from 3.6 on what undoes patches
        usual(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch


TF32_IS_CUT = [False]
"""Whether products in TF32 take of float32 numbers what tensor cores take; see `tensor_cores`."""


def _multiply_as_a_gpu() -> None:
    """Let the interpreter multiply the values of bfloat16 matrices: up to Triton 3.6 it multiplies their bits."""
    from triton import language as tl
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    usual = interpreter.InterpreterBuilder.create_dot

    def taken(matrix: Any, precision: Any) -> Any:  # Any: Triton's handle of a matrix, and its enumeration
        if matrix.dtype == tl.bfloat16:
            return interpreter.TensorHandle((matrix.data.astype("uint32") << 16).view("float32"), tl.float32)
        if matrix.dtype == tl.float32 and precision == ir.INPUT_PRECISION.TF32 and TF32_IS_CUT[0]:
            bits = matrix.data.copy(order="C").view("uint32") & 0xFFFFE000
            return interpreter.TensorHandle(bits.view("float32"), tl.float32)
        return matrix

    def dot(self: Any, a: Any, b: Any, total: Any, precision: Any, *rest: Any) -> Any:  # Any: Triton's own types
        return usual(self, taken(a, precision), taken(b, precision), total, precision, *rest)

    interpreter.InterpreterBuilder.create_dot = dot


if INTERPRETED and not triton_problem:
    _round_as_a_gpu()
    _let_tensors_bound_loops()
    _multiply_as_a_gpu()


def _implementations() -> list[str]:
    if triton_problem:
        return ["twin"]
    if INTERPRETED:
        return ["kernel"]
    return ["twin", "kernel"] if ON_GPU else ["twin"]


@pytest.fixture(params=_implementations(), autouse=True)
def implementation(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which of "twin" and "kernel" a launcher runs in this test."""
    if request.param == "twin":
        registry.switch_off(registry.ALL, "This test is about the twin.")
    yield request.param
    registry.switch_on_all()


@pytest.fixture
def device() -> torch.device:
    """The device of a test's tensors: a GPU where there is one, unless Triton's interpreter runs the kernels."""
    return torch.device("cuda" if ON_GPU and not INTERPRETED else "cpu")


@pytest.fixture
def tensor_cores() -> Iterator[None]:
    """Let the interpreter's products in TF32 cut 13 digits off float32 numbers first, as a GPU's do."""
    TF32_IS_CUT[0] = True
    yield
    TF32_IS_CUT[0] = False


@pytest.fixture
def far_rows() -> torch.Tensor:
    """Two rows of 64 numbers, 2^31 numbers apart; filling 4 GiB is for GPUs."""
    if not ON_GPU or INTERPRETED:
        pytest.skip("needs a GPU")
    memory = torch.zeros(2**31 + 64, dtype=torch.float16, device="cuda")
    return memory.as_strided((2, 64), (2**31, 1)).copy_(torch.arange(128.0).view(2, 64) / 128 + 0.5)
