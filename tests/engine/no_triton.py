"""A pytest plugin (`-p tests.engine.no_triton`) for a process without Triton, as on many Windows computers."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType


class WithoutTriton(importlib.machinery.PathFinder):
    """Finds all but Triton and its modules: to libraries that ask, it is not installed."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See PathFinder."""
        return None if fullname.partition(".")[0] == "triton" else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = WithoutTriton
