"""House rules that no linter knows: sizes, the top level, lock files, forbidden words, one printer."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
TOP_LEVEL = {
    "pyproject.toml", "gui", "engine", "installers", "assets", "tests",
    "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md",
}  # fmt: skip


def project_files(*suffixes: str) -> Iterator[Path]:
    """The files of the project, tracked or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split("\0"):
        path = REPOSITORY / name
        if name and path.is_file() and (not suffixes or path.suffix in suffixes):
            yield path


def test_top_level_holds_only_the_designed_rooms() -> None:
    names = {path.relative_to(REPOSITORY).parts[0] for path in project_files()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_files_and_functions_stay_small() -> None:
    too_long = []
    for path in project_files(".py"):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MAX_FILE_LINES and path.name != "core_texts.py":
            too_long.append(f"{path.relative_to(REPOSITORY)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{path.relative_to(REPOSITORY)}:{node.lineno} {node.name}: {lines} lines")
    assert not too_long, "\n".join(too_long)


def test_file_names_tell_their_purpose() -> None:
    vague = {"util", "utils", "helper", "helpers", "common", "misc", "stuff"}
    assert not [path for path in project_files(".py") if path.stem in vague]


def test_lock_files_pin_with_hashes_and_name_no_host() -> None:
    locks = [path for path in project_files(".txt") if path.parent.name == "locks"]
    assert locks
    for path in locks:
        text = path.read_text(encoding="utf-8")
        assert "://" not in text, path.name
        for entry in re.split(r"\n(?=\S)", text.strip()):
            if entry.startswith("#"):
                continue
            assert re.match(r"[\w.-]+(\[[\w,-]+\])?==[\w.+!-]+", entry), f"{path.name}: {entry[:80]}"
            assert "--hash=sha256:" in entry, f"{path.name}: {entry[:80]}"


def test_durable_writes_go_through_the_file_layer() -> None:
    """Renames and fsyncs outside `files.py` would escape the crash tests."""
    allowed = {"files.py"}
    found = []
    for package in ("tunesmith_core", "tunesmith_engine", "tunesmith_setup"):
        for path in project_files(".py"):
            if package not in path.parts or path.name in allowed:
                continue
            if re.search(r"\bos\.(replace|rename)\(|\.rename\(", path.read_text(encoding="utf-8")):
                found.append(str(path.relative_to(REPOSITORY)))
    assert not found


def test_no_promises_are_left_in_the_code() -> None:
    words = re.compile("|".join(["TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error"]))
    found = [path for path in project_files(".py") if words.search(path.read_text(encoding="utf-8"))]
    assert not found
