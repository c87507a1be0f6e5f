"""Layers with a selective scan (Mamba 2) as llama.cpp has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from gguf import GGUFWriter

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.architecture import Part
from tunesmith_engine.export.gguf.config import Config


@dataclass(frozen=True, slots=True)
class Scan:
    """The sizes of a scan.

    Attributes:
        heads: number of heads.
        width: of all heads together.
        groups: of heads that share what writes into states and reads from them.
        state: numbers that a channel keeps.
        kernel: tokens that a convolution sees.
    """

    heads: int
    width: int
    groups: int
    state: int
    kernel: int


def scan_of(config: Config) -> Scan:
    """Return the sizes of a config's scans, whose names have a prefix where there are other layers beside them."""
    if hasattr(config, "mamba_d_state"):
        heads, groups = config.mamba_n_heads, config.mamba_n_groups
        return Scan(heads, heads * config.mamba_d_head, groups, config.mamba_d_state, config.mamba_d_conv)
    width = config.num_heads * config.head_dim
    return Scan(config.num_heads, width, config.n_groups, config.state_size, config.conv_kernel)


def add_hyperparameters(writer: GGUFWriter, config: Config) -> None:
    """Write the sizes of scans."""
    scan = scan_of(config)
    writer.add_ssm_conv_kernel(scan.kernel)
    writer.add_ssm_inner_size(scan.width)
    writer.add_ssm_state_size(scan.state)
    writer.add_ssm_time_step_rank(scan.heads)
    writer.add_ssm_group_count(scan.groups)


def problem(config: Config) -> str:
    """Say whether steps of time have bounds, which llama.cpp doesn't have, or convolutions no biases."""
    if not getattr(config, "mamba_conv_bias", getattr(config, "use_conv_bias", True)):
        return Message("its layers have no biases")
    low, high = config.time_step_limit
    return "" if low == 0 and math.isinf(high) else Message("the time steps of its scans have limits")


def split(config: Config, name: str, shape: tuple[int, ...]) -> Mapping[str, Part]:
    """Return a weight of a scan in the shape that llama.cpp wants."""
    scan = scan_of(config)
    if name.endswith((".A_log", ".D")):
        wanted: tuple[int, ...] = (shape[0], 1)
    elif name.endswith(".conv1d.weight"):
        # A convolution's channels each have one input.
        wanted = (shape[0], shape[2])
    elif name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        wanted = (scan.groups, shape[0] // scan.groups)
    else:
        return {}
    return {name: Part(wanted, lambda weight: weight.view(wanted))}


def laid_out(_config: Config, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return a weight with decays in place of their logarithms."""
    return -weight.float().exp() if name.endswith(".A_log") else weight
