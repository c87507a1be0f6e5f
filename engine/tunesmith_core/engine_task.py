"""Short jobs in the training environment: an engine subcommand as a child that answers with a JSON file."""

from __future__ import annotations

import time
import uuid
from typing import Any

from tunesmith_core import environments, files, paths
from tunesmith_core.capped_log import tail_of
from tunesmith_core.devices import Device
from tunesmith_core.engine_process import EngineProcess
from tunesmith_core.errors import TunesmithError, wrap

POLL_S = 0.05


def run_task(*arguments: str, device: Device | None = None, model: str = "") -> dict[str, Any]:  # Any: JSON values
    """Run an engine subcommand to its end and return its answer; an interrupt ends it with all its children.

    Args:
        arguments: the subcommand and its arguments, without --out.
        device: the device that it may see; every one when None.
        model: the base model, a folder or a hub id.

    Raises:
        TunesmithError: the one that the engine reports; the cause that its output tells, else RunFailure
            `engine-crashed`, when it gives no answer.
    """
    command = environments.engine_command(*arguments)
    stem = f"task-{uuid.uuid4().hex[:8]}"
    environment = environments.engine_environment(model) | (device.environment() if device else {})
    answer_path, log_path = paths.tmp_dir() / f"{stem}.json", paths.tmp_dir() / f"{stem}.log"
    try:
        try:
            engine = EngineProcess(
                [*command, "--out", str(answer_path)],
                folder=paths.tmp_dir(),
                environment=environment,
                log_path=log_path,
            )
        except OSError as error:
            raise wrap(error) from error
        try:
            while not engine.ended():
                time.sleep(POLL_S)
        finally:
            code = engine.close()
        try:
            answer = files.read_json(answer_path)
        except (OSError, ValueError):
            # Imported here: a job that ends well does not pay for it.
            from tunesmith_core.explain.failure import explained

            output = tail_of(log_path)
            failure = TunesmithError(
                "engine-crashed",
                "The engine's {command} ended with exit code {code} and without an answer.",
                context=output,
                command=arguments[0],
                code=code,
            )
            raise explained(failure, output) from None
    finally:
        answer_path.unlink(missing_ok=True)
        log_path.unlink(missing_ok=True)
    if "error" in answer:
        raise TunesmithError.from_dict(answer["error"])
    return dict(answer)
