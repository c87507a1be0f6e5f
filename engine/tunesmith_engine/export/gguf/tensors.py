"""Names and layout of weights in a GGUF file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from gguf import get_tensor_name_map

from tunesmith_core.errors import TunesmithError
from tunesmith_engine.export.gguf import gated_delta
from tunesmith_engine.export.gguf.architecture import Architecture, Part, Take, num_layers
from tunesmith_engine.export.gguf.config import Config

_COMPUTED = re.compile(r"\.(inv_freq|masked_bias|rotary_emb\..*)$")
"""Tables in files of some models that every program computes by itself."""

_ROTATED = re.compile(r"\.self_attn\.(q|k)_proj\.(weight|bias)$")

_AMONG_IMAGES = re.compile(r"^(model\.)?(language_model|text_model)\.(model\.)?")
"""How names begin in the decoder of a model for images and texts."""

SHORT_CONVOLUTION = ".conv.conv.weight"

_EXPERT = re.compile(r"^(.*\.experts)\.(\d+)\.(\w+)\.(weight|bias)$")
"""A weight of one expert. All of a layer are one weight in a GGUF file."""
_GATE_AND_UP = re.compile(r"^(.*\.experts)\.gate_up_proj(_bias)?$")
"""Gate and up of all experts of a layer, which are two weights there."""

_LAYER = re.compile(r"\.layers\.(\d+)\.")

Read = Callable[[str], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Source:
    """Which weights of a model become one of a GGUF file.

    Attributes:
        names: of one weight, or of one for each expert, in their order.
        part: what of it is taken, and how.
    """

    names: tuple[str, ...]
    part: Part

    def read(self, architecture: Architecture, config: Config, read: Read) -> torch.Tensor:
        """Return the weight as llama.cpp has it."""
        values = [laid_out(architecture, config, name, read(name)) for name in self.names]
        return self.part.take(values[0] if _EXPERT.match(self.names[0]) is None else torch.stack(values))

    @property
    def in_model(self) -> str:
        """The name that the weight, or that all experts together, have in the model."""
        found = _EXPERT.match(self.names[0])
        if found is None:
            return self.names[0]
        return f"{found[1]}.{'down_proj' if found[3] in ('w2', 'down_proj') else 'gate_up_proj'}"


def sources(architecture: Architecture, config: Config, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Source]:
    """Return what each weight of a GGUF file is made of, by its name there.

    Args:
        architecture: of the model.
        config: of its decoder.
        shapes: of the weights by their names in the model, or in its files for those of single experts.

    Raises:
        UserError: `export-unsupported` for one that the architecture does not have there.
    """
    together: dict[str, list[str]] = {}
    for name in shapes:
        if _is_behind(config, name):
            continue
        found = _EXPERT.match(name)
        together.setdefault(f"{found[1]}.{found[3]}.{found[4]}" if found else name, []).append(name)
    parts: dict[str, Source] = {}
    for name, names in together.items():
        parts |= _parts(architecture, config, name, names, shapes)
    return {own: parts[name] for name, own in names_in_gguf(architecture, config, parts).items()}


def _is_behind(config: Config, name: str) -> bool:
    """Return whether a weight is of a layer behind the last, which only predicts further tokens."""
    found = _LAYER.search(name)
    return found is not None and int(found[1]) >= num_layers(config)


def _parts(
    architecture: Architecture, config: Config, name: str, names: list[str], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Source]:
    """Return the weights of a file that one of the model becomes, by names as if the model had them."""
    shape = shapes[names[0]]
    if _EXPERT.match(names[0]):
        ordered = sorted(names, key=lambda each: int(_EXPERT.match(each)[2]))  # type: ignore[index]
        return {name: Source(tuple(ordered), Part((len(names), *shape)))}
    if split := architecture.split(config, name, shape):
        return {own: Source((name,), part) for own, part in split.items()}
    turns = architecture.experts_transposed and len(shape) == 3
    shape = (shape[0], shape[2], shape[1]) if turns else shape
    # A convolution's channels each have one input.
    shape = shape[:1] + shape[2:] if name.endswith((SHORT_CONVOLUTION, gated_delta.CONVOLUTION)) else shape
    found = _GATE_AND_UP.match(name)
    if found is None or architecture.experts_fused:
        take: Take = (lambda value: value.transpose(1, 2)) if turns else (lambda value: value)
        return {_with_role(name): Source((name,), Part(shape, take, turns))}
    half, ending = shape[1] // 2, ".bias" if found[2] else ".weight"
    alternate = architecture.experts_alternate
    parts = (slice(0, None, 2), slice(1, None, 2)) if alternate else (slice(half), slice(half, None))
    return {
        f"{found[1]}.{role}{ending}": Source((name,), Part((shape[0], half, *shape[2:]), _outputs(part, turns), turns))
        for role, part in zip(("gate_proj", "up_proj"), parts, strict=True)
    }


def _outputs(part: slice, turns: bool) -> Take:
    return lambda value: (value.transpose(1, 2) if turns else value)[:, part]


def _with_role(name: str) -> str:
    """Return the name of a weight with what it is in the end, as llama.cpp's tables of names want it."""
    name = re.sub(r"\.(sinks|experts\.(?:gate_up|gate|up|down)_proj)$", r".\1.weight", name)
    name = re.sub(r"\.dt_bias$", ".dt_proj.bias", name)
    name = re.sub(r"\.expert_bias$", ".expert_bias.bias", name)
    return re.sub(r"_(proj|correction)_bias$", r"_\1.bias", name)


def names_in_gguf(architecture: Architecture, config: Config, names: Collection[str]) -> dict[str, str]:
    """Return how weights of the model are called in a GGUF file, without those of what sees images.

    Args:
        architecture: of the model.
        config: of its decoder.
        names: of weights; of gate, up and down, where those of all experts are one each.

    Raises:
        UserError: `export-unsupported` for one that the architecture does not have there.
    """
    known = get_tensor_name_map(architecture.arch, num_layers(config))
    found = {}
    among_images = any(_AMONG_IMAGES.match(name) for name in names)
    for name in names:
        if _COMPUTED.search(name):
            continue
        plain = _AMONG_IMAGES.sub("model.", name)
        if among_images and plain == name and not name.startswith("lm_head."):
            continue
        own = known.get_name(architecture.renamed(plain), try_suffixes=(".weight", ".bias", ".scale"))
        if own is None:
            raise TunesmithError(
                "export-unsupported",
                "The weight {name} has no place in a GGUF file of a model of type {kind}.",
                hint="Export the merged model instead.",
                name=name,
                kind=config.model_type,
            )
        found[name] = own
    return found


def laid_out(architecture: Architecture, config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight as llama.cpp has it.

    Args:
        architecture: of the model.
        config: of the model.
        name: of the weight in the model.
        weight: as transformers has it.
    """
    if name.endswith(SHORT_CONVOLUTION):
        return weight.squeeze(1)
    rotated = _ROTATED.search(name) if architecture.rotates_pairs else None
    if rotated:
        heads = config.num_attention_heads if rotated[1] == "q" else config.num_key_value_heads
        # [heads, 2 halves, half a head, ...] -> [heads, half a head, 2 neighbors, ...]
        parts = weight.view(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        return parts.transpose(1, 2).reshape(weight.shape)
    if architecture.adds_one and name.endswith("norm.weight"):
        return weight.float() + 1
    return architecture.laid_out(config, name, weight)
