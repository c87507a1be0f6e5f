"""How the Windows setup is built, as far as that needs no Windows; `tests/windows` runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.packaging.packages import DATE_S, VERSION, make_program
from tests.setup.test_build_sources import WHOLE, python_zip
from tunesmith_setup.build import __main__ as build
from tunesmith_setup.build import windows
from tunesmith_setup.installation import program


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program folder with a Python of a few bytes."""
    folder = tmp_path_factory.mktemp("program")
    return make_program(folder, "win", python_zip(folder / "python.zip", WHOLE))


def test_the_same_program_gives_the_same_setup(packed: Path, tmp_path: Path) -> None:
    """In another folder and at another time; that a wheel has the same bytes is tested with the Linux packages."""
    folders = (tmp_path / "first", tmp_path / "and the second")
    setups = []
    for folder in folders:
        shutil.copytree(packed, folder / "win")
        setups.append(windows.build(folder / "win", folder / "staging", folder, VERSION, DATE_S))
    content = setups[0].read_bytes()
    assert content == setups[1].read_bytes()
    assert content.startswith(b"MZ")


def test_a_setup_without_a_python_is_smaller(packed: Path, tmp_path: Path) -> None:
    shutil.copytree(packed, tmp_path / "win", ignore=shutil.ignore_patterns("python"))
    program.write_manifest(tmp_path / "win", VERSION)
    setup = windows.build(tmp_path / "win", tmp_path / "staging", tmp_path, VERSION, DATE_S)
    assert setup.stat().st_size < 5_000_000


def test_the_program_holds_what_windows_needs_and_no_more(packed: Path) -> None:
    names = {path.relative_to(packed).as_posix() for path in program.program_files(packed)}
    assert {"tools/uv.exe", "python/pythonw.exe", "tunesmith.ico", "LICENSE.txt", "app/locks/uv.txt"} <= names
    assert "app/locks/launcher-win-py311.txt" in names
    assert not [name for name in names if "-linux-" in name or name.startswith("app/locks/dev") or "dist-info" in name]
    manifest = json.loads((packed / program.MANIFEST_NAME).read_text(encoding="utf-8"))
    assert manifest["version"] == VERSION
    assert set(manifest["files"]) == names


def test_every_file_is_listed_once_in_a_fixed_order(tmp_path: Path) -> None:
    for name in ("b/two.txt", "a$b/one.txt", "top.txt", "b/c/three.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    assert windows.file_list(tmp_path).splitlines() == [
        'SetOutPath "$Staging\\a$$b"',
        f'File "{tmp_path}/a$$b/one.txt"',
        'SetOutPath "$Staging\\b\\c"',
        f'File "{tmp_path}/b/c/three.txt"',
        'SetOutPath "$Staging\\b"',
        f'File "{tmp_path}/b/two.txt"',
        'SetOutPath "$Staging"',
        f'File "{tmp_path}/top.txt"',
    ]


def test_the_folder_may_be_as_long_as_the_longest_file_allows(tmp_path: Path) -> None:
    (tmp_path / ("a" * 60)).touch()
    limit = windows.longest_folder_length(tmp_path)
    longest = "\\".join(["C" * limit, "program.new", "a" * 60])
    assert len(longest) + windows.BYTECODE_LENGTH == windows.MAX_PATH_LENGTH
    assert limit > 100


def test_the_command_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(build, "build", lambda *arguments: asked.extend(arguments[:3]))
    assert build.main(["--output", str(tmp_path), "--python", "p.zip", "exe"]) == 0
    assert asked == [["exe"], tmp_path, Path("p.zip")]
    asked.clear()
    assert build.main([]) == 0
    assert asked == [["exe", "deb", "run"], Path("dist"), None]
