"""A program is launched again only for arguments of which Triton would make the same program."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tunesmith_engine.kernels import launch as launch_module
from tunesmith_engine.kernels.launch import launch

GRID = (3, 1, 1)


class GpuTensor(torch.Tensor):
    """Says that it lies on a GPU."""

    is_cuda = True  # type: ignore[assignment]


class Kernel:
    """Stands for a function of Triton: compiles at every call, and gives the program back."""

    def __init__(self, takes_constants: bool) -> None:
        self.pre_run_hooks: list[Callable[..., None]] = []
        self.takes_constants = takes_constants
        self.compiled: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., Any]:
        def run(*values: Any, **options: Any) -> Any:
            self.compiled.append((grid, *values, options))
            return Program(self, values[: len(values) if self.takes_constants else -2])

        return run


class Program:
    """Stands for a compiled program."""

    def __init__(self, kernel: Kernel, signature: tuple[Any, ...]) -> None:
        self.kernel, self.src = kernel, SimpleNamespace(signature=signature)

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return lambda *values: self.kernel.launched.append((grid, *values))


def tensor(start: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    memory = torch.zeros(64, dtype=torch.uint8)
    offset = -memory.data_ptr() % launch_module.ALIGNMENT_BYTES + start
    return memory[offset : offset + 16].view(dtype).as_subclass(GpuTensor)


@pytest.fixture
def implementation() -> None:
    """No kernel runs in these tests."""


@pytest.mark.parametrize("takes_constants", [True, False], ids=["Triton 3.3", "Triton 3.2"])
def test_second_launch_needs_no_triton(takes_constants: bool) -> None:
    kernel, x = Kernel(takes_constants), tensor()
    for scale in (0.5, 0.5):
        launch(kernel, GRID, (x, None), (7, scale), (64, "silu"), num_warps=4)
    assert kernel.compiled == [(GRID, x, None, 7, 0.5, 64, "silu", {"num_warps": 4})]
    assert kernel.launched == [(GRID, x, None, 7, 0.5, *((64, "silu") if takes_constants else ()))]


def test_whatever_triton_may_look_at_compiles_anew() -> None:
    kernel = Kernel(True)
    first = (tensor(), None, 7, 0.5)
    others = [
        ((tensor(4), None, 7, 0.5), (64, "silu"), 4),
        ((tensor(dtype=torch.int32), None, 7, 0.5), (64, "silu"), 4),
        ((tensor(), tensor(), 7, 0.5), (64, "silu"), 4),
        ((tensor(), None, 1, 0.5), (64, "silu"), 4),
        ((tensor(), None, 16, 0.5), (64, "silu"), 4),
        ((tensor(), None, 2**31, 0.5), (64, "silu"), 4),
        ((tensor(), None, 7, 1), (64, "silu"), 4),
        ((tensor(), None, 7, 1.0), (64, "silu"), 4),
        (first, (128, "silu"), 4),
        (first, (64, "gelu"), 4),
        (first, (64, "silu"), 8),
    ]
    launch(kernel, GRID, first[:2], first[2:], (64, "silu"), num_warps=4)
    for number, (arguments, constants, num_warps) in enumerate(others):
        launch(kernel, GRID, arguments[:2], arguments[2:], constants, num_warps=num_warps)
        assert len(kernel.compiled) == number + 2, (arguments, constants, num_warps)
    launch(kernel, GRID, (tensor(), None), (7, 0.5), (64, "silu"), num_warps=4)
    assert len(kernel.launched) == 1


def test_other_grids_share_a_program() -> None:
    kernel, x = Kernel(True), tensor()
    for grid in (GRID, (5, 2, 1)):
        launch(kernel, grid, (x,), (), (64, "silu"))
    assert kernel.launched == [((5, 2, 1), x, 64, "silu")]


def test_hooks_see_every_launch() -> None:
    kernel = Kernel(True)
    kernel.pre_run_hooks.append(lambda *_: None)
    for _ in range(2):
        launch(kernel, GRID, (tensor(),), (), (64, "silu"))
    assert len(kernel.compiled) == 2


def test_cpu_and_interpreter_launch_as_usual() -> None:
    kernel = Kernel(True)
    for _ in range(2):
        launch(kernel, GRID, (torch.zeros(4),), (), (64, "silu"))
    assert len(kernel.compiled) == 2
