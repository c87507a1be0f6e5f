"""Proof that this environment trains on this machine: steps that each have a cause of failure and a time.

Nothing heavy is imported here: importing the libraries is the first step. Every step is told before and after it, so
that who waits knows the step in which the process died or hung.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tunesmith_core.devices import nvidia_present
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.messages import Message, MessageError
from tunesmith_engine.failures import translate

VERSION = 1


class NotApplicableError(MessageError):
    """A step has nothing to prove on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is proved by the module of its name, whose `prove(device)` returns details or raises.

    Attributes:
        name: also of the module.
        title: for the person.
        code: of the failure, when neither the step nor its error tells the cause.
        required: whether runs are impossible without it.
    """

    name: str
    title: str
    code: str
    required: bool = True


STEPS = (
    Step("imports", Message("Import the libraries"), "environment-build-failed"),
    Step("gpu", Message("Reach the GPUs"), "driver-missing"),
    Step("matrix_product", Message("Multiply matrices on every device"), "device-miscomputes"),
    Step("triton_kernel", Message("Compile and run a Triton kernel"), "triton-not-installed", required=False),
    Step("four_bit", Message("Compute with 4-bit weights"), "bnb-cuda-lib-missing"),
    Step("lora_step", Message("Train a tiny LoRA model"), "device-miscomputes"),
)


def selftest(
    device: str = "auto", on_step: Callable[[dict[str, Any]], object] = lambda _step: None
) -> dict[str, Any]:  # Any: JSON values
    """Prove step by step that this environment trains on this machine.

    Args:
        device: "cuda", "cpu", or "auto" for the GPU where an NVIDIA driver is loaded.
        on_step: told each step when it begins and when it has ended.

    Returns:
        version, device, seconds, state ("ok" or "failed"), fused_kernels (whether Triton kernels run), steps (name,
        title, required, state, seconds, details, and after a failure error); and the first required step's error as
        error.
    """
    wanted = ("cuda" if nvidia_present() else "cpu") if device == "auto" else device
    if wanted == "cpu":
        # Without a GPU the interpreter runs the kernel; it must be asked for before Triton is imported by anybody.
        os.environ["TRITON_INTERPRET"] = "1"
    started_s = time.monotonic()
    steps = [{"name": step.name, "title": step.title, "required": step.required, "state": "waiting"} for step in STEPS]
    result: dict[str, Any] = {"version": VERSION, "device": wanted, "state": "checking", "steps": steps}

    def tell(entry: dict[str, Any], **news: Any) -> None:
        entry.update(news)
        result["seconds"] = round(time.monotonic() - started_s, 3)
        on_step(entry)

    for step, entry in zip(STEPS, steps, strict=True):
        tell(entry, state="checking")
        tell(entry, **_prove(step, wanted))
        if entry["state"] == "failed" and step.required:
            return result | {"state": "failed", "error": entry["error"], "fused_kernels": False}
    fused = any(entry["name"] == "triton_kernel" and entry["state"] == "ok" for entry in steps) and wanted == "cuda"
    return result | {"state": "ok", "fused_kernels": fused}


def _prove(step: Step, device: str) -> dict[str, Any]:  # Any: JSON values
    """Take a step and return what there is to say about it."""
    started_s = time.monotonic()
    try:
        details = importlib.import_module(f"{__name__}.{step.name}").prove(device)
        outcome: dict[str, Any] = {"state": "ok", "details": details}
    except NotApplicableError as reason:
        outcome = {"state": "skipped", "details": {"reason": reason.message}}
    except Exception as error:
        outcome = {"state": "failed", "details": {}, "error": cause(step, error).to_dict()}
    return outcome | {"seconds": round(time.monotonic() - started_s, 3)}


def cause(step: Step, error: Exception) -> TunesmithError:
    """Return an error of a step under the name of its cause, or of the step's own where none is found."""
    known = translate(error)
    if isinstance(error, TunesmithError):
        return known
    message = Message("{title}: {problem}", title=step.title, problem=f"{type(error).__name__}: {error}")
    if known.code == "bug":
        return EnvironmentProblem(step.code, message, context=known.context)
    return EnvironmentProblem(known.code, message, context=known.context, hint=known.hint, actions=known.actions)
