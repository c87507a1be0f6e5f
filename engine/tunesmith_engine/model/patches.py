"""Changes to transformers while the engine runs, each with the reason; none changes a result."""

from __future__ import annotations

import torch
from transformers import masking_utils


def _no_packed_rows(_: torch.Tensor) -> None:
    """Say that no row holds several packed texts, as transformers would find out for itself."""


def never_look_for_packed_rows() -> None:
    """Keep transformers from reading position ids back from the GPU in each forward pass, which makes the host wait.

    It looks for rows packed from several texts; ours hold one text each.
    """
    if hasattr(masking_utils, "find_packed_sequence_indices"):
        masking_utils.find_packed_sequence_indices = _no_packed_rows
