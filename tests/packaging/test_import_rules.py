"""Import rules, the run-time part: the launcher's modules load although `torch` and the engine are poisoned."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = [REPOSITORY / name for name in ("gui", "engine", "installers", "assets")]
POISONED = ("torch", "transformers", "peft", "trl", "triton", "datasets", "bitsandbytes", "tunesmith_engine")


def modules_of(package: str) -> list[str]:
    """Every module of a package, found by file name so that nothing is imported here."""
    (folder,) = (root / package for root in ROOTS if (root / package).is_dir())
    found = [module.name for module in pkgutil.walk_packages([str(folder)], f"{package}.")]
    return [package, *(name for name in found if not name.endswith("__main__"))]


@pytest.mark.parametrize("package", ["tunesmith_core", "tunesmith_setup", "tunesmith_assets", "tunesmith_gui"])
def test_launcher_side_never_loads_the_training_stack(package: str, tmp_path: Path) -> None:
    for name in POISONED:
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name} was imported by {package}')\n")
    skipped = {"tunesmith_core.start"} if package == "tunesmith_core" else set()
    names = [name for name in modules_of(package) if name not in skipped]
    script = "import importlib\nfor name in " + repr(names) + ":\n    importlib.import_module(name)\n"
    path = os.pathsep.join([str(tmp_path), *map(str, ROOTS)])
    environment = os.environ | {"PYTHONPATH": path, "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert len(names) > 1


@pytest.mark.parametrize("package", ["tunesmith_core", "tunesmith_setup"])
def test_core_and_setup_need_the_standard_library_only(package: str, tmp_path: Path) -> None:
    """Without site-packages (-S) every module of core and setup imports."""
    names = [name for name in modules_of(package) if name != "tunesmith_core.start"]
    roots = [str(root) for root in ROOTS]
    imports = "".join(f"import {name}\n" for name in names)
    script = f"import sys; sys.path[:0] = {roots!r}\n{imports}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
