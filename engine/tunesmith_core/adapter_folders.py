"""LoRA adapters that a run begins with or compares with: what their folders hold, and whether they fit a base model.

Headers alone are read. A run keeps a copy of both, so what it began with stays whatever becomes of the folders.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.adapter_ranks import entry, is_in_layers, layer_numbers, ranks, size_of
from tunesmith_core.adapter_shapes import NO_LAYER
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import is_count, is_number, shortened
from tunesmith_core.messages import Message
from tunesmith_core.safetensors_header import Tensor, read_header
from tunesmith_core.spec import RunSpec, compares, continues
from tunesmith_core.spec_sections import ALL_EMBEDDINGS, FROZEN_EMBEDDINGS, NEW_EMBEDDINGS
from tunesmith_core.spec_words import trains_whole

START, REFERENCE = "start", "reference"
"""Folders of a run with the adapter that it began with, and with the one that it compares with."""

CONFIG, WEIGHTS, ORIGIN = "adapter_config.json", "adapter_model.safetensors", "origin.json"
MOST_BYTES = 1 << 20

CHANGES_BASE = ("pissa", "olora", "corda", "loftq")
"""Initial values that change the base model too, so an adapter that began with them means nothing on the base alone."""

_FACTORS = re.compile(r"^(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])(?:\.\w+)?\.weight$")


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """A PEFT LoRA adapter, its weights not loaded.

    Attributes:
        config: its adapter_config.json.
        tensors: its weights by PEFT's names.
    """

    path: Path
    config: Mapping[str, Any]  # Any: JSON values
    tensors: Mapping[str, Tensor]

    @property
    def rank(self) -> int:
        """The usual rank; single modules may have another."""
        return int(self.config["r"])

    @property
    def base_name(self) -> str:
        """How its config calls the base model: a hub id, or the name of a folder."""
        return str(self.config.get("base_model_name_or_path") or "")

    @property
    def settings(self) -> dict[str, Any]:  # Any: values of settings
        """What the adapter decides of a run, by the names of the settings of `adapter`."""
        return {
            "rank": self.rank,
            "alpha": float(self.config["lora_alpha"]),
            "target_modules": sorted({module.rpartition(".")[2] for module, _, _ in self.factors()}),
            "rslora": self.config.get("use_rslora") is True,
            "dora": self.config.get("use_dora") is True,
            "bias": str(self.config.get("bias") or "none"),
            "layers": self._layers(),
            "rank_pattern": self._pattern("rank_pattern"),
            "alpha_pattern": self._pattern("alpha_pattern"),
            "initial_values": "default",
            "embeddings": self._embeddings,
            "modules_to_save": [name for name in self._saved if not _is_table(name)],
        }

    def _layers(self) -> list[str]:
        numbers = self.config.get("layers_to_transform")
        return [] if numbers is None else sorted(map(str, numbers if isinstance(numbers, list) else [numbers]))

    def _pattern(self, name: str) -> list[str]:
        """Return ranks or alphas of single modules as the settings are written."""
        values = self.config.get(name) or {}
        return sorted(entry(key, value) for key, value in values.items())

    @property
    def _saved(self) -> list[str]:
        """The modules that are trained whole."""
        return sorted(map(str, self.config.get("modules_to_save") or []))

    @property
    def _embeddings(self) -> str:
        if self.config.get("trainable_token_indices"):
            return NEW_EMBEDDINGS
        return ALL_EMBEDDINGS if any(map(_is_table, self._saved)) else FROZEN_EMBEDDINGS

    @property
    def words(self) -> list[str]:
        """The new words that it knows: a run says so beside its adapter, another program nowhere."""
        try:
            return list(map(str, files.read_json(self.path.parent / "spec.json")["model"]["new_tokens"]))
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def factors(self) -> Iterator[tuple[str, str, tuple[int, ...]]]:
        """Yield module, "A" or "B", and shape of each factor."""
        for name, tensor in self.tensors.items():
            if found := _FACTORS.match(name):
                yield found["module"], found["side"], tensor.shape


def read_adapter(path: Path) -> AdapterFolder:
    """Return what an adapter's folder holds; the folder of a run stands for the adapter that the run has made.

    Raises:
        UserError: `adapter-unfit` when a file is missing or damaged, or the adapter is of a kind that can't be trained
            further.
    """
    folder = path / "adapter" if (path / "adapter" / CONFIG).is_file() else path
    try:
        config = files.read_foreign_json(folder / CONFIG, MOST_BYTES)
    except OSError as error:
        raise _unfit(folder, Message("{name} is missing or can't be read", name=CONFIG)) from error
    except ValueError as error:
        raise _unfit(folder, Message("{name} is not valid JSON", name=CONFIG)) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = shortened(config.get("peft_type")) if isinstance(config, dict) else "?"
        raise _unfit(folder, Message("the adapter is of the kind {kind}, and only LoRA can be continued", kind=kind))
    if not (is_count(config.get("r")) and config["r"] and is_number(config.get("lora_alpha"))):
        raise _unfit(folder, Message("{name} has no rank or alpha", name=CONFIG))
    if config.get("task_type") == "SEQ_CLS":
        raise _unfit(folder, Message("the adapter rates texts and writes none"))
    values = str(config.get("init_lora_weights")).lower()
    if values.startswith(CHANGES_BASE):
        words = Message("the adapter began with {values} and belongs to a changed base model", values=values)
        raise _unfit(folder, words)
    try:
        tensors = read_header(folder / WEIGHTS)
    except TunesmithError as error:
        raise _unfit(folder, Message("{name} is missing, damaged or not downloaded", name=WEIGHTS)) from error
    found = AdapterFolder(folder, config, tensors)
    if not any(found.factors()):
        raise _unfit(folder, Message("{name} holds no LoRA weights", name=WEIGHTS))
    return found


def check_adapters(spec: RunSpec, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check the adapters that a run begins and compares with.

    Args:
        spec: the run.
        shapes: of the base model's weights, by their names in its files.

    Raises:
        UserError: `adapter-unfit` when one can't be read or belongs to another base model, `spec-invalid` when a
            setting differs from what the adapter to start from decides.
    """
    start = read_adapter(Path(spec.adapter.start_from)) if continues(spec) else None
    if start:
        _check_base(start, shapes)
        if start.words and start.words != spec.model.new_tokens:
            raise TunesmithError(
                "spec-invalid",
                "model.new_tokens: the adapter to start from knows other new words: {words}.",
                hint=Message("Leave the setting out, or set it to the adapter's value."),
                words=shortened(", ".join(start.words)),
            )
        for name, value in start.settings.items():
            given = getattr(spec.adapter, name)
            if given != value and sorted(given if isinstance(given, list) else [given]) != value:
                raise TunesmithError(
                    "spec-invalid",
                    "adapter.{name} is {given}, but the adapter to start from has {value}.",
                    hint=Message("Leave the setting out, or set it to the adapter's value."),
                    name=name,
                    given=_shown(given),
                    value=_shown(value),
                )
    if compares(spec) and spec.objective.reference_adapter:
        reference = read_adapter(Path(spec.objective.reference_adapter))
        _check_base(reference, shapes)
        _check_room(reference, spec)


