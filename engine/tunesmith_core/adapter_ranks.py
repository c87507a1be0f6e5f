"""Layers of a model with an adapter, and ranks and alphas of their own: PEFT's `layers_to_transform`, `rank_pattern`
and `alpha_pattern`, as a person writes them.

A pattern is the end of a module's name, such as q_proj or layers.3.mlp.up_proj; * stands for anything within.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from tunesmith_core.messages import Message

if TYPE_CHECKING:
    from tunesmith_core.spec_sections import AdapterSpec

HIGHEST_RANK = 4096
MOST_LAYERS = 10_000

FROM_WEIGHTS = frozenset({"pissa", "pissa_niter_16", "olora"})
"""Initial values that are parts of the frozen weights. What they add at first stays beside them, with the opposite sign
and untrained: an adapter of twice the rank, which leaves the base model as it is."""


def rank_problem(entry: str) -> str | None:
    """Return what is wrong with an entry such as "q_proj = 32", None where nothing is."""
    name, rank = _parted(entry)
    if name and rank.isascii() and rank.isdigit() and 1 <= int(rank) <= HIGHEST_RANK:
        return None
    return Message("must be written as: module = rank, such as q_proj = 32. Ranks go from 1 to {most}", most=4096)


def alpha_problem(entry: str) -> str | None:
    """Return what is wrong with an entry such as "q_proj = 64", None where nothing is."""
    name, alpha = _parted(entry)
    if name and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", alpha, re.ASCII) and float(alpha) > 0:
        return None
    return Message("must be written as: module = alpha, such as q_proj = 64, with an alpha above 0")


def layers_problem(entry: str) -> str | None:
    """Return what is wrong with an entry such as "3" or "0-7", None where nothing is."""
    first, dash, last = (each.strip() for each in entry.partition("-"))
    numbers = [first, last] if dash else [first]
    if all(re.fullmatch(r"\d{1,4}", number, re.ASCII) for number in numbers) and int(first) <= int(numbers[-1]):
        return None
    return Message("must be written as numbers of layers, such as 0-7, 20")


def _parted(entry: str) -> tuple[str, str]:
    name, _, value = entry.partition("=")
    return name.strip(), value.strip()


def ranks(entries: Iterable[str]) -> dict[str, int]:
    """Return ranks by pattern."""
    return {name: int(rank) for name, rank in map(_parted, entries)}


def alphas(entries: Iterable[str]) -> dict[str, float]:
    """Return alphas by pattern."""
    return {name: float(alpha) for name, alpha in map(_parted, entries)}


def expression(pattern: str) -> str:
    """Return a pattern as a regular expression for PEFT, which puts any beginning of a name before it."""
    return ".*".join(map(re.escape, pattern.split("*")))


def entry(key: str, value: float) -> str:
    """Return a rank or an alpha of PEFT's pattern as a person writes it."""
    name = key.replace(".*", "*").replace("\\.", ".").replace("\\-", "-")
    return f"{name} = {value:.9f}".rstrip("0").rstrip(".")


def matching(patterns: Iterable[str], module: str) -> list[str]:
    """Return which patterns stand for a module."""
    return [each for each in patterns if re.match(rf"(.*\.)?({expression(each)})$", module)]


def layer_numbers(adapter: AdapterSpec) -> list[int] | None:
    """Return the numbers of the layers with an adapter, None for all."""
    if not adapter.layers:
        return None
    found: set[int] = set()
    for entry in adapter.layers:
        first, _, last = (each.strip() for each in entry.partition("-"))
        found |= set(range(int(first), int(last or first) + 1))
    return sorted(found)


def is_in_layers(numbers: Collection[int] | None, module: str) -> bool:
    """Return whether a module is in a layer with an adapter."""
    if numbers is None:
        return True
    number = next((int(part) for part in module.split(".") if part.isdigit()), None)
    return number is not None and number in numbers


def size_of(adapter: AdapterSpec, module: str, patterns: Mapping[str, int]) -> int:
    """Return how many rows and columns the adapter of a module has.

    Args:
        adapter: the settings.
        module: name of a layer with an adapter.
        patterns: `ranks` of the settings.
    """
    found = matching(patterns, module)
    rank = patterns[found[0]] if found else adapter.rank
    return 2 * rank if adapter.initial_values in FROM_WEIGHTS else rank


def adapts_experts(adapter: AdapterSpec) -> bool:
    """Return whether experts that are stored in one weight can have the adapter; PEFT has nothing but plain LoRA."""
    has_more = adapter.dora or adapter.dropout or adapter.layers
    return adapter.kind == "lora" and not has_more and adapter.initial_values in ("default", "gaussian")
