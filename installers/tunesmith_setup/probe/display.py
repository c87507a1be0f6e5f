"""Graphics cards of other makers than NVIDIA, which can't train with CUDA but explain what a computer has."""

from __future__ import annotations

from typing import Any

from tunesmith_setup.probe import pci
from tunesmith_setup.probe.computer import Computer


def facts(computer: Computer) -> dict[str, Any]:
    """Return `other_gpus`."""
    others = [card.name for card in pci.cards(computer) if card.maker != pci.NVIDIA]
    return {"other_gpus": tuple(dict.fromkeys(others))}
