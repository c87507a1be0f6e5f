"""Variables of the person's shell that lead libraries astray; our own processes are started without them."""

from __future__ import annotations

from typing import Any

from tunesmith_core.environments import REMOVED_VARIABLES, WSL_LIBRARIES
from tunesmith_setup.probe.computer import Computer

HARMLESS = frozenset("CUDA_VISIBLE_DEVICES HF_TOKEN HUGGING_FACE_HUB_TOKEN OMP_NUM_THREADS MKL_NUM_THREADS".split())
"""Removed as well, but a choice or a secret of the person, not a cause of failures."""

LEAKING = (REMOVED_VARIABLES - HARMLESS) | {"PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP"}


def facts(computer: Computer) -> dict[str, Any]:
    """Return `leaks`."""
    leaks = {
        name: value
        for name, value in sorted(computer.variables.items())
        # Where the subsystem's own libraries are is no leak.
        if name.upper() in LEAKING and value and value.rstrip("/") != WSL_LIBRARIES
    }
    return {"leaks": leaks}
