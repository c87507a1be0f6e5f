"""Start script: `python -I -X utf8 start.py MODULE ARGUMENTS...` runs one of our modules in any environment.

Isolated mode (-I) ignores PYTHONPATH and the working folder, so the script itself makes our packages importable. It
maps exactly our names to their folders instead of extending sys.path: when Tunesmith is an installed wheel, its
folder also holds the launcher's libraries, which must not leak into the training environment.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
from pathlib import Path

CORE = Path(__file__).resolve().parent
TOP = CORE.parents[1]
ROOTS = [CORE.parent, TOP / "gui", TOP / "installers", TOP / "assets"]
PACKAGES = ("tunesmith_core", "tunesmith_engine", "tunesmith_gui", "tunesmith_setup", "tunesmith_assets")


class ProgramFinder(importlib.abc.MetaPathFinder):
    """Finds our top-level packages; their submodules are found through the packages' own paths."""

    def find_spec(
        self,
        fullname: str,
        path: object = None,  # noqa: ARG002
        target: object = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of one of our packages, or None for every other name."""
        if fullname not in PACKAGES:
            return None
        for root in ROOTS:
            init = root / fullname / "__init__.py"
            if init.is_file():
                return importlib.util.spec_from_file_location(
                    fullname, init, submodule_search_locations=[str(init.parent)]
                )
        return None


def main() -> None:
    """Run the module named by the first argument as if by `python -m`."""
    sys.meta_path.insert(0, ProgramFinder())
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
