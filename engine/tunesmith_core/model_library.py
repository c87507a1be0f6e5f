"""The models on this computer: ours, and those that other programs keep, which are read and never changed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tunesmith_core import devices, downloads, files, hub_token, paths, planner, terminal, trash
from tunesmith_core.base_model import BaseModel, FileNote, is_other
from tunesmith_core.checkpoint_manifest import newest_noted
from tunesmith_core.errors import TunesmithError
from tunesmith_core.hardware import Hardware
from tunesmith_core.hub_repository import GGUF
from tunesmith_core.messages import Message, joined
from tunesmith_core.model_cards import ModelCard, read_model_card
from tunesmith_core.model_config import language_part
from tunesmith_core.model_folder import MOST_CONFIG_BYTES, is_hub_id, local_folder
from tunesmith_core.model_json import read_object
from tunesmith_core.other_programs import find_lm_studio
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.store import Library

METHODS = {"qlora": "nf4", "lora": "none"}
"""What a model may fit for, and how its frozen weights are then kept."""

USUAL_TOKENS = 512
"""What the longest row of most data comes to; the memory of a whole context would rule models out that train well."""

CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "model_max_length")
"""What config.json calls the context length."""


@dataclass(frozen=True, slots=True)
class Shelved:
    """A model of the library.

    Attributes:
        path: a folder, or a GGUF file.
        name: for people; the hub id of one that comes from a hub.
        keeper: "tunesmith", "huggingface", "lm-studio" or "ollama".
        size_bytes: of the folder, with what its links point to, or of the file.
        card: of a model that can be trained, else None.
        context_length: in tokens, 0 when unknown.
        problem: why it can't be trained, None when it can or is a GGUF file, which can be imported.
        download: the record of one from a hub.
    """

    path: Path
    name: str
    keeper: str
    size_bytes: int
    card: ModelCard | None = None
    context_length: int = 0
    problem: TunesmithError | None = None
    download: downloads.Download | None = None


def own_models() -> Iterator[Shelved]:
    """Yield the models in the folder of models, by name."""
    for folder in sorted(paths.models_dir().glob("*/")):
        if not folder.name.startswith("."):
            yield shelved(folder, "tunesmith")


def foreign_models() -> Iterator[Shelved]:
    """Yield the models that other programs keep."""
    with contextlib.suppress(OSError, RuntimeError):
        own = os.environ.get("HF_HUB_CACHE")
        yield from _of_hub_cache(Path(own) if own else hub_token.hub_home() / "hub")
    if folder := find_lm_studio():
        for path in sorted(folder.glob(f"*/*/*{GGUF}")):
            with contextlib.suppress(OSError):
                name = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
                yield Shelved(path, name, "lm-studio", path.stat().st_size)
    with contextlib.suppress(RuntimeError):
        own = os.environ.get("OLLAMA_MODELS")
        yield from _of_ollama(Path(own) if own else Path.home() / ".ollama" / "models")


def shelved(folder: Path, keeper: str, name: str = "") -> Shelved:
    """Return what the library says about a model folder."""
    record = downloads.read_record(folder)
    name = name or (record.asked if record else folder.name)
    size = files.folder_bytes(folder, linked=True)
    try:
        card = read_model_card(folder)
        context = context_length(folder)
    except TunesmithError as error:
        return Shelved(folder, name, keeper, size, problem=error, download=record)
    return Shelved(folder, name, keeper, size, card, context, download=record)


def context_length(folder: Path) -> int:
    """Return for how many tokens a model is made, 0 when its config does not say. Raises UserError."""
    text = language_part(read_object(folder / "config.json", MOST_CONFIG_BYTES))
    lengths = (value for value in map(text.get, CONTEXT_NAMES) if isinstance(value, int) and value > 0)
    return next(lengths, 0)


def _of_hub_cache(cache: Path) -> Iterator[Shelved]:
    for repository in sorted(cache.glob("models--*--*")):
        snapshots = [path for path in repository.glob("snapshots/*") if (path / "config.json").is_file()]
        if snapshots:
            newest = max(snapshots, key=lambda path: path.stat().st_mtime)
            name = repository.name.removeprefix("models--").replace("--", "/")
            yield shelved(newest, "huggingface", name)


def _of_ollama(models: Path) -> Iterator[Shelved]:
    for manifest in sorted((models / "manifests").glob("*/*/*/*")):
        try:
            layers = files.read_json(manifest)["layers"]
            digest = next(each["digest"] for each in layers if str(each["mediaType"]).endswith("image.model"))
            blob = models / "blobs" / str(digest).replace(":", "-")
            size = blob.stat().st_size
        except (OSError, ValueError, KeyError, TypeError, StopIteration):
            continue
        if blob.parent == models / "blobs":
            yield Shelved(blob, f"{manifest.parent.name}:{manifest.name}", "ollama", size)


def fits(card: ModelCard, hardware: Hardware) -> Mapping[str, str]:
    """Return the planner's verdict on a model by method, with the usual settings and rows of a usual length.

    The plan of a run asks the same of the rows that it has.
    """
    verdicts = {}
    for method, kind in METHODS.items():
        if kind == "nf4" and hardware.device == "cpu":
            continue  # it trains there, but slowly: LoRA is what suits
        spec = RunSpec()
        spec.model.path, spec.quantization.kind = str(card.path), kind
        verdicts[method] = planner.plan(spec, hardware, card=card, longest_tokens=USUAL_TOKENS).verdict
    return verdicts


def base_models() -> dict[str, str]:
    """Return what each run names as its base model, by the id of the run, the newest first."""
    with closing(Library(paths.library_path())) as library:
        library.refresh_all()
        return {entry.run.id: entry.model for entry in library.list_runs()}


def folders_of_runs(named: Mapping[str, str]) -> list[str]:
    """Return the folders that runs name as their base model and that are there, those of the newest run first."""
    folders = dict.fromkeys(text for text in named.values() if not is_hub_id(text))
    return [text for text in folders if (Path(text) / "config.json").is_file()]


def users(model: Shelved, named: Mapping[str, str]) -> list[str]:
    """Return the ids of the runs whose base model it is; named are those of `base_models`.

    A run that noted other weights names only the place, where another model lies now.
    """
    found = [run for run, text in named.items() if _means(text, model)]
    try:
        notes = BaseModel(model.path, None).notes if found else {}
    except (OSError, TunesmithError):
        return found
    return [run for run in found if not is_other(_noted(Run(paths.runs_dir() / run)), notes)]


def _noted(run: Run) -> Mapping[str, FileNote]:
    manifest = newest_noted(run.checkpoints_path)
    return manifest.base_model if manifest else {}


def _means(text: str, model: Shelved) -> bool:
    if is_hub_id(text) and model.download is not None:
        return text == model.download.asked
    with contextlib.suppress(TunesmithError):
        folder = local_folder(text)
        return folder is not None and folder.resolve() == model.path.resolve()
    return False


def find(name: str) -> Shelved:
    """Return one of our own models by its name, hub id or folder.

    Raises:
        UserError: `model-not-downloaded` when there is none.
    """
    wanted = Path(name).expanduser().absolute()
    for model in own_models():
        if name in (model.name, model.path.name) or model.path == wanted:
            return model
    raise TunesmithError(
        "model-not-downloaded",
        "There is no model named {name} in {folder}.",
        hint="Run tunesmith models list to see them.",
        name=name,
        folder=paths.models_dir(),
    )


def remove(model: Shelved) -> trash.Deleted:
    """Move one of our own models to the trash. Raises EnvironmentProblem when it can't be moved."""
    return trash.delete_folder(model.path)


def training_hardware(found: Iterable[Hardware]) -> Hardware:
    """Return the device that a run gets when nothing is chosen, with all of its memory free.

    What else uses it at the moment says nothing about a model.
    """
    everything = list(found)
    index = devices.device_of(RunSpec()).gpu_index
    device = next((each for each in everything if each.gpu_index == index), everything[-1])
    return dataclasses.replace(device, free_bytes=device.total_bytes)


def fits_note(hardware: Hardware) -> Message:
    """Return what memory a model is compared with."""
    size = terminal.size(hardware.total_bytes)
    if hardware.device == "cpu":
        words = Message("“Fits” compares a model with the total memory of this computer, {size}.", size=size)
        return joined([words, Message("QLoRA trains on a processor too, but slowly, so it isn't shown here.")])
    return Message("“Fits” compares a model with the total memory of {name}, {size}.", name=hardware.name, size=size)
