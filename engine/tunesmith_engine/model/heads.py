"""The head of a model that rates texts: it reads the last token of one and gives a number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoModelForTokenClassification

from tunesmith_core.errors import TunesmithError
from tunesmith_core.objectives import FROM_LABELS, FROM_STEPS, HEADS
from tunesmith_core.spec import RunSpec
from tunesmith_engine.model.folder import load_tokenizer, padding_id

STEP_LABELS = ("wrong", "right")
"""What a process reward model says of a step."""

NAME = "score"
"""What transformers calls the head of decoders."""


@dataclass(frozen=True, slots=True)
class Head:
    """What takes the place of the output layer.

    Attributes:
        seed: of its first weights.
        labels: names of the classes, for each of which it gives a number; () where it gives a single one.
        problem: what transformers calls it, "" for a reward model.
        of_tokens: whether it rates every token, and not only the last one.
    """

    seed: int
    labels: tuple[str, ...] = ()
    problem: str = ""
    of_tokens: bool = False

    def configure(self, config: Any, folder: Path) -> None:  # Any: transformers' config of a model
        """Tell a model's settings of the head, and of the token behind the end of short texts.

        Raises:
            UserError: `model-kind-unsupported` where transformers has no such head for this kind of model.
        """
        if type(config) not in kind_of_model(self)._model_mapping:
            raise _unsupported(config, folder)
        if self.of_tokens:
            # Heads of sequences have none.
            config.classifier_dropout = 0.0
        config.num_labels = max(1, len(self.labels))
        if self.labels:
            config.id2label = dict(enumerate(self.labels))
            config.label2id = {label: place for place, label in enumerate(self.labels)}
        if self.problem:
            config.problem_type = self.problem
        config.get_text_config().pad_token_id = padding_id(load_tokenizer(folder), config)

    def begin(self, model: Any, folder: Path) -> None:  # Any: a transformers model
        """Give the head its first weights, which depend on the seed alone.

        Raises:
            UserError: `model-kind-unsupported` where the model's head is not a product with a token.
        """
        layer = getattr(model, NAME, None)
        if not isinstance(layer, torch.nn.Linear) or (layer.bias is not None and not self.of_tokens):
            raise _unsupported(model.config, folder)
        std = getattr(model.config.get_text_config(), "initializer_range", 0.02)
        # On the CPU, so that it is the same everywhere.
        drawn = torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(self.seed)) * std
        with torch.no_grad():
            layer.weight.copy_(drawn)
            if layer.bias is not None:
                layer.bias.zero_()


def head_of(spec: RunSpec) -> Head | None:
    """Return the head that a run trains, None for one whose model writes."""
    objective, seed = spec.objective, spec.schedule.seed
    if objective.kind in FROM_LABELS:
        problem = "regression" if objective.regression else "single_label_classification"
        return Head(seed, tuple(objective.classes), problem)
    if objective.kind in FROM_STEPS:
        return Head(seed, STEP_LABELS, of_tokens=True)
    return Head(seed) if objective.kind in HEADS else None


def kind_of_model(head: Head | None) -> Any:  # Any: a class of transformers
    """Return the class that makes a model with a head, or one that writes."""
    if head and head.of_tokens:
        return AutoModelForTokenClassification
    return AutoModelForSequenceClassification if head else AutoModelForCausalLM


def has_head(model: Any) -> bool:  # Any: a transformers model
    """Return whether a model rates texts."""
    return rates_tokens(model) or type(model) in AutoModelForSequenceClassification._model_mapping.values()


def rates_tokens(model: Any) -> bool:  # Any: a transformers model
    """Return whether a model rates every token."""
    return type(model) in AutoModelForTokenClassification._model_mapping.values()


def _unsupported(config: Any, folder: Path) -> TunesmithError:
    return TunesmithError(
        "model-kind-unsupported",
        "{folder}: transformers has no head that rates texts for models of type {model_type}.",
        hint="Choose another base model, such as a Llama, Qwen, Gemma or Mistral model.",
        folder=folder,
        model_type=config.model_type,
    )