def _check_base(adapter: AdapterFolder, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Compare the factors of an adapter with the weights that they sit on, as far as names and shapes tell."""
    by_end: dict[str, tuple[int, ...]] = {_end(name): shape for name, shape in shapes.items() if len(shape) == 2}
    for module, side, shape in adapter.factors():
        if "experts" in module or len(shape) != 2:
            # Experts lie in the files otherwise than in the model, which knows its own.
            continue
        weight = by_end.get(_end(f"{module}.weight"))
        if weight is None and _layer(module) is None:
            continue
        if weight is None and (numbers := {_layer(name) for name in shapes}) and _layer(module) not in numbers:
            words = Message("the adapter has weights for {module}, a layer that the base model lacks", module=module)
            raise _unfit(adapter.path, words)
        size = shape[1] if side == "A" else shape[0]
        if weight is not None and size not in weight:
            words = Message(
                "the adapter is for another base model: its weights for {module} have {size} columns or rows, the "
                "base model's weight is {weight}",
                module=module,
                size=size,
                weight=" x ".join(map(str, weight)),
            )
            raise _unfit(adapter.path, words)


def _check_room(reference: AdapterFolder, spec: RunSpec) -> None:
    """Check that the trained adapter has room for the weights of the reference."""
    settings, patterns, numbers = reference.settings, ranks(spec.adapter.rank_pattern), layer_numbers(spec.adapter)
    if trains_whole(spec) or settings["embeddings"] != FROZEN_EMBEDDINGS or settings["modules_to_save"]:
        words = Message("one of the two adapters has embeddings or other modules that are trained whole")
        raise _unfit(reference.path, words)
    for module, side, shape in reference.factors():
        own = size_of(spec.adapter, module, patterns)
        if side == "A" and len(shape) == 2 and "experts" not in module and shape[0] > own:
            words = Message("its rank {rank} is above that of the trained adapter, {own}", rank=shape[0], own=own)
            raise _unfit(reference.path, words)
        if not is_in_layers(numbers, module):
            words = Message("it has weights for {modules}, the trained adapter has none there", modules=module)
            raise _unfit(reference.path, words)
    for name, label in (("dora", "DoRA"), ("bias", "Bias")):
        if settings[name] != getattr(spec.adapter, name):
            words = Message("{label} is set otherwise than for the trained adapter", label=Message(label))
            raise _unfit(reference.path, words)
    modules = spec.adapter.target_modules
    if isinstance(modules, list) and (more := sorted(set(settings["target_modules"]) - set(modules))):
        words = Message("it has weights for {modules}, the trained adapter has none there", modules=", ".join(more))
        raise _unfit(reference.path, words)


def _end(name: str) -> str:
    """Return a name from the number of its layer on, by which files and model agree; the whole where it has none."""
    found = re.search(r"(?:^|\.)(\d+\..+)$", name)
    return found[1] if found else name


def _is_table(module: str) -> bool:
    return any(part in module for part in NO_LAYER)


def _layer(name: str) -> int | None:
    found = re.search(r"(?:^|\.)(\d+)\.", name)
    return int(found[1]) if found else None


def _unfit(folder: Path, problem: Message) -> TunesmithError:
    return TunesmithError("adapter-unfit", "{path}: {problem}.", path=folder, problem=problem)


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def other_base(spec: RunSpec) -> Message | None:
    """Return what a person should know where an adapter to start from names another base model than the run's."""
    if not continues(spec):
        return None
    try:
        named = read_adapter(Path(spec.adapter.start_from)).base_name
    except TunesmithError:
        # Said by the check.
        return None
    if not named or _last(named) == _last(spec.model.path):
        return None
    return Message(
        "The adapter to start from was trained on {named}, this run's base model is {own}. Continue only if these are "
        "the same weights.",
        named=_last(named),
        own=_last(spec.model.path),
    )


def _last(path: str) -> str:
    return re.split(r"[\\/]|--", path.rstrip("\\/"))[-1]


def take_settings(spec: RunSpec, given: frozenset[str] = frozenset()) -> None:
    """Give a run the settings that the adapter to start from decides, but those that a person has given themselves.

    An adapter that can't be read changes nothing: `check_adapters` tells why.
    """
    if not continues(spec):
        return
    try:
        start = read_adapter(Path(spec.adapter.start_from))
    except TunesmithError:
        return
    for name, value in start.settings.items():
        if name not in given:
            setattr(spec.adapter, name, value)
    spec.model.new_tokens = spec.model.new_tokens or start.words


# What a run keeps


def keep(spec: RunSpec, folder: Path) -> None:
    """Copy the adapters of a run into its folder. Raises OSError."""
    for name, path in ((START, spec.adapter.start_from), (REFERENCE, spec.objective.reference_adapter)):
        if not (continues(spec) if name == START else compares(spec)) or not path:
            continue
        source, target = Path(path), folder / name
        source = source / "adapter" if (source / "adapter" / CONFIG).is_file() else source
        files.private_folder(target)
        for file in (CONFIG, WEIGHTS):
            shutil.copyfile(source / file, target / file)
            files.fsync_file(target / file)
        origin = _origin_of(source) or {"lineage": lineage_of(source), "sha256": files.sha256_file(target / WEIGHTS)}
        files.atomic_write_json(target / ORIGIN, origin)


def kept_in(folder: Path, spec: RunSpec) -> None:
    """Let a spec of a run name the copies that the run's folder holds."""
    if (folder / START / CONFIG).is_file():
        spec.adapter.start_from = str(folder / START)
    if (folder / REFERENCE / CONFIG).is_file():
        spec.objective.reference_adapter = str(folder / REFERENCE)


def lineage_of(folder: Path) -> list[str]:
    """Return the names of the adapters that led to one, itself last: those of runs by their names."""
    if origin := _origin_of(folder):
        return [str(name) for name in origin.get("lineage") or []]
    try:
        name = files.read_json(folder.parent / "spec.json")["name"] if folder.name == "adapter" else ""
    except (OSError, ValueError, KeyError, TypeError):
        name = ""
    before = lineage_of(folder.parent / START) if name and (folder.parent / START).is_dir() else []
    return [*before, str(name) or folder.name]


def lineage(spec: RunSpec) -> str:
    """Return the names of the adapters that a run continues, the first first, "" for a run that continues none."""
    return " → ".join(lineage_of(_folder_of(spec.adapter.start_from))) if continues(spec) else ""


def reference_name(spec: RunSpec) -> str:
    """Return the name of the adapter that a run compares with beside its start, "" where there is none."""
    if not (spec.objective.reference_adapter and compares(spec)):
        return ""
    return lineage_of(_folder_of(spec.objective.reference_adapter))[-1]


def _folder_of(path: str) -> Path:
    folder = Path(path)
    return folder / "adapter" if (folder / "adapter" / CONFIG).is_file() else folder


def _origin_of(folder: Path) -> dict[str, Any]:  # Any: JSON values
    try:
        origin = files.read_json(folder / ORIGIN)
    except (OSError, ValueError):
        return {}
    return origin if isinstance(origin, dict) and origin.get("lineage") else {}
