"""Base models on this computer: what their folders say about size, shape, number format and licence.

Only config.json and safetensors headers are read, so a folder of any size takes milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core import files, packed_weights
from tunesmith_core.adapter_shapes import is_expert, is_linear
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_config import EXPERTS_PER_TOKEN, HIDDEN, NUM_HEADS, NUM_LAYERS, WIDE, language_part
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
CARD_HEAD_BYTES = 1 << 16
USUAL_HEAD_DIM = 64
USUAL_EXPERTS_PER_TOKEN = 2


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known about a model without loading it.

    Attributes:
        linear_shapes: (rows, columns) of each weight of a linear layer that an adapter can sit on, by its tensor name.
        expert_shapes: the same of experts and of what chooses among them; (number, rows, columns) where they are one.
        dtype: number format on disk, such as "bfloat16".
        licence: "" when unknown.
        size_bytes: of the folder, with what its links point to.
        shapes: of all weights, by tensor name.
        state_groups: of heads that share what is written to and read from their states (Mamba 2).
        experts_per_token: that each token goes through, in models with experts.
        packed_format: of weights that are stored packed, a key of `packed_weights.WORDS`; None for all others.
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
    size_bytes: int
    linear_shapes: Mapping[str, tuple[int, int]]
    expert_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    state_groups: int = 1
    experts_per_token: int = USUAL_EXPERTS_PER_TOKEN
    packed_format: str | None = None

    @property
    def num_linear_parameters(self) -> int:
        """Weights that a 4-bit base compresses: all linear layers but the output head."""
        return sum(rows * columns for rows, columns in self.linear_shapes.values())


def read_model_card(folder: Path) -> ModelCard:
    """Return the card of a model folder.

    Raises:
        UserError: `model-files-missing-or-corrupt` or `model-pickle-refused`, naming the file, or
            `model-kind-unsupported` for an encoder-decoder and for quantized weights.
    """
    model = open_model_folder(folder)
    config, shapes = model.config, model.shapes
    text = language_part(config)
    vocabulary, width = _largest(shapes)
    hidden = _number(text, *HIDDEN, default=width)
    # Models without attention plan as if they had heads of the usual size.
    usual_heads = max(1, hidden // USUAL_HEAD_DIM)
    heads = _number(text, *NUM_HEADS, default=usual_heads)
    layers = _number(text, *NUM_LAYERS, default=_num_layers(shapes))
    model_type = str(config.get("model_type", ""))
    return ModelCard(
        path=folder,
        name=folder.name,
        model_type=model_type,
        num_parameters=sum(math.prod(shape) for shape in shapes.values()),
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_num_kv_heads(text, heads),
        head_dim=_number(text, "head_dim", default=max(1, hidden // heads)),
        intermediate_size=_inner_width(shapes) or _number(text, *WIDE, default=4 * hidden),
        vocab_size=_number(text, "vocab_size", default=vocabulary),
        tied=not any("lm_head" in name for name in shapes),
        dtype=str(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype") or "float32"),
        has_chat_template=model.has_chat_template,
        licence=_licence(folder) or FAMILY_LICENCES.get(model_type, ""),
        size_bytes=files.folder_bytes(folder, linked=True),
        linear_shapes={name: (shape[0], shape[1]) for name, shape in shapes.items() if is_linear(name, shape)},
        expert_shapes={name: shape for name, shape in shapes.items() if is_expert(name, shape)},
        shapes=dict(shapes),
        state_groups=_number(text, "mamba_n_groups", "n_groups", default=1),
        experts_per_token=_number(text, *EXPERTS_PER_TOKEN, default=USUAL_EXPERTS_PER_TOKEN),
        packed_format=packed_weights.format_of(settings) if (settings := packed_weights.settings_of(config)) else None,
    )


def _inner_width(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return the width inside the MLPs whose config says another (LFM2, Granite hybrids without experts), or 0."""
    if any(".block_sparse_moe." in name for name in shapes):
        return 0
    first, last = ".feed_forward.w1.weight", ".shared_mlp.output_linear.weight"
    found = (shape[0 if name.endswith(first) else 1] for name, shape in shapes.items() if name.endswith((first, last)))
    return next(found, 0)


def _num_kv_heads(text: Mapping[str, Any], heads: int) -> int:  # Any: JSON values
    """Return the heads of keys and values; some configs only say that there is one (Falcon, StarCoder)."""
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        return 1
    return _number(text, "num_key_value_heads", "num_kv_heads", default=heads)


def list_models(models_dir: Path) -> list[ModelCard]:
    """Return the cards of the usable model folders of a folder, sorted by name; others are left out."""
    cards = []
    for folder in sorted(models_dir.glob("*/")):
        if folder.name.startswith("."):
            # A download that is not whole.
            continue
        try:
            cards.append(read_model_card(folder))
        except TunesmithError:
            continue
    return cards


def _number(config: Mapping[str, Any], *names: str, default: int) -> int:
    """Return a positive whole number of config.json under one of its names; the largest of a list for each layer."""
    values = (value if isinstance(value, list) else [value] for value in map(config.get, names))
    numbers = ([number for number in value if isinstance(number, int) and number > 0] for value in values)
    return next((max(found) for found in numbers if found), default)


def _largest(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
    """Return rows and columns of the embedding, which has the most rows of all matrices."""
    matrices = [(shape[0], shape[1]) for shape in shapes.values() if len(shape) == 2]
    return max(matrices, default=(1, 1))


def _num_layers(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Return how many layers the names of tensors tell, at least one."""
    return max((int(part) + 1 for name in shapes for part in name.split(".")[:4] if part.isdigit()), default=1)


def _licence(folder: Path) -> str:
    """Return the licence that the model's card names in its head, "" when there is none."""
    try:
        with files.open_file(folder / "README.md") as file:
            lines = file.read(CARD_HEAD_BYTES).decode("utf-8", "replace").splitlines()[:CARD_HEAD_LINES]
    except OSError:
        return ""
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return (fields.get("license_name") or fields.get("license") or "").strip().strip("\"'")
