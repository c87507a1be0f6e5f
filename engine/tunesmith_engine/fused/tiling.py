"""The tilings that the memory plan chooses from, for less and less memory."""

from __future__ import annotations

from dataclasses import replace

from tunesmith_core.fused_memory import SAVER, WHOLE, Tiling

__all__ = ["FEW_LOGITS", "SAVER", "SMALL", "SMALLEST", "TILINGS", "WHOLE", "Tiling"]

SMALL = Tiling(mlp_tokens=4096, head_rows=1024, attention_numbers=2**24)
FEW_LOGITS = replace(SMALL, head_rows=512)
"""With a vocabulary of 248,320, these rows are 242 MiB less, which heads of a delta rule that go in fewer parts use
better."""
SMALLEST = Tiling(mlp_tokens=1024, head_rows=256, attention_numbers=2**22)
"""A product of 184 rows is bound by arithmetic already on an H200, so only this one is slower to speak of."""

TILINGS = (WHOLE, SMALL, FEW_LOGITS, SAVER, SMALLEST)
