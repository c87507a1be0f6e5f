"""A model folder from elsewhere becomes one of the library: checked, copied, under its name only when it is whole."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from tunesmith_core import downloads, files, paths
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.hub_repository import GGUF, is_read
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import open_model_folder, weight_files
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.library import FolderSpec

COPYING = Message("copying")
READING = Message("comparing with the hashes of the hub")
_PIECE_BYTES = 8 << 20


def target_of(name: str) -> Path:
    """Return where a model from elsewhere will be. Raises UserError `model-exists` when there is one of that name."""
    target = paths.models_dir() / name
    if os.path.lexists(target):
        raise TunesmithError("model-exists", "{folder} exists already.", folder=target)
    return target


def import_folder(host: Host, spec: FolderSpec) -> str:
    """Copy a model folder into the folder of models; return where it is.

    Raises:
        UserError: what `open_model_folder` finds, or `model-exists`.
        EnvironmentProblem: `disk-full`, or what the file system says.
    """
    source = Path(spec.path)
    _check_is_model(source)
    open_model_folder(source)
    target = target_of(source.name)
    chosen = sorted({path.name for path in source.iterdir() if is_read(path.name)} | set(weight_files(source)))
    staging = files.private_folder(target.parent) / f".{target.name}-{uuid.uuid4().hex[:8]}"
    total = sum((source / name).stat().st_size for name in chosen)
    downloads.check_room(target.parent, total)
    try:
        files.private_folder(staging)
        done = 0
        for name in chosen:
            done = _copy(source / name, staging / name, host, done, total)
        files.publish_folder(staging, target)
    except OSError as error:
        raise wrap(error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return str(target)


def _check_is_model(folder: Path) -> None:
    """Refuse a folder of something else in words of its own: nothing is damaged there."""
    if (folder / "config.json").exists() or not folder.is_dir():
        return
    hint = "Choose the folder that has the config.json and the safetensors files in it."
    if any(folder.glob(f"*{GGUF}")):
        hint = "To use a GGUF file, import the file instead of its folder."
    raise TunesmithError(
        "hub-no-model", "There is no model in {folder}: config.json is missing.", hint=hint, folder=folder
    )


def _copy(source: Path, target: Path, host: Host, done: int, total: int) -> int:
    """Copy a file durably; return how many bytes are copied by now."""
    with files.open_file(source) as content, files.open_file(target, "ab") as copy:
        while piece := content.read(_PIECE_BYTES):
            copy.write(piece)
            done += len(piece)
            host.event("progress", name=COPYING, done_bytes=done, total_bytes=total)
        copy.flush()
        os.fsync(copy.fileno())
    return done


def verify(host: Host, spec: FolderSpec) -> list[str]:
    """Return the files of a downloaded model that are missing or changed.

    Raises:
        UserError: `model-hashes-unknown` for a model that no download made.
    """
    folder = Path(spec.path)
    record = downloads.read_record(folder)
    if record is None:
        raise TunesmithError(
            "model-hashes-unknown",
            "{name} was not downloaded by Tunesmith, so its hashes are not known.",
            name=folder.name,
        )
    sizes = {file.path: file.size_bytes for file in record.files}
    done, total = 0, record.total_bytes

    def tell(name: str) -> None:
        nonlocal done
        host.event("progress", name=READING, done_bytes=done, total_bytes=total)
        done += sizes[name]

    return list(downloads.changed_files(folder, record, tell))
