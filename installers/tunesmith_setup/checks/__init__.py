"""All checks, in the order of the repair playbook: what comes later can only be right when what comes first is."""

from __future__ import annotations

from tunesmith_core.environments import LAUNCHER_POINTER, TRAINING_POINTER
from tunesmith_setup.checks.base import Check
from tunesmith_setup.checks.disk import CompileCaches, FreeSpace
from tunesmith_setup.checks.environment import EnvironmentFiles, EnvironmentPython, ProgramFiles
from tunesmith_setup.checks.gpu import GpuMemory, GpuServed, Proof
from tunesmith_setup.checks.host import (
    DataFolder,
    Leaks,
    LongPaths,
    Memory,
    ProgramPython,
    Security,
    VcRuntime,
    WslState,
)
from tunesmith_setup.checks.leftovers import Leftovers, OtherEnvironments
from tunesmith_setup.checks.packages import BitsAndBytes, Libraries, TorchBuild, Triton


def all_checks(*, full: bool = False) -> list[Check]:
    """Return every check in order.

    Args:
        full: whether every installed byte is read and hashed, instead of sizes and times.
    """
    return [
        FreeSpace(),
        DataFolder(),
        LongPaths(),
        Memory(),
        ProgramPython(),
        ProgramFiles(),
        EnvironmentPython(LAUNCHER_POINTER),
        EnvironmentFiles(LAUNCHER_POINTER, full=full),
        EnvironmentPython(TRAINING_POINTER),
        EnvironmentFiles(TRAINING_POINTER, full=full),
        GpuServed(),
        GpuMemory(),
        TorchBuild(),
        VcRuntime(),
        Triton(),
        BitsAndBytes(),
        Libraries(),
        Proof(),
        CompileCaches(),
        OtherEnvironments(),
        Leftovers(),
        Leaks(),
        Security(),
        WslState(),
    ]
