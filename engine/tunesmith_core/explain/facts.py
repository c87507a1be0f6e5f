"""Decides by the facts about the computer where one text has several causes."""

from __future__ import annotations

from tunesmith_core.machine import Machine

OLDEST_TRITON_CAPABILITY = (7, 0)
OLDEST_BF16_CAPABILITY = (8, 0)
NEWEST_CUDA_12_4_CAPABILITY = (9, 0)
"""CUDA 12.4, its ptxas and Triton 3.2 end at Hopper."""

OLDEST_CUDA_12_DRIVER = (12, 0)
"""A driver for an older CUDA serves none of the builds for CUDA 12."""

MIN_FREE_COMMIT_BYTES = 4 << 30
"""Loading the CUDA libraries reserves about this much."""

PTXAS_LEAKS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS.EXE_PATH", "CUDA_PATH", "CUDA_HOME")


def decide(code: str, variant: str, text: str, machine: Machine) -> tuple[str, str, bool]:
    """Return code and variant in the light of the facts, and whether the facts settled it."""
    rule = _RULES.get(code)
    decided = rule(variant, text, machine) if rule else None
    return (*decided, True) if decided else (code, variant, False)


def _no_cuda(_variant: str, text: str, machine: Machine) -> tuple[str, str] | None:
    """PyTorch without CUDA: is there a GPU that it could use?"""
    if machine.gpus:
        if "+cpu" in text or "not compiled with CUDA" in text:
            return "torch-cpu-build", ""
        return None
    return ("driver-missing", "no-gpu") if machine.gpus == () else None


def _kernel_compiler(variant: str, _text: str, machine: Machine) -> tuple[str, str] | None:
    """ptxas failed: a stray one, a GPU that it does not know, or code that this GPU can't run?"""
    if variant in ("external", "missing") or any(name in (machine.leaks or {}) for name in PTXAS_LEAKS):
        return "ptxas-mismatch", "missing" if variant == "missing" else "external"
    newest = max((gpu.compute_capability or (0, 0) for gpu in machine.gpus or ()), default=(0, 0))
    if newest > NEWEST_CUDA_12_4_CAPABILITY:
        return "triton-arch-unsupported", "too-new"
    if (0, 0) < newest < OLDEST_BF16_CAPABILITY:
        return "triton-arch-unsupported", "" if newest < OLDEST_TRITON_CAPABILITY else "bf16"
    return None


def _library_load(_variant: str, _text: str, machine: Machine) -> tuple[str, str] | None:
    """A DLL failed to load: without a runtime, or without memory to load it into?"""
    if machine.vc_runtime == (0, 0):
        return "dll-load-failed-vcredist", ""
    if machine.commit_limit_bytes is not None and machine.commit_used_bytes is not None:
        free = machine.commit_limit_bytes - machine.commit_used_bytes
        if free < MIN_FREE_COMMIT_BYTES:
            return "page-file-too-small", ""
    return None


def _no_libcuda(_variant: str, _text: str, machine: Machine) -> tuple[str, str] | None:
    """libcuda is missing: inside WSL it comes from Windows, elsewhere with the driver."""
    if machine.is_wsl is False and machine.driver is None and machine.gpus is not None:
        return "driver-missing", ""
    return ("wsl-libcuda-missing", "") if machine.is_wsl else None


def _no_driver(_variant: str, text: str, machine: Machine) -> tuple[str, str] | None:
    """No GPU is visible: to this build, through this driver, or at all?"""
    if machine.is_wsl and not machine.gpus:
        return "wsl-libcuda-missing", ""
    if machine.gpus and "+cpu" in text:
        return "torch-cpu-build", ""
    if machine.driver and machine.driver.cuda_version and machine.driver.cuda_version < OLDEST_CUDA_12_DRIVER:
        return "driver-too-old", ""
    return None


_RULES = {
    "torch-cpu-build": _no_cuda,
    "driver-missing": _no_driver,
    "ptxas-mismatch": _kernel_compiler,
    "dll-load-failed-vcredist": _library_load,
    "wsl-libcuda-missing": _no_libcuda,
}

AMBIGUOUS = frozenset(_RULES)
"""The causes that facts can change."""
