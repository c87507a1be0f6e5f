"""Exports what a run has trained as one GGUF file, with the proof that it is equal."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tunesmith_core import files
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.expert_memory import is_of_experts
from tunesmith_core.exports import UNKNOWN_LICENCE
from tunesmith_core.gguf_types import FILE_TYPES, HEADER_BYTES
from tunesmith_core.messages import Message
from tunesmith_core.model_config import embedding_rows
from tunesmith_core.model_folder import read_weights
from tunesmith_core.model_json import read_object
from tunesmith_core.operations.host import Host
from tunesmith_core.runs import display_name, slug
from tunesmith_core.spec import RunSpec
from tunesmith_engine.export.adapter_card import base_model_license
from tunesmith_engine.export.gguf import types
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.llama_cpp import LlamaCpp
from tunesmith_engine.export.gguf.modelfile import MODELFILE_NAME, Modelfile, modelfile
from tunesmith_engine.export.gguf.positions import ROUNDED, are_stretched_between, stretch_as_llama_cpp
from tunesmith_engine.export.gguf.proof import ask_file, check_texts, plain_token
from tunesmith_engine.export.gguf.tokenizer import is_blind_to_marks
from tunesmith_engine.export.gguf.writing import GgufFile, Weights, check_model
from tunesmith_engine.export.merged_card import gguf_card
from tunesmith_engine.export.merged_model import CARD_NAME, MergedModel, Weight, is_licence
from tunesmith_engine.export.merging import Merging
from tunesmith_engine.export.progress import Progress
from tunesmith_engine.export.proof import EQUAL_NATS, Answer, Figures, Tokenizer, context_of
from tunesmith_engine.export.rounding import Rounding
from tunesmith_engine.export.staging import Staging
from tunesmith_engine.export.trained import Trained
from tunesmith_engine.export.using import in_llama_cpp
from tunesmith_engine.export.verifying import Way, verify
from tunesmith_engine.model.folder import load_tokenizer, model_folder, num_rows
from tunesmith_engine.model.load import load_config
from tunesmith_engine.model.vocabulary import growth_of, words_of

FURTHER_TOKENS = "mtp."
"""How names of weights begin that only predict tokens behind the next one; transformers leaves them out."""

UNROUNDED = "f32"
"""The type whose numbers llama.cpp takes as they are."""


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
    check_libraries(type_name)
    host.phase("converting")
    model = trained.load(folder)
    merged = MergedModel(folder, lambda shapes: Merging(model, shapes))
    weights = weights_of(merged)
    config, tokenizer = trained.config(folder), trained.tokenizer(folder)
    file = GgufFile(
        config,
        tokenizer,
        Weights(
            {name: weight.tensor for name, weight in weights.items()},
            lambda name: merged.read(weights[name]),
            {name for name, weight in weights.items() if merged.is_as_published(weight, "mxfp4")},
        ),
        type_name,
        stops_of(folder),
    )
    name = file_name(trained, type_name)
    staging.check_space(file.num_bytes + HEADER_BYTES)
    if not staging.holds(name):
        licence = base_model_license(folder).replace(UNKNOWN_LICENCE, "")
        progress = Progress(host, "converting", file.num_bytes)
        staging.finish(name, file.write(staging.part(name), display_name(trained.run), licence, progress.advance))
    for path in filter(is_licence, merged.copied()):
        shutil.copyfile(path, staging.folder / path.name)
    way = _way(staging.folder / name, file, type_name, config)
    proof = verify(host, trained, folder, staging, way)
    use = f"```\n{in_llama_cpp(['-m', name], system_prompt_of(trained.run))}\n```"
    use += tell_differences(host, config, tokenizer)
    use += _for_ollama(host, staging, modelfile(name, tokenizer, stops_of(folder), system_prompt_of(trained.run)))
    files.atomic_write_text(staging.folder / CARD_NAME, gguf_card(trained, folder, use, proof))


def tell_differences(host: Host, config: Config, tokenizer: Tokenizer) -> str:
    """Warn of what llama.cpp does otherwise with texts that the proof doesn't have; returns it for a card."""
    messages = [ROUNDED] if are_stretched_between(config) else []
    if is_blind_to_marks(tokenizer):
        message = Message(
            "llama.cpp cuts scripts with combining marks, such as Hindi, into other tokens. Other texts are the same."
        )
        messages.append(message)
    for message in messages:
        host.warning("export-differs", message)
    return "".join(f"\n\n{message}" for message in messages)


