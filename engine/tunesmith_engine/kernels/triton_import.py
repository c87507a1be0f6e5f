"""Triton, or its absence: kernels are defined either way and called only when it is there."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from tunesmith_core.messages import Message

__all__ = ["jit", "tl", "triton", "triton_problem", "triton_version"]

triton_problem: str | None = None
try:
    import triton
    import triton.language as tl
except Exception as error:  # whatever a broken installation raises
    triton: Any = None  # type: ignore[no-redef]
    tl: Any = None  # type: ignore[no-redef]
    triton_problem = Message("Triton can't be loaded: {error}", error=error)


def jit(function: Any = None, **options: Any) -> Any:  # Any: a kernel's source function
    """Return a function as a Triton kernel, or as it is where there is no Triton."""
    if function is None:
        return lambda source: jit(source, **options)
    return triton.jit(function, **options) if triton is not None else function


def triton_version() -> str:
    """Return the version of Triton, under either of its names."""
    for name in ("triton-windows", "triton"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
