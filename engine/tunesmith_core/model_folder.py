"""A model folder, looked at without any library: are the files there, whole, safe, and do they fit each other.

Only headers are read, so a folder of any size is checked in milliseconds.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tunesmith_core import paths, trash
from tunesmith_core.errors import BugError, TunesmithError, wrap
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.model_config import check_config, check_generation, check_tensors, embedding_rows, language_part
from tunesmith_core.model_json import MIB, damaged, read_object, unreadable
from tunesmith_core.packed_weights import Layout, unpack
from tunesmith_core.runs import Run
from tunesmith_core.safetensors_header import Tensor, read_header
from tunesmith_core.tokenizer_files import check_tokenizer, has_chat_template

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
ADAPTER_NAME = "adapter_config.json"
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
READ_SUFFIXES = (".json", ".safetensors", ".model", ".jinja", ".txt")
"""Endings of the names of files that a library may open."""

MOST_CONFIG_BYTES = 16 * MIB
MOST_PATH = 400
"""Letters of a folder's path that an error repeats: that of a model in a hub's cache is whole."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """What the files of a model say.

    Attributes:
        config: values of config.json.
        shapes: tensor name to its dimensions, over all weight files.
        has_chat_template: whether the tokenizer can render chats.
    """

    path: Path
    config: Mapping[str, Any]  # Any: JSON values
    shapes: dict[str, tuple[int, ...]]
    has_chat_template: bool

    def adapter_bytes(self, rank: int) -> int:
        """Return an upper estimate of a 32-bit adapter of a rank on every linear layer."""
        sides = (
            sum(shape)
            for name, shape in self.shapes.items()
            if len(shape) == 2 and "embed" not in name and "lm_head" not in name
        )
        return 4 * rank * sum(sides)


def is_hub_id(text: str) -> bool:
    """Return whether a text has the form of a hub id, org/name."""
    return _HUB_ID.fullmatch(text) is not None


def hub_folder(hub_id: str, revision: str = "") -> Path:
    """Return where the downloaded model of a hub id is, or would be."""
    name = hub_id.replace("/", "--") + (f"@{quote(revision, safe='')}" if revision else "")
    return paths.models_dir() / name


def local_folder(text: str, revision: str = "") -> Path | None:
    """Return the folder that a run's model means; None for a hub id that was not downloaded.

    Args:
        text: a folder or a hub id.
        revision: of the hub id.

    Raises:
        UserError: `model-files-missing-or-corrupt` for what is not a folder, `model-deleted` for what is in the trash.
        EnvironmentProblem: `path-too-long` or `permission-or-antivirus`.
    """
    # Not Path.expanduser, which raises for the home of an unknown person.
    folder = Path(os.path.expanduser(text))  # noqa: PTH111
    try:
        kind = folder.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if is_hub_id(text):
            downloaded = hub_folder(text, revision)
            return downloaded if downloaded.is_dir() else None
        kind = 0
    except OSError as error:
        error.filename = shortened(folder, MOST_PATH)
        problem = wrap(error)
        if isinstance(problem, BugError):
            problem = unreadable(Path(error.filename), error)
        raise problem from error
    except ValueError:
        # A letter that no path has.
        kind = 0
    if not stat.S_ISDIR(kind):
        _refuse_deleted(text, revision)
        raise damaged(
            Path(shortened(folder, MOST_PATH)),
            "is not a folder. A model is a folder with config.json and safetensors files, or a hub id such as org/name",
        )
    return folder


def base_folder(text: str, revision: str = "") -> Path:
    """Return the folder that a run's model means.

    Raises:
        TunesmithError: what `local_folder` finds, `model-not-downloaded`, and `model-deleted` for a hub id, too.
    """
    folder = local_folder(text, revision)
    if folder is None:
        _refuse_deleted(text, revision)
        command = f"tunesmith models get {text}" + (f" --revision {revision}" if revision else "")
        hint = Message("Run: {command}", command=command)
        raise TunesmithError("model-not-downloaded", "{id} was not downloaded yet.", hint=hint, id=text)
    return folder


def deleted_model(text: str, revision: str = "") -> trash.Deleted | None:
    """Return what the trash holds of a run's model; see `local_folder`."""
    if "\0" in text:
        return None
    named = Path(os.path.expanduser(text)).absolute()  # noqa: PTH111
    return trash.holding(named) or (trash.holding(hub_folder(text, revision)) if is_hub_id(text) else None)


def deleted_base(run: Run) -> trash.Deleted | None:
    """Return what the trash holds of a run's base model. Raises what `load_spec` finds."""
    model = run.load_spec().model
    try:
        folder = local_folder(model.path, model.revision)
    except TunesmithError:
        folder = None
    return None if folder else deleted_model(model.path, model.revision)


def restore_base(run: Run) -> None:
    """Bring a run's base model back from the trash, if it is there. Raises as `load_spec` and `trash.restore`."""
    if deleted := deleted_base(run):
        trash.restore(deleted)


