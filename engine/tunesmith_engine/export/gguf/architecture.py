"""What is said of a type of model so that it can be written for llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from gguf import MODEL_ARCH, GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.config import Config

Take = Callable[[torch.Tensor], torch.Tensor]

SILU = ("silu", "swish")
NEAR_GELU = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh")
"""What llama.cpp computes by one formula, which is within 5e-4 of each of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of several weights of a file that a weight of a model becomes.

    Attributes:
        shape: in the file.
        take: returns it of the weight in the model.
        turned: whether the model has inputs before outputs.
    """

    shape: tuple[int, ...]
    take: Take = lambda value: value
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """How llama.cpp holds a type of model.

    Attributes:
        arch: its name there.
        rotates_pairs: whether positions turn neighboring numbers of a head, so that rows of queries and keys change
            places; else the two halves of a head.
        centers: whether norms take the mean away.
        adds_one: whether norms are stored with the one that transformers adds when it computes them.
        activations: those of MLPs that it computes.
        biases: the settings of a config by which layers may have biases.
        own_head: whether it wants a head beside the embedding.
        turns_part: whether a part of a head may turn.
        has_factors: whether frequencies of positions may each have a factor, as Llama 3's.
        by_layer: the settings of a config that may differ from layer to layer.
        problem: returns what llama.cpp would compute otherwise with a config, "" for nothing.
        more: writes the hyperparameters that other architectures don't have.
        around: writes what the config of a model for images says, of which this is the decoder.
        renamed: returns how weights are called where llama.cpp doesn't know their names.
        laid_out: returns a weight, by its name in the model, as llama.cpp has it.
        split: returns what a weight of some name and shape becomes, by names as if the model had them; none for one
            that stays one.
        experts_transposed: whether the weights of experts have inputs before outputs.
        experts_alternate: whether gate and up take turns in them.
        experts_fused: whether gate and up of experts stay one weight.
        without_keys: the kind of layers of which llama.cpp asks that their keys have no heads.
        never_adapted: how names of weights end that llama.cpp multiplies with as they are, whatever an adapter says.
        within_window: whether a text may not be longer than a window, which llama.cpp doesn't have.
        variant: returns what takes the place of this with a config, None for nothing.
    """

    arch: MODEL_ARCH
    rotates_pairs: bool = False
    centers: bool = False
    adds_one: bool = False
    activations: tuple[str, ...] = SILU
    biases: tuple[str, ...] = ()
    own_head: bool = False
    turns_part: bool = False
    has_factors: bool = False
    by_layer: tuple[str, ...] = ()
    problem: Callable[[Config], str] = lambda _: ""
    more: Callable[[GGUFWriter, Config], None] = lambda *_: None
    around: Callable[[GGUFWriter, Config], None] = lambda *_: None
    renamed: Callable[[str], str] = lambda name: name
    laid_out: Callable[[Config, str, torch.Tensor], torch.Tensor] = lambda _config, _name, weight: weight
    split: Callable[[Config, str, tuple[int, ...]], Mapping[str, Part]] = lambda *_: {}
    experts_transposed: bool = False
    experts_alternate: bool = False
    experts_fused: bool = False
    without_keys: str = ""
    never_adapted: tuple[str, ...] = ()
    within_window: bool = False
    variant: Callable[[Config], Architecture | None] = lambda _: None


def num_layers(config: Config) -> int:
    """Return the number of layers of a model."""
    return int(config.num_hidden_layers)


def head_dim(config: Config) -> int:
    """Return the numbers of one attention head, of the layers with the widest (Gemma 4: those that see everything)."""
    return max(
        int(getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads)
        for layer in config.per_layer_config
    )


def pattern_problem(config: Config, every: int) -> str:
    """Say whether layers see everything that llama.cpp takes for windowed; there each n-th sees everything."""
    kinds = ("sliding_attention", "full_attention")
    expected = [kinds[(layer + 1) % every == 0] for layer in range(num_layers(config))]
    return "" if list(config.layer_types) == expected else Message("its sliding windows are in other layers")


def heads_problem(config: Config) -> str:
    """Say whether keys have fewer heads than queries, where llama.cpp knows no such thing."""
    same = config.num_key_value_heads == config.num_attention_heads
    return "" if same else Message("its attention has fewer heads for keys than for queries")


def window_problem(config: Config) -> str:
    """Say whether some layers see a window only, where llama.cpp has none."""
    is_windowed = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    return Message("its attention has a sliding window") if is_windowed else ""


def add_windows(writer: GGUFWriter, config: Config) -> None:
    """Write which layers see a window only."""
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])


def add_sections(writer: GGUFWriter, config: Config) -> None:
    """Write how many pairs of a head turn by a token's time, height and width."""
    writer.add_rope_dimension_sections([*config.rope_parameters["mrope_section"], 0])


def sections_problem(config: Config) -> str:
    """Say whether a config is silent on these pairs, or has too many."""
    if "mrope_section" not in config.rope_parameters:
        return Message("its positions turn in another way")
    return too_many_pairs(config, config.rope_parameters["mrope_section"])


def too_many_pairs(config: Config, sections: Sequence[int]) -> str:
    """Say whether so many pairs turn that llama.cpp ends the process."""
    given = {"pairs": sum(sections), "numbers": head_dim(config)}
    too_many = given["pairs"] > given["numbers"]
    return (
        Message("its mrope_section has {pairs} pairs, but its heads have {numbers} numbers", **given)
        if too_many
        else ""
    )
