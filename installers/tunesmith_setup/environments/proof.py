"""Proof that an environment trains on this computer: the engine's selftest in a child process, and its record.

The record lies in the environment as proof.json, whatever came out. A step that took too long is unknown and nothing
worse: the environment stays, and the next attempt begins with the proof.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.environments import PROOF, environment_python
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.explain.failure import this_machine
from tunesmith_core.messages import Message
from tunesmith_core.operations.kinds.engine import SELFTEST, SelftestSpec
from tunesmith_core.operations.runner import Outcome, conduct
from tunesmith_core.protocol import Event
from tunesmith_core.setup_messages import Finding, State
from tunesmith_setup.progress import Progress

LIMIT_S = 600.0
"""Importing everything from a cold, slow disk takes a minute or two; the steps after it take seconds."""

Record = dict[str, Any]  # Any: JSON values


def read(folder: Path) -> Record | None:
    """Return the record of an environment's last proof, None when there is none that can be read."""
    try:
        record = files.read_json(folder / PROOF)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def is_proven(folder: Path) -> bool:
    """Return whether the last proof of an environment came out well."""
    record = read(folder)
    return record is not None and record.get("state") == "ok"


def prove(folder: Path, device: str, progress: Progress, limit_s: float = LIMIT_S) -> Record:
    """Prove an environment, show each step, and keep the record.

    Args:
        folder: the environment.
        device: "cuda" or "cpu", what its runs shall use.
        progress: takes the steps as checks named proof-*.
        limit_s: how long a step may take before the proof is given up as unknown.

    Returns:
        proven_at, state ("ok"), device, seconds, versions, gpus, driver, fused_kernels, and steps with id, name, ok,
        state, seconds, details and, after a failure, error.

    Raises:
        EnvironmentProblem: under the name of the cause; `engine-hung` when it took too long.
    """
    steps: dict[str, Record] = {}

    def take(event: Event) -> None:
        if event.type == "check":
            steps[event.data["name"]] = event.data
            _show(event.data, progress)

    spec, python = SelftestSpec(device), environment_python(folder)
    outcome = conduct(
        SELFTEST, spec, on_event=take, command=lambda it: SELFTEST.command(it, spec, python), limit_s=limit_s
    )
    failure = _failure(outcome, list(steps.values()))
    answer = outcome.answer or {"device": device, "steps": list(steps.values())}
    record = _record(answer, failure, outcome.in_time)
    files.atomic_write_json(folder / PROOF, record)
    files.crashpoint("environment.proven")
    if failure is not None:
        raise failure
    return record


def _show(step: Record, progress: Progress) -> None:
    """Show a step; one that is not required only warns."""
    state, error = step["state"], step.get("error") or {}
    if state == "failed" and not step["required"]:
        state = "warning"
    message = error.get("message") or step.get("details", {}).get("reason") or ""
    shown = State.OK if state == "skipped" else State(state)
    progress.check(Finding(shown, message, error.get("code"), id=f"proof-{step['name']}", title=step["title"]))


def _failure(outcome: Outcome, steps: list[Record]) -> TunesmithError | None:
    """Return what went wrong, None when nothing did."""
    step = next((step["title"] for step in steps if step["state"] == "checking"), Message("Start"))
    if not outcome.in_time:
        message = Message("Testing the environment took too long, at this step: {step}.", step=step)
        hint = Message("Close other programs, then run the same command again. It continues with the test.")
        return EnvironmentProblem("engine-hung", message, context=outcome.output, hint=hint)
    if outcome.answer is not None or outcome.error is None:
        return outcome.error
    found = outcome.error
    return EnvironmentProblem(
        found.code,
        "Testing the environment ended with exit code {exit_code}, at this step: {step}.",
        context=outcome.output,
        hint=found.hint,
        actions=found.actions,
        exit_code=outcome.exit_code,
        step=step,
    )


def _record(answer: Record, failure: TunesmithError | None, in_time: bool) -> Record:
    """Return what is kept of a proof."""
    steps = [
        {"id": step["name"], "name": step["title"], "ok": step["state"] in ("ok", "skipped")}
        | {key: step[key] for key in ("state", "seconds", "details", "error") if key in step}
        for step in answer["steps"]
    ]
    details = {step["id"]: step.get("details", {}) for step in steps}
    driver = this_machine().driver if answer.get("device") == "cuda" else None
    return {
        "version": 1,
        "proven_at": time.time(),
        "state": ("failed" if in_time else "unknown") if failure else "ok",
        "device": answer.get("device"),
        "seconds": answer.get("seconds"),
        "versions": details.get("imports", {}).get("versions", {}),
        "gpus": details.get("gpu", {}).get("gpus", []),
        "driver": driver.version if driver else None,
        "fused_kernels": answer.get("fused_kernels", False),
        "steps": steps,
        "error": failure.to_dict() if failure else None,
    }
