"""Exports a LoRA adapter as a GGUF file of its own, which llama.cpp adds to the base model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH_NAMES, GGUFWriter
from peft import PeftModel
from peft.tuners.lora import Linear, LoraLayer

from tunesmith_core import files
from tunesmith_core.adapter_kinds import KINDS
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.exports import BASE_TYPE
from tunesmith_core.gguf_types import HEADER_BYTES
from tunesmith_core.operations.host import Host
from tunesmith_core.runs import display_name
from tunesmith_engine.export.gguf.architecture import Architecture
from tunesmith_engine.export.gguf.architectures import architecture_of
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.export import (
    check,
    check_libraries,
    file_name,
    measure,
    rounding_of,
    stops_of,
    tell_differences,
    weights_of,
)
from tunesmith_engine.export.gguf.gated_delta import OUTPUT
from tunesmith_engine.export.gguf.tensors import laid_out, names_in_gguf
from tunesmith_engine.export.gguf.writing import GgufFile, Weights
from tunesmith_engine.export.merged_card import gguf_card
from tunesmith_engine.export.merged_model import CARD_NAME, MergedModel
from tunesmith_engine.export.merging import ADAPTER, Merging
from tunesmith_engine.export.progress import Progress
from tunesmith_engine.export.proof import EQUAL_NATS, context_of
from tunesmith_engine.export.restoring import PREFIX
from tunesmith_engine.export.staging import Staging
from tunesmith_engine.export.trained import Trained
from tunesmith_engine.export.using import BASE_FILE, in_llama_cpp
from tunesmith_engine.export.verifying import Way, verify
from tunesmith_engine.model.load import load_config
from tunesmith_engine.model.lora import trainable

Parts = dict[str, torch.Tensor]


def write_gguf_adapter(host: Host, trained: Trained, folder: Path, staging: Staging) -> None:
    """Write an adapter with its card, and the proof that llama.cpp computes the same with it.

    Args:
        host: told how far it is.
        trained: the weights.
        folder: of the base model.
        staging: where to.

    Raises:
        UserError: `export-unsupported` for an adapter that llama.cpp does not have.
        EnvironmentProblem: `environment-damaged` in an environment that an earlier version has built.
    """
    check_libraries(BASE_TYPE)
    host.phase("converting")
    alpha = float(trained.spec.adapter.alpha)
    if kind := KINDS.get(trained.spec.adapter.kind):
        raise TunesmithError(
            "export-unsupported",
            "llama.cpp has no {kind} adapters.",
            hint="Export the whole model as GGUF instead.",
            kind=kind.title,
        )
    config, model = load_config(folder), trained.load(folder)
    parts = lora_parts(model, config, alpha)
    context = context_of(config.get_text_config())
    tokenizer = trained.tokenizer(folder)
    base = _base_file(folder, model, config, tokenizer)
    staging.check_space(base.num_bytes + HEADER_BYTES + sum(part.nbytes for part in parts.values()))
    name = file_name(trained, "lora")
    _write(staging.part(name), architecture_of(config.get_text_config()), display_name(trained.run), alpha, parts)
    staging.finish(name, files.sha256_file(staging.part(name)))
    path = staging.part("base")
    base.write(path, "base", "", Progress(host, "converting", base.num_bytes).advance)
    way = Way(
        "gguf-adapter",
        lambda answers, tokenizer: measure(path, answers, tokenizer, context, staging.folder / name),
        EQUAL_NATS,
        BASE_TYPE,
        rounding_of(config, base),
        path.stat().st_size,
        lambda tokenizer: check(path, tokenizer, context, staging.folder / name),
    )
    proof = verify(host, trained, folder, staging, way)
    path.unlink()
    use = f"```\n{in_llama_cpp(['-m', BASE_FILE, '--lora', name], system_prompt_of(trained.run))}\n```"
    use += tell_differences(host, config, tokenizer)
    files.atomic_write_text(staging.folder / CARD_NAME, gguf_card(trained, folder, use, proof))


def lora_parts(model: PeftModel, config: Config, alpha: float) -> Parts:
    """Return both matrices of each layer with an adapter, by their names in the file.

    Args:
        model: with the adapter.
        config: of the base model.
        alpha: that llama.cpp divides by a layer's rank and multiplies with.

    Raises:
        UserError: `export-unsupported` when the adapter changes more than llama.cpp can add.
    """
    config = config.get_text_config()
    architecture, parts, left = architecture_of(config), Parts(), set(trainable(model))
    layers = {
        f"{name.removeprefix(PREFIX)}.weight": (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, LoraLayer) and ADAPTER not in layer.lora_variant and type(layer) is Linear
    }
    shapes = {source: (layer.out_features, layer.in_features) for source, (_, layer) in layers.items()}
    split = {source: architecture.split(config, source, shape) for source, shape in shapes.items()}
    owns = names_in_gguf(architecture, config, [own for source in layers for own in split[source] or (source,)])
    for source, (name, layer) in layers.items():
        if source.endswith(architecture.never_adapted):
            raise TunesmithError(
                "export-unsupported",
                "llama.cpp adds no adapter to the weight {name}.",
                hint="Export the whole model as GGUF instead.",
                name=source,
            )
        own_names = [owns.get(own) for own in split[source] or (source,)]
        # Without one it is of what sees images, which no text has changed.
        left -= {f"{name}.lora_{side}.{ADAPTER}.weight" for side in "AB"}
        down, up = layer.lora_A[ADAPTER].weight.detach(), layer.lora_B[ADAPTER].weight.detach()
        # Ranks and scales of some layers may be their own.
        up = up * (layer.scaling[ADAPTER] * len(down) / alpha)
        if source.endswith(OUTPUT):
            # What changes places are its inputs.
            down = laid_out(architecture, config, source, down)
        else:
            up = laid_out(architecture, config, source, up)
        takes = [part.take for part in split[source].values() if not part.turned] or [lambda matrix: matrix]
        for own, take in zip(own_names, takes, strict=True):
            if own:
                parts |= {f"{own}.lora_a": down, f"{own}.lora_b": take(up)}
    if left:
        raise TunesmithError(
            "export-unsupported",
            "llama.cpp can't add this adapter to a model: {name} is more than two matrices of a layer.",
            hint="Export the whole model as GGUF instead.",
            name=min(left).removeprefix(PREFIX),
        )
    return parts


def _base_file(
    folder: Path, model: PeftModel, config: Config, tokenizer: Any
) -> GgufFile:  # Any: a transformers tokenizer
    merged = MergedModel(folder, lambda shapes: Merging(model, shapes))
    weights = weights_of(merged)
    tensors = {name: weight.tensor for name, weight in weights.items()}
    read = Weights(tensors, lambda name: merged.read_base(weights[name]))
    return GgufFile(config, tokenizer, read, BASE_TYPE, stops_of(folder))


def _write(path: Path, architecture: Architecture, name: str, alpha: float, parts: Parts) -> None:
    writer = GGUFWriter(path, MODEL_ARCH_NAMES[architecture.arch])
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for own, part in parts.items():
        writer.add_tensor(own, np.ascontiguousarray(part.float().numpy()))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    files.fsync_file(path)
