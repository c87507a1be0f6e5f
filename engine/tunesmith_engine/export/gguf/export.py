"""Exports what a run has trained as one GGUF file, with the proof that it is equal."""

from __future__ import annotations

import importlib.util
import math
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import read_weights
from tunesmith_core.model_json import read_object
from tunesmith_core.operations.host import Host
from tunesmith_core.runs import display_name, slug
from tunesmith_engine.export.adapter_card import base_model_license
from tunesmith_engine.export.gguf.types import BY_LIBGGUF, FILE_TYPES
from tunesmith_engine.export.gguf.writing import HEADER_BYTES, GgufFile, Weights
from tunesmith_engine.export.merged_card import UNKNOWN, gguf_card
from tunesmith_engine.export.merged_model import CARD_NAME, MergedModel, is_licence
from tunesmith_engine.export.merging import Merging
from tunesmith_engine.export.progress import Progress
from tunesmith_engine.export.staging import PROOF_NAME, Staging
from tunesmith_engine.export.trained import Trained
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.load import load_config

BYTES_PER_NUMBER = 4
SPARE_FACTOR = 1.25
"""Of the memory that the weights take, for all else that is computed."""


def write_gguf(host: Host, trained: Trained, folder: Path, staging: Staging, type_name: str) -> None:
    """Write a GGUF file with its card, and the proof that it is equal where there is memory for that.

    Args:
        host: told how far it is.
        trained: the weights.
        folder: of the base model.
        staging: where to.
        type_name: a key of FILE_TYPES.

    Raises:
        UserError: `export-unsupported` for what llama.cpp does not have or computes otherwise.
        EnvironmentProblem: `environment-damaged` in an environment that an earlier version has built.
    """
    _check_libraries(type_name)
    host.phase("converting")
    model = trained.load(folder)
    merged = MergedModel(folder, lambda names: Merging(model, names))
    weights = merged.weights()
    tokenizer = load_tokenizer(folder)
    file = GgufFile(
        load_config(folder),
        tokenizer,
        Weights({name: weight.tensor for name, weight in weights.items()}, lambda name: merged.read(weights[name])),
        type_name,
        _stops(folder),
    )
    name = f"{slug(display_name(trained.run))}-{type_name}.gguf"
    staging.check_space(file.num_bytes + HEADER_BYTES)
    if not staging.holds(name):
        licence = base_model_license(folder).replace(UNKNOWN, "")
        progress = Progress(host, "converting", file.num_bytes)
        staging.finish(name, file.write(staging.part(name), display_name(trained.run), licence, progress.advance))
    for path in filter(is_licence, merged.copied()):
        shutil.copyfile(path, staging.folder / path.name)
    proof = _proof(host, trained, folder, staging.folder / name, type_name, tokenizer)
    if proof:
        files.atomic_write_json(staging.folder / PROOF_NAME, proof)
    files.atomic_write_text(staging.folder / CARD_NAME, gguf_card(trained, folder, name, proof))


def _check_libraries(type_name: str) -> None:
    """Refuse to begin without the libraries that are needed at the end."""
    needed = ["xllamacpp", *(["libgguf"] if FILE_TYPES[type_name].matrices in BY_LIBGGUF else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise TunesmithError(
            "environment-damaged",
            "The training environment is missing {names}, which this format needs.",
            names=", ".join(missing),
        )


def _proof(
    host: Host, trained: Trained, folder: Path, path: Path, type_name: str, tokenizer: Any  # Any: of transformers
) -> dict[str, Any] | None:  # Any: JSON values
    """Return the figures of a file that is equal, None where there is too little memory to measure them."""
    num_numbers = sum(math.prod(tensor.shape) for tensor in read_weights(folder).values())
    if psutil.virtual_memory().available < num_numbers * BYTES_PER_NUMBER * SPARE_FACTOR + path.stat().st_size:
        message = Message("There is too little memory to compare the file with the trained model. It was not verified.")
        host.warning("memory-full", message)
        return None
    # Imported here: who has too little memory needs neither of both.
    from tunesmith_engine.export.gguf.proof import LEAST_AGREEMENT, MOST_KL, prove

    host.phase("verifying")
    model = trained.load_whole(folder)
    figures = prove(path, type_name, model, tokenizer, lambda done, total: host.phase("verifying", done, total))
    limits = {"most_mean_kl": MOST_KL[type_name], "least_agreement": LEAST_AGREEMENT[type_name]}
    return {"passed": True, "type": type_name, **asdict(figures), **limits}


def _stops(folder: Path) -> list[int]:
    """Return the numbers of the tokens that end an answer by generation_config.json."""
    path = folder / "generation_config.json"
    stops = read_object(path).get("eos_token_id") if path.is_file() else None
    return [stop for stop in (stops if isinstance(stops, list) else [stops]) if isinstance(stop, int)]
