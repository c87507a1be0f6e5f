"""Proof that an environment trains on this computer: the engine's selftest in a child process, and its record.

The record lies in the environment as proof.json, whatever came out. A step that took too long is unknown and nothing
worse: the environment stays, and the next attempt begins with the proof.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tunesmith_core import files, paths
from tunesmith_core.capped_log import tail_of
from tunesmith_core.engine_process import EngineProcess
from tunesmith_core.environments import engine_environment, environment_python, module_command
from tunesmith_core.errors import EnvironmentProblem, TunesmithError
from tunesmith_core.explain import explain
from tunesmith_core.explain.failure import this_machine
from tunesmith_setup.packages.inventory import PROOF
from tunesmith_setup.progress import Progress

TIMEOUT_S = 600.0
"""Importing everything from a cold, slow disk takes a minute or two; the steps after it take seconds."""
POLL_S = 0.1

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


def prove(folder: Path, device: str, progress: Progress, timeout_s: float = TIMEOUT_S) -> Record:
    """Prove an environment, show each step, and keep the record.

    Args:
        folder: the environment.
        device: "cuda" or "cpu", what its runs shall use.
        progress: takes the steps as checks named proof-*.
        timeout_s: after which the proof is given up as unknown.

    Returns:
        proven_at, state ("ok"), device, seconds, versions, gpus, driver, fused_kernels, and steps with id, name, ok,
        state, seconds, details and, after a failure, error.

    Raises:
        EnvironmentProblem: under the name of the cause; `engine-hung` when it took too long.
    """
    # Names that stay the same: the next proof removes what a killed one left.
    answer_path, log_path = (paths.tmp_dir() / f"proof-{folder.name}.{suffix}" for suffix in ("json", "log"))
    answer_path.unlink(missing_ok=True)
    arguments = ("selftest", "--device", device, "--out", str(answer_path))
    environment = engine_environment()
    try:
        engine = EngineProcess(
            module_command(environment_python(folder), "tunesmith_engine", *arguments),
            folder=paths.tmp_dir(),
            environment=environment,
            log_path=log_path,
        )
        in_time, code = _follow(engine, answer_path, progress, timeout_s)
        answer = _answer(answer_path)
        failure = _failure(answer, in_time, code, tail_of(log_path))
    finally:
        answer_path.unlink(missing_ok=True)
        log_path.unlink(missing_ok=True)
    record = _record(answer, failure, in_time)
    files.atomic_write_json(folder / PROOF, record)
    files.crashpoint("environment.proven")
    if failure is not None:
        raise failure
    return record


def _follow(engine: EngineProcess, answer_path: Path, progress: Progress, timeout_s: float) -> tuple[bool, int]:
    """Show the steps until the engine ends or the time is over; return whether it was in time, and its exit code."""
    deadline = time.monotonic() + timeout_s
    shown: dict[str, str] = {}
    try:
        while not engine.ended() and time.monotonic() < deadline:
            time.sleep(POLL_S)
            _show(_answer(answer_path), shown, progress)
        in_time = engine.ended()
    finally:
        code = engine.close()
    _show(_answer(answer_path), shown, progress)
    return in_time, code


def _answer(path: Path) -> Record:
    """Return what the engine has told so far."""
    try:
        return dict(files.read_json(path))
    except (OSError, ValueError):
        return {"steps": []}


def _show(answer: Record, shown: dict[str, str], progress: Progress) -> None:
    """Show every step whose state has changed; one that is not required only warns."""
    for step in answer["steps"]:
        if step["state"] == shown.get(step["name"]):
            continue
        shown[step["name"]] = step["state"]
        state, error = step["state"], step.get("error") or {}
        if state == "failed" and not step["required"]:
            state = "warning"
        message = str(error.get("message") or step.get("details", {}).get("reason") or "")
        shown_state = "ok" if state == "skipped" else state
        progress.check(f"proof-{step['name']}", step["title"], shown_state, message, error.get("code"))


def _failure(answer: Record, in_time: bool, code: int, output: str) -> TunesmithError | None:
    """Return what went wrong, None when nothing did."""
    step = next((step["title"] for step in answer["steps"] if step["state"] == "checking"), "Start")
    if not in_time:
        message = f"The proof of the environment took too long; it was at the step: {step}."
        hint = "Run the same command again: it begins with the proof. Close other programs first."
        return EnvironmentProblem("engine-hung", message, context=output, hint=hint)
    if "error" in answer:
        return TunesmithError.from_dict(answer["error"])
    if answer.get("state") == "ok":
        return None
    read_code = explain(output, this_machine()).code
    return EnvironmentProblem(
        "engine-crashed" if read_code == "unknown" else read_code,
        f"The proof of the environment ended with exit code {code} at the step: {step}.",
        context=output,
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
        "proven_at": round(time.time(), 3),
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
