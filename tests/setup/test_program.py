"""A program folder is checked against its manifest, installed for one person, replaced as a whole, and removed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress
from tunesmith_core import files
from tunesmith_core.errors import EnvironmentProblem, UserError
from tunesmith_setup import __main__ as command_line
from tunesmith_setup.commands import program as command
from tunesmith_setup.installation import program, user_program

on_linux = pytest.mark.skipif(sys.platform == "win32", reason="Windows has an installer of its own")

ENTRY = "[Desktop Entry]\nExec=tunesmith\n"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A small program folder as an installer unpacks it."""
    folder = tmp_path / "unpacked"
    contents = {
        "app/tunesmith_core/start.py": "print()\n",
        "tunesmith": "#!/bin/sh\n",
        "tunesmith.desktop": ENTRY,
        "tunesmith.svg": "<svg/>",
        "tunesmith.png": "png",
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    program.write_manifest(folder, "1.2.3")
    return folder


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder."""
    folder = tmp_path / "person"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    return folder


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def test_a_program_as_it_was_packed_is_not_damaged(packed: Path) -> None:
    (packed / "app" / "__pycache__").mkdir()
    (packed / "app" / "__pycache__" / "start.pyc").write_text("bytecode")
    assert program.damaged_files(packed) == []


def test_every_difference_is_named(packed: Path) -> None:
    start = packed / "app" / "tunesmith_core" / "start.py"
    content = bytearray(start.read_bytes())
    content[3] ^= 1
    start.write_bytes(content)
    (packed / "tunesmith.png").unlink()
    (packed / "app" / "version.dll").write_text("planted")
    assert program.damaged_files(packed) == [
        "changed: app/tunesmith_core/start.py",
        "foreign: app/version.dll",
        "missing: tunesmith.png",
    ]


@pytest.mark.parametrize("content", [None, "{", "{}", '{"files": 3}', '{"files": [1]}'])
def test_without_a_manifest_nothing_is_trusted(packed: Path, content: str | None) -> None:
    (packed / program.MANIFEST_NAME).unlink()
    if content is not None:
        (packed / program.MANIFEST_NAME).write_text(content)
    assert program.damaged_files(packed) == ["missing: payload.json"]


@on_linux
def test_installing_writes_program_menu_entry_icons_and_command(
    packed: Path, person: Path, progress: RecordedProgress
) -> None:
    folder = user_program.default_folder()
    user_program.install(packed, folder, progress)
    assert program.damaged_files(folder) == []
    assert (person / ".local/bin/tunesmith").resolve() == folder / "tunesmith"
    entry = (person / ".local/share/applications/tunesmith.desktop").read_text()
    assert f'Exec="{folder}/tunesmith"' in entry
    assert (person / ".local/share/icons/hicolor/scalable/apps/tunesmith.svg").read_text() == "<svg/>"
    assert "is not on the PATH" in progress.text


@on_linux
def test_uninstalling_leaves_nothing(
    packed: Path, person: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(person / ".local" / "bin"))
    monkeypatch.setenv("XDG_DATA_HOME", str(person / "share"))
    user_program.install(packed, person / "programs" / "tunesmith", progress)
    assert "is not on the PATH" not in progress.text
    assert everything(person)
    user_program.uninstall(person / "programs" / "tunesmith")
    assert everything(person) == []


@on_linux
def test_a_newer_version_replaces_the_older_one_as_a_whole(
    packed: Path, person: Path, progress: RecordedProgress
) -> None:
    folder = person / "tunesmith"
    user_program.install(packed, folder, progress)
    (packed / "tunesmith.png").unlink()
    (packed / "new.txt").write_text("new")
    (packed / "tunesmith.png").write_text("newer")
    program.write_manifest(packed, "1.2.4")
    (folder.with_name("tunesmith.new")).mkdir()
    user_program.install(packed, folder, progress)
    assert program.damaged_files(folder) == []
    assert (folder / "new.txt").is_file()
    assert sorted(path.name for path in person.iterdir()) == [".local", "tunesmith"]


@on_linux
def test_a_damaged_program_is_not_installed(packed: Path, person: Path, progress: RecordedProgress) -> None:
    (packed / "tunesmith").write_text("#!/bin/sh\necho other\n")
    with pytest.raises(EnvironmentProblem, match="changed: tunesmith") as caught:
        user_program.install(packed, person / "tunesmith", progress)
    assert caught.value.code == "environment-build-failed"
    assert list(person.iterdir()) == []


@on_linux
def test_a_copy_that_failed_leaves_the_older_version(
    packed: Path, person: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_program.install(packed, person / "tunesmith", progress)

    def fail(_source: Path, target: Path, **_: object) -> None:
        target.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", fail)
    with pytest.raises(OSError, match="No space"):
        user_program.install(packed, person / "tunesmith", progress)
    assert program.damaged_files(person / "tunesmith") == []
    assert not (person / "tunesmith.new").exists()


@on_linux
@pytest.mark.parametrize(
    "point", ["program.copied", "program.moved-away", "folder.before-rename", "folder.after-rename"]
)
def test_the_same_command_mends_an_interrupted_installation(
    packed: Path, person: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    folder = person / "tunesmith"
    user_program.install(packed, folder, progress)

    def stop(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files, "crashpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            user_program.install(packed, folder, progress)
    user_program.install(packed, folder, progress)
    assert program.damaged_files(folder) == []
    assert sorted(path.name for path in person.iterdir()) == [".local", "tunesmith"]


@on_linux
def test_what_is_not_ours_is_not_replaced(packed: Path, person: Path, progress: RecordedProgress) -> None:
    (person / "full").mkdir()
    (person / "full" / "diary.txt").write_text("mine")
    (person / "file").write_text("mine")
    (person / "link").symlink_to(person / "full")
    for name in ("full", "file", "link"):
        with pytest.raises(UserError, match="contains something other"):
            user_program.install(packed, person / name, progress)
    (person / "empty").mkdir()
    user_program.install(packed, person / "empty", progress)
    assert (person / "full" / "diary.txt").read_text() == "mine"


@on_linux
def test_another_programs_command_is_left_alone(packed: Path, person: Path, progress: RecordedProgress) -> None:
    other = person / ".local" / "bin" / "tunesmith"
    other.parent.mkdir(parents=True)
    other.write_text("other")
    user_program.install(packed, person / "tunesmith", progress)
    assert "belongs to another program" in progress.text
    user_program.uninstall(person / "tunesmith")
    assert everything(person) == [".local/bin/tunesmith"]


@on_linux
def test_removing_one_program_leaves_the_menu_entry_of_another(
    packed: Path, person: Path, progress: RecordedProgress
) -> None:
    user_program.install(packed, person / "first", progress)
    (person / ".local" / "bin" / "tunesmith").unlink()
    user_program.install(packed, person / "second", progress)
    user_program.uninstall(person / "first")
    assert (person / ".local/share/applications/tunesmith.desktop").is_file()
    assert (person / ".local/bin/tunesmith").resolve() == person / "second" / "tunesmith"


@on_linux
@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/a b/tunesmith", '"/a b/tunesmith"'),
        ("/50%/tunesmith", '"/50%%/tunesmith"'),
        ("/a$b/tunesmith", '"/a\\\\$b/tunesmith"'),
        ('/a"b`c', '"/a\\\\"b\\\\`c"'),
    ],
)
def test_paths_are_quoted_for_desktop_entries(path: str, word: str) -> None:
    assert user_program.exec_word(Path(path)) == word


def test_the_command_checks_a_folder(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["program", "--check", str(packed)]) == 0
    assert "intact" in capsys.readouterr().out
    (packed / "tunesmith").unlink()
    assert command_line.main(["program", "--check", str(packed)]) == 3
    assert "missing: tunesmith" in capsys.readouterr().err


@on_linux
def test_a_folder_without_a_program_is_not_uninstalled(person: Path) -> None:
    (person / "own").mkdir(parents=True)
    (person / "own" / "letter.txt").write_text("mine")
    with pytest.raises(UserError, match="not installed in"):
        user_program.uninstall(person / "own")
    assert (person / "own" / "letter.txt").read_text() == "mine"


@on_linux
def test_the_command_installs_and_removes_its_own_program(
    packed: Path, person: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "OWN_FOLDER", packed)
    for folder in ("cache", "locks", "runs"):
        (home / folder).mkdir()
    assert command_line.main(["program"]) == 0
    assert f"installed in {user_program.default_folder()}." in capsys.readouterr().out
    assert program.damaged_files(user_program.default_folder()) == []
    (home / "models").mkdir()
    assert command_line.main(["program", "--uninstall"]) == 0
    shown = capsys.readouterr().out
    assert "Tunesmith was removed." in shown
    kept = {"runs": "runs, with checkpoints and adapters", "models": "base models"}
    for name, what in kept.items():
        assert f"    Kept: {home / name} ({what})\n" in shown
    assert sorted(os.listdir(home)) == sorted(kept)
    assert everything(person) == []
    (home / "cache").mkdir()
    assert command_line.main(["program", "--uninstall", "--prefix", str(person)]) == 2
    assert (home / "cache").exists(), "nothing goes before the program was found"
