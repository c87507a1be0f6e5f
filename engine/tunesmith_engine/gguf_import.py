"""A GGUF file as a model folder of safetensors files, with its tokenizer and chat template."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_engine.failures import translate

GGUF_MAGIC = b"GGUF"

NOT_READ = ("GGUF model with architecture", "ignore_mismatched_sizes")
"""What transformers says of an architecture that it doesn't read, or whose sizes it doesn't take from the file."""

USE_ORIGINAL = Message("Use the original folder of the model, with safetensors files.")


def import_gguf(source: Path, target: Path) -> dict[str, Any]:  # Any: JSON values
    """Convert a GGUF file to bfloat16 safetensors.

    Args:
        source: the file.
        target: the model folder to be; it must not exist.

    Returns:
        path and bytes of the folder.

    Raises:
        UserError: `model-files-missing-or-corrupt` for a file that is no GGUF, or is of a model that can't be read
            from one.
        FileExistsError: when the target exists.
    """
    try:
        with source.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise TunesmithError(
            "model-files-missing-or-corrupt", "{source}: {reason}.", source=source, reason=Message(str(error.strerror))
        ) from error
    if magic != GGUF_MAGIC:
        raise TunesmithError("model-files-missing-or-corrupt", "{source}: this is not a GGUF file.", source=source)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    try:
        _convert_or_explain(source, staging)
        for path in staging.iterdir():
            files.fsync_file(path)
        files.publish_folder(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return {"path": str(target), "bytes": files.folder_bytes(target)}


def _convert_or_explain(source: Path, folder: Path) -> None:
    """Convert; what the reader can't make sense of is said of the file, whatever exception says so.

    It is the file's fault only where something is missing: transformers also fails at files that llama.cpp runs.
    """
    try:
        _convert(source, folder)
    except Exception as error:
        if any(words in str(error) for words in NOT_READ):
            raise TunesmithError(
                "model-files-missing-or-corrupt",
                "{source}: models of the architecture {architecture} can't be imported from GGUF files.",
                hint=USE_ORIGINAL,
                source=source,
                architecture=GGUFReader(source).fields["general.architecture"].contents(),
            ) from error
        known = translate(error)
        if known.code != "bug":
            raise known from error
        reason = f"{type(error).__name__}: {error}"
        if architecture := _architecture_of_whole(source):
            raise TunesmithError(
                "model-files-missing-or-corrupt",
                "{source}: nothing is missing from the file, but transformers can't read this {architecture} model "
                "from it: {error}",
                hint=USE_ORIGINAL,
                context=known.context,
                source=source,
                architecture=architecture,
                error=reason,
            ) from error
        message = Message("{source}: the file can't be converted: {error}", source=source, error=reason)
        raise TunesmithError("model-files-missing-or-corrupt", message, context=known.context) from error


def _architecture_of_whole(source: Path) -> str | None:
    """Return what a file names as its model's architecture; None where a weight, or more, is missing from the file."""
    try:
        # The weights are mapped by it, which fails for those that the file ends before.
        return str(GGUFReader(source).fields["general.architecture"].contents())
    except Exception:
        # A damaged file makes the reader fail in any way.
        return None


def _convert(source: Path, folder: Path) -> None:
    place = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(**place)
    loaded = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32)
    # The weights are plain numbers by now; a config that still says "gguf" could not be saved.
    del loaded.config.quantization_config
    model = AutoModelForCausalLM.from_config(loaded.config)
    model.load_state_dict(loaded.state_dict())
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _keep_licence(source, folder)


def _keep_licence(source: Path, folder: Path) -> None:
    """Write a card that names the licence, where the file does: it holds for every adapter made from the model."""
    licence = GGUFReader(source).fields.get("general.license")
    if licence is not None:
        text = f"---\nlicense: {licence.contents()}\n---\n\nConverted from {source.name}.\n"
        (folder / "README.md").write_text(text, encoding="utf-8")
