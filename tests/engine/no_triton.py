"""A pytest plugin (`-p tests.engine.no_triton`) for a process without Triton, as on many Windows computers."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys


class Blocker(importlib.abc.MetaPathFinder):
    """Finds no Triton."""

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Raise for Triton and its modules; leave every other name to the next finder."""
        if fullname.partition(".")[0] == "triton":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


sys.meta_path.insert(0, Blocker())
