"""Which models llama.cpp computes as transformers does, and how their weights are laid out there."""

from __future__ import annotations

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.gguf.architecture import Architecture
from tunesmith_engine.export.gguf.checks import problem_of
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.gguf.dense import DENSE
from tunesmith_engine.export.gguf.gemma import GEMMA
from tunesmith_engine.export.gguf.gpt import GPT
from tunesmith_engine.export.gguf.hybrids import HYBRIDS
from tunesmith_engine.export.gguf.latent import LATENT
from tunesmith_engine.export.gguf.mixtures import MIXTURES

ARCHITECTURES = DENSE | GEMMA | GPT | MIXTURES | LATENT | HYBRIDS
"""By the model_type of config.json."""


def architecture_of(config: Config) -> Architecture:
    """Return how llama.cpp holds a model.

    Raises:
        UserError: `export-unsupported`.
    """
    kind = str(config.model_type)
    if kind not in ARCHITECTURES:
        raise TunesmithError(
            "export-unsupported",
            "Models of type {kind} can't be exported as GGUF. These can: {known}.",
            hint="Export the merged model instead.",
            kind=kind,
            known=", ".join(sorted(ARCHITECTURES)),
        )
    architecture = ARCHITECTURES[kind].variant(config) or ARCHITECTURES[kind]
    if problem := problem_of(architecture, config):
        raise TunesmithError(
            "export-unsupported",
            "This model of type {kind} can't be exported as GGUF. llama.cpp computes it differently, so the file would "
            "answer wrongly: {problem}.",
            hint="Export the merged model instead.",
            kind=kind,
            problem=problem,
        )
    return architecture
