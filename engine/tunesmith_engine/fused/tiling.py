"""The tilings that the memory plan chooses from, for less and less memory."""

from __future__ import annotations

from tunesmith_core.fused_memory import SAVER, WHOLE, Tiling

__all__ = ["SAVER", "SMALL", "SMALLEST", "TILINGS", "WHOLE", "Tiling"]

SMALL = Tiling(mlp_tokens=4096, head_rows=1024, attention_numbers=2**24)
SMALLEST = Tiling(mlp_tokens=1024, head_rows=256, attention_numbers=2**22)
"""A product of 184 rows is bound by arithmetic already on an H200, so only this one is slower to speak of."""

TILINGS = (WHOLE, SMALL, SAVER, SMALLEST)