def _refuse_deleted(text: str, revision: str) -> None:
    if deleted := deleted_model(text, revision):
        raise TunesmithError(
            "model-deleted",
            "The model {name} was deleted and is in the trash.",
            hint=Message("Restore it. On the command line: tunesmith restore {id}", id=deleted.id),
            name=deleted.name,
        )


def open_model_folder(folder: Path) -> ModelFolder:
    """Check a model folder and return what its files say.

    Raises:
        UserError: `model-files-missing-or-corrupt` with the file and what is wrong, `model-pickle-refused`, or
            `model-kind-unsupported` for an encoder-decoder and for weights quantized in a way that isn't read.
    """
    if not folder.is_dir():
        raise damaged(
            folder,
            "is not a folder. A model is a folder with config.json and safetensors files, or a hub id such as org/name",
        )
    _check_files(folder)
    has_adapter = os.path.lexists(folder / ADAPTER_NAME)
    if not (folder / "config.json").is_file() and has_adapter:
        raise damaged(folder, "contains an adapter, not a model. Choose the base model that it was trained on")
    config = read_object(folder / "config.json", MOST_CONFIG_BYTES)
    check_config(folder / "config.json", config)
    if (folder / "generation_config.json").is_file():
        check_generation(folder / "generation_config.json", read_object(folder / "generation_config.json"))
    if has_adapter:
        # transformers would put it into the model without a word.
        raise damaged(
            folder / ADAPTER_NAME,
            "an adapter is in the folder of the model, and it is not clear whether it belongs to it",
            hint="Move adapter_config.json to another folder to train the model without the adapter, or choose a "
            "model into which the adapter was merged.",
        )
    tensors = read_weights(folder)
    check_tensors(folder, config, tensors)
    rows = embedding_rows(tensors) or language_part(config).get("vocab_size")
    check_tokenizer(folder, rows if isinstance(rows, int) else None)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return ModelFolder(folder, config, shapes, has_chat_template(folder))


def known_tokens(folder: Path) -> int:
    """Return for how many tokens config.json says that a checked model has an embedding, 0 where it doesn't say it."""
    said = language_part(read_object(folder / "config.json", MOST_CONFIG_BYTES)).get("vocab_size")
    return said if isinstance(said, int) else 0


def _check_files(folder: Path) -> None:
    """Refuse what is no ordinary file where a library expects one: it could wait for a pipe or a device forever."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(READ_SUFFIXES):
                    continue
                kind = os.stat(entry.path).st_mode  # noqa: PTH116 - faster than a Path for each
                if not stat.S_ISREG(kind):
                    if stat.S_ISDIR(kind):
                        raise damaged(Path(entry.path), "is a folder, not a file")
                    raise damaged(Path(entry.path), "is not an ordinary file")
    except FileNotFoundError as error:
        raise damaged(Path(str(error.filename)), "is a link to a file that is missing") from error
    except OSError as error:
        raise unreadable(Path(str(error.filename)), error) from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a model folder by their names, from headers; quantized ones as what they stand for.

    Raises:
        UserError: `model-files-missing-or-corrupt` or `model-pickle-refused`.
    """
    return read_layout(folder).weights


def read_layout(folder: Path) -> Layout:
    """Return the weights of a model folder by file, from headers. Raises as `read_weights`."""
    return unpack(folder, read_object(folder / "config.json", MOST_CONFIG_BYTES), _read_files(folder))


def _read_files(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of each weight file as they are stored."""
    # Where there are both, transformers takes the single file.
    if (folder / SINGLE_NAME).is_file():
        return {SINGLE_NAME: read_header(folder / SINGLE_NAME)}
    if (folder / INDEX_NAME).is_file():
        return _read_sharded(folder)
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    shards = [name for name in names if name.endswith(".safetensors")]
    if shards:
        raise damaged(folder / INDEX_NAME, "the file is missing, so {shards} can't be placed", shards=shards[0])
    pickles = [name for name in names if name.endswith(PICKLE_SUFFIXES)]
    if pickles:
        raise TunesmithError(
            "model-pickle-refused", "{folder}: the weights are in pickle format.", folder=folder / pickles[0]
        )
    raise damaged(folder / SINGLE_NAME, "the file is missing")


def weight_files(folder: Path) -> list[str]:
    """Return the names of the files that hold the weights of a model folder that was checked."""
    if (folder / SINGLE_NAME).is_file():
        return [SINGLE_NAME]
    return sorted(set(read_object(folder / INDEX_NAME)["weight_map"].values()))


def _read_sharded(folder: Path) -> dict[str, dict[str, Tensor]]:
    index = folder / INDEX_NAME
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(n, str) for n in weight_map.values()):
        raise damaged(index, "contains no weight_map")
    shards: dict[str, dict[str, Tensor]] = {}
    for name in sorted(set(weight_map.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise damaged(index, "names {name!r}, which is not a safetensors file in this folder", name=shortened(name))
        shards[name] = read_header(folder / name)
    missing = sorted(weight_map.keys() - {name for tensors in shards.values() for name in tensors})
    if missing:
        raise damaged(
            folder / weight_map[missing[0]],
            "is missing the tensor {name} that {index_name} lists",
            name=shortened(missing[0]),
            index_name=INDEX_NAME,
        )
    return shards
