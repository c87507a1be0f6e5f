"""Compares an export with the trained weights before it gets its name, and notes the figures beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tunesmith_core import files
from tunesmith_core.export_proof import changed_answers
from tunesmith_core.messages import Message
from tunesmith_core.model_folder import read_weights
from tunesmith_core.operations.host import Host
from tunesmith_engine.export.own_texts import own_texts
from tunesmith_engine.export.proof import PROMPTS, Answer, Figures, Tokenizer, passed, trained_answers
from tunesmith_engine.export.rounding import Rounding, rounded_reference
from tunesmith_engine.export.staging import PROOF_NAME, Staging
from tunesmith_engine.export.trained import Trained

BYTES_PER_NUMBER = 4
SPARE_FACTOR = 1.25
"""Of the memory that the weights take, for all else that is computed."""

Proof = dict[str, Any]  # Any: JSON values


@dataclass(frozen=True, slots=True)
class Way:
    """How an export is compared.

    Attributes:
        format: that it has.
        measure: returns the figures of the export, of the answers of the trained model and its tokenizer.
        nats: mean divergence that two programs may have.
        type: of the numbers, in words.
        rounding: of the format; None for one that rounds nothing.
        more_bytes: that the export takes in memory beside the trained model.
        check: looks at what needs no trained model beside the export, with its tokenizer.
    """

    format: str
    measure: Callable[[Sequence[Answer], Tokenizer], Figures]
    nats: float
    type: str = ""
    rounding: Rounding | None = None
    more_bytes: int = 0
    check: Callable[[Tokenizer], None] = lambda _: None


def verify(host: Host, trained: Trained, folder: Path, staging: Staging, way: Way) -> Proof | None:
    """Compare an export with the trained model, and note the figures beside it.

    Args:
        host: told how far it is.
        trained: the weights.
        folder: of the base model.
        staging: holds the export.
        way: how it is compared.

    Returns:
        The figures of an export that is equal, None where there is too little memory to measure them.

    Raises:
        RunFailure: `export-differs` when it is not equal, with what differs. Without memory for the trained model, when
            the program that reads it refuses it or takes texts for other tokens.
    """
    num_numbers = sum(math.prod(tensor.shape) for tensor in read_weights(folder).values())
    if psutil.virtual_memory().available < num_numbers * BYTES_PER_NUMBER * SPARE_FACTOR + way.more_bytes:
        message = Message("There is too little memory to compare the file with the trained model. It was not verified.")
        host.warning("memory-full", message)
        host.phase("verifying")
        way.check(trained.tokenizer(folder))
        return None
    host.phase("verifying")
    tokenizer = trained.tokenizer(folder)
    model = trained.load_whole(folder)
    own = own_texts(trained.spec, tokenizer, len(PROMPTS)) if trained.rates else []
    answers = trained_answers(model, tokenizer, lambda done, total: host.phase("verifying", done, total), own)
    as_llama_cpp = way.format.startswith("gguf")
    reference = rounded_reference(answers, model, way.rounding, as_llama_cpp=as_llama_cpp) if way.rounding else None
    # The export is loaded in its place.
    del model
    measured = passed(way.measure(answers, tokenizer), way.nats, reference)
    causes = way.rounding.causes if way.rounding else []
    proof = {"format": way.format, "type": way.type, "causes": causes, "rates": trained.rates, **measured}
    files.atomic_write_json(staging.folder / PROOF_NAME, proof)
    tell_loss(host, proof)
    return proof


def tell_loss(host: Host, proof: Proof) -> None:
    """Warn of an export that rounds as its format does, and yet answers otherwise than the trained model."""
    if message := changed_answers(proof):
        host.warning("export-differs", message)
