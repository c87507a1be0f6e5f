"""A fact that two packages share is declared once, in core."""

from __future__ import annotations

import ast
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "gui", "installers")
MOST_SHARED_FIELDS = 3
MOST_SHARED = 0.65
"""Of the fields of both."""


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("CHECKPOINT_MANIFEST", "runs.py"),
        ("COMPILE_CACHES", "environments.py"),
        ("FILE_TYPES", "gguf_types.py"),
        ("HEADER_BYTES", "gguf_types.py"),
        ("LAYOUT_ROWS", "datafmt/sniffing.py"),
        ("LIBRARY_BYTES", "fused_memory.py"),
        ("MANIFEST", "environments.py"),
        ("MEMORY_STEPS", "memory_steps.py"),
        ("NUM_SLOTS", "fused_memory.py"),
        ("PROOF", "environments.py"),
        ("TOLD_NATS", "export_proof.py"),
        ("UNEQUAL_NATS", "export_proof.py"),
        ("USABLE_SHARE", "fused_memory.py"),
        ("WSL_LIBRARIES", "environments.py"),
    ],
)
def test_a_shared_fact_has_one_home(name: str, home: str) -> None:
    assert [path for path in sources() if name in declared(path)] == [ROOT / "engine" / "tunesmith_core" / home]


def test_no_dataclass_mirrors_another() -> None:
    """Two that share most of their fields, in two modules, are one fact with two homes."""
    found = [(path, name, fields) for path in sources() for name, fields in dataclasses_of(path)]
    assert {name for _, name, _ in found} >= {"Plan", "Part", "Fix", "Finding"}, "the search finds nothing"
    mirrors = [
        f"{path.relative_to(ROOT)}: {name}, {other_path.relative_to(ROOT)}: {other}"
        for (path, name, fields), (other_path, other, others) in combinations(found, 2)
        if path != other_path and len(fields & others) >= MOST_SHARED_FIELDS
        if len(fields & others) >= MOST_SHARED * len(fields | others)
    ]
    assert mirrors == []


def dataclasses_of(path: Path) -> list[tuple[str, set[str]]]:
    """Name and fields of each dataclass of a module."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return [
        (node.name, {name for each in node.body if (name := annotated(each))})
        for node in nodes
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.dump(each) for each in node.decorator_list)
    ]


def annotated(node: ast.stmt) -> str:
    """The name that a statement annotates, "" for any other."""
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""


def test_a_failure_is_classified_in_one_place() -> None:
    """Beside it only the two places where a person asks about a log of any tool."""
    asking = {path for path in sources() if "explain" in imported(path)}
    assert {path.relative_to(ROOT).as_posix() for path in asking} == {
        "engine/tunesmith_core/explain/__init__.py",
        "engine/tunesmith_core/explain/failure.py",
        "gui/tunesmith_gui/environment/explain_log.py",
        "installers/tunesmith_setup/commands/explain.py",
    }


def imported(path: Path) -> set[str]:
    """The names that a module takes from ours."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes if (node.module or "").startswith("tunesmith_core") for alias in node.names}


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def declared(path: Path) -> set[str]:
    """The names that a module assigns at its top."""
    targets: list[ast.expr] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign):
            targets.append(node.target)
    return {target.id for target in targets if isinstance(target, ast.Name)}
