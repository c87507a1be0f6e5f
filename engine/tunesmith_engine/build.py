"""Puts a trainer together from a spec: folder, tokenizer, data, base model, adapter."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import prepare
from tunesmith_engine.device import Compute
from tunesmith_engine.host import Host
from tunesmith_engine.model.load import load_model, load_tokenizer, model_folder
from tunesmith_engine.model.lora import attach_adapter
from tunesmith_engine.train.checkpoint import Checkpoints
from tunesmith_engine.train.trainer import Trainer


def build_trainer(host: Host, spec: RunSpec, compute: Compute, checkpoints: Checkpoints) -> tuple[Trainer, Path] | None:
    """Return a trainer at step 0 and the model's folder, or None when a stop was asked for meanwhile.

    The data is read before the weights: its mistakes are the likelier ones and show within a second.
    """
    folder = model_folder(spec.model)
    tokenizer = load_tokenizer(folder)
    host.phase("data")
    data = prepare(spec, tokenizer)
    if host.stop_requested():
        return None
    host.phase("model")
    model = attach_adapter(load_model(folder, compute, spec.method.kind == "qlora"), spec)
    if host.stop_requested():
        return None
    return Trainer(model, tokenizer, data, spec, compute, host, checkpoints), folder
