"""Launches of Triton programs that run dozens of times a layer, without Triton's own way to them.

`kernel[grid](...)` binds arguments, reads settings and builds a key as text, which takes the host longer than a small
program takes the GPU. A program once compiled can be launched itself (`CompiledKernel.__getitem__`, the same from
Triton 3.2 to 3.6). Which one is right depends on what Triton specialises by: types, and values or alignments of
arguments; the key here holds all of these and the values themselves, so it never tells too little apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

ALIGNMENT_BYTES = 16
"""Triton compiles another program for tensors that start elsewhere."""

Grid = tuple[int, int, int]
Compiled = tuple[Any, bool]
"""A compiled program, and whether it wants the constants among its arguments, as it does from Triton 3.3 on."""

_compiled: dict[tuple[Any, ...], Compiled] = {}


def launch(
    kernel: Any,
    grid: Grid,
    tensors: Sequence[torch.Tensor | None],
    numbers: Sequence[float],
    constants: tuple[Any, ...],
    **options: Any,
) -> None:
    """Do what `kernel[grid](*tensors, *numbers, *constants, **options)` does.

    Args:
        kernel: a function under `jit`, with its parameters in this order.
        grid: number of programs in three directions.
        tensors: the first one is none of None.
        numbers: integers and floats.
        constants: values of the `tl.constexpr` parameters.
        options: such as num_warps.
    """
    first = tensors[0]
    assert first is not None
    key = (
        id(kernel),
        first.device,
        constants,
        *options.values(),
        *numbers,
        *map(type, numbers),
        *[None if tensor is None else (tensor.dtype, tensor.data_ptr() % ALIGNMENT_BYTES) for tensor in tensors],
    )
    found = _compiled.get(key)
    if found is None:
        program = kernel[grid](*tensors, *numbers, *constants, **options)
        # Triton's interpreter gives nothing back; hooks of other tools want to see every launch.
        if program is not None and first.is_cuda and not kernel.pre_run_hooks:
            num_values = len(tensors) + len(numbers) + len(constants)
            _compiled[key] = program, len(program.src.signature) == num_values
    elif found[1]:
        found[0][grid](*tensors, *numbers, *constants)
    else:
        found[0][grid](*tensors, *numbers)