def _for_ollama(host: Host, staging: Staging, text: Modelfile | None) -> str:
    """Write a Modelfile and return what a card says of it; "" without one."""
    if text is None:
        host.warning("chat-template-unclear", Message("Ollama can't use this chat template, so there is no Modelfile."))
        return ""
    if text.lacks_system_prompt:
        words = Message(
            "The Modelfile can't hold the system prompt of the training rows. Begin each conversation with it; it "
            "stands in {card}.",
            card=CARD_NAME,
        )
        host.warning("export-differs", words)
    files.atomic_write_text(staging.folder / MODELFILE_NAME, text.text)
    return f"\n\n```\nollama create NAME -f {MODELFILE_NAME}\n```"


def weights_of(merged: MergedModel) -> dict[str, Weight]:
    """Return the weights of a model by its own names, and those of single experts by their names in its files."""
    in_files = (weight for weights in merged.files.values() for weight in weights.values())
    others = (each for each in in_files if not each.in_model and not each.source.startswith(FURTHER_TOKENS))
    experts = {each.source: each for each in others if is_of_experts(each.source)}
    return merged.weights() | experts


def _way(path: Path, file: GgufFile, type_name: str, config: Config) -> Way:
    """Return how a file is compared: it may lose what its numbers lose in transformers, rounded in the same way."""
    context = context_of(config.get_text_config())
    return Way(
        f"gguf-{type_name}",
        lambda answers, tokenizer: measure(path, answers, tokenizer, context),
        EQUAL_NATS,
        type_name,
        rounding_of(config, None if type_name == UNROUNDED else file),
        path.stat().st_size,
        lambda tokenizer: check(path, tokenizer, context),
    )


def rounding_of(config: Config, file: GgufFile | None) -> Rounding | None:
    """Return what a file rounds, and what llama.cpp turns otherwise with its model; None where both are nothing.

    Args:
        config: of the model.
        file: None for one whose numbers llama.cpp takes as they are.
    """
    rounding = _rounding_in(file) if file else None
    if not are_stretched_between(config):
        return rounding
    return replace(rounding or Rounding(), positions=stretch_as_llama_cpp)


def _rounding_in(file: GgufFile) -> Rounding:
    formats = file.formats

    def inputs(name: str, values: torch.Tensor) -> torch.Tensor:
        return types.rounded_input(values, formats[name]) if name in formats else values

    return Rounding(file.rounded, inputs)


def measure(
    path: Path, answers: Sequence[Answer], tokenizer: Tokenizer, context: int, adapter: Path | None = None
) -> Figures:
    """Return how far a file in llama.cpp is from the trained model; see `ask_file`."""
    with LlamaCpp(path, context, plain_token(tokenizer), adapter) as llama:
        return ask_file(llama, answers, tokenizer)


def check(path: Path, tokenizer: Tokenizer, context: int, adapter: Path | None = None) -> None:
    """Check that llama.cpp loads a file and takes texts for the same tokens; see `check_texts`.

    The file is mapped into memory, so that this needs little of it.
    """
    with LlamaCpp(path, context, plain_token(tokenizer), adapter) as llama:
        check_texts(llama, tokenizer)


def file_name(trained: Trained, ending: str) -> str:
    """Return the name of the file for a run's model."""
    return f"{slug(display_name(trained.run))}-{ending}.gguf"


def check_libraries(type_name: str) -> None:
    """Refuse to begin without the libraries that are needed at the end."""
    needed = ["xllamacpp", *(["libgguf"] if types.Q[FILE_TYPES[type_name].matrices] in types.BY_LIBGGUF else [])]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise TunesmithError(
            "environment-damaged",
            "The training environment is missing {names}, which this format needs.",
            names=", ".join(missing),
        )


def check_run(spec: RunSpec) -> None:
    """Refuse what an export of a run would, as far as the settings of its model and its tokenizer tell.

    Raises:
        UserError: `export-unsupported`, and why model or tokenizer can't be read.
    """
    folder = model_folder(spec.model)
    config = load_config(folder)
    if growth := growth_of(folder, spec):
        growth.configure(config)
    tokenizer = load_tokenizer(folder, spec.model.chat_template, words_of(spec))
    rows = max(num_rows(config), embedding_rows(read_weights(folder)) or 0)
    check_model(config, tokenizer, rows, stops_of(folder))


def stops_of(folder: Path) -> list[int]:
    """Return the numbers of the tokens that end an answer by generation_config.json."""
    path = folder / "generation_config.json"
    stops = read_object(path).get("eos_token_id") if path.is_file() else None
    return [stop for stop in (stops if isinstance(stops, list) else [stops]) if isinstance(stop, int)]
