"""Base models on this computer: what their folders say about size, shape, number format and licence.

Only config.json and safetensors headers are read, so a folder of any size takes milliseconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_core.errors import UserError
from tunesmith_core.model_folder import open_model_folder

FAMILY_LICENCES = {
    "gemma": "Gemma terms",
    "gemma2": "Gemma terms",
    "gemma3": "Gemma terms",
    "gemma3_text": "Gemma terms",
    "granite": "Apache-2.0",
    "olmo2": "Apache-2.0",
    "phi3": "MIT",
    "qwen3": "Apache-2.0",
    "smollm3": "Apache-2.0",
}
"""Families whose every model has the same licence; of others only the model's own card tells."""

CARD_HEAD_LINES = 40


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known about a model without loading it.

    Attributes:
        linear_shapes: (rows, columns) of each weight of a linear layer that an adapter can sit on, by its tensor name.
        dtype: number format on disk, such as "bfloat16".
        licence: "" when unknown.
        size_bytes: of the weight files.
    """

    path: Path
    name: str
    model_type: str
    num_parameters: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tied: bool
    dtype: str
    has_chat_template: bool
    licence: str
    max_positions: int
    size_bytes: int
    linear_shapes: Mapping[str, tuple[int, int]]

    @property
    def num_linear_parameters(self) -> int:
        """Weights that a 4-bit base compresses: all linear layers but the output head."""
        return sum(rows * columns for rows, columns in self.linear_shapes.values())


def read_model_card(folder: Path) -> ModelCard:
    """Return the card of a model folder.

    Raises:
        UserError: `model-files-missing-or-corrupt` or `model-pickle-refused`, naming the file.
    """
    files = open_model_folder(folder)
    config = json.loads((folder / "config.json").read_bytes())
    # Models that also see images keep the numbers of their language part one level deeper.
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    heads = _number(folder, text, "num_attention_heads", "n_head")
    hidden = _number(folder, text, "hidden_size", "n_embd")
    model_type = str(config.get("model_type", ""))
    return ModelCard(
        path=folder,
        name=folder.name,
        model_type=model_type,
        num_parameters=sum(math.prod(shape) for shape in files.shapes.values()),
        hidden_size=hidden,
        num_layers=_number(folder, text, "num_hidden_layers", "n_layer"),
        num_heads=heads,
        num_kv_heads=_number(folder, text, "num_key_value_heads", default=heads),
        head_dim=_number(folder, text, "head_dim", default=max(1, hidden // heads)),
        intermediate_size=_number(folder, text, "intermediate_size", "n_inner", default=4 * hidden),
        vocab_size=_number(folder, text, "vocab_size"),
        tied=not any("lm_head" in name for name in files.shapes),
        dtype=str(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype") or "float32"),
        has_chat_template=files.has_chat_template,
        licence=_licence(folder) or FAMILY_LICENCES.get(model_type, ""),
        max_positions=_number(folder, text, "max_position_embeddings", "n_positions", default=2048),
        size_bytes=sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        linear_shapes={
            name: (shape[0], shape[1])
            for name, shape in files.shapes.items()
            if len(shape) == 2 and not any(part in name for part in ("embed", "lm_head", "wte", "wpe"))
        },
    )


def list_models(models_dir: Path) -> list[ModelCard]:
    """Return the cards of the usable model folders of a folder, sorted by name; others are left out."""
    cards = []
    for folder in sorted(models_dir.glob("*/")):
        try:
            cards.append(read_model_card(folder))
        except UserError:
            continue
    return cards


def _number(folder: Path, config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """Return a positive whole number of config.json under one of its names."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and value > 0:
            return value
    if default is None:
        problem = f"{names[0]} is missing or no positive number."
        raise UserError("model-files-missing-or-corrupt", f"{folder / 'config.json'}: {problem}")
    return default


def _licence(folder: Path) -> str:
    """Return the licence that the model's card names in its head, "" when there is none."""
    try:
        lines = (folder / "README.md").read_text(encoding="utf-8", errors="replace").splitlines()[:CARD_HEAD_LINES]
    except OSError:
        return ""
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return (fields.get("license_name") or fields.get("license") or "").strip().strip("\"'")
