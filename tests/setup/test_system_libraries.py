"""Missing system libraries are installed where that needs no question, else the command that helps is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.setup.conftest import RecordedProgress, script
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_setup.packages import system_libraries
from tunesmith_setup.packages.system_libraries import Missing

SOME = Missing(("libEGL.so.1", "libxcb-cursor.so.0"), ("Xvfb",), ("libegl1", "libxcb-cursor0", "xvfb"))


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> list[Missing]:
    """What `missing` says: the entries in turn, the last one for ever."""
    answers = [SOME]
    monkeypatch.setattr(system_libraries, "missing", lambda **_: answers.pop(0) if len(answers) > 1 else answers[0])
    return answers


def apt_get(programs: Path, *, succeeds: bool) -> Path:
    """A scripted apt-get that writes its calls down; returns that file."""
    calls = programs.parent / "apt-calls.jsonl"
    body = (
        f"import json; file = open({str(calls)!r}, 'a'); "
        "file.write(json.dumps([*args, os.environ.get('DEBIAN_FRONTEND')]) + '\\n')\n"
        f"if args[0] == 'install' and not {succeeds}: sys.exit('E: Unable to locate package')"
    )
    script(programs / "apt-get", body)
    (programs / "env").symlink_to("/usr/bin/env")
    return calls


def test_libraries_are_looked_for_by_loading_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system_libraries, "WINDOW_LIBRARIES", {"libc.so.6": "libc6", "libnothing.so.9": "libnothing9"})
    monkeypatch.setattr(system_libraries, "FONT_FOLDERS", (tmp_path,))
    assert system_libraries.missing(for_tests=False) == Missing(
        ("libnothing.so.9",), (), ("libnothing9", "fonts-dejavu-core")
    )
    (tmp_path / "dejavu").mkdir()
    (tmp_path / "dejavu" / "Sans.ttf").touch()
    assert system_libraries.missing(for_tests=False).packages == ("libnothing9",)


def test_the_tests_need_a_headless_screen(monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    monkeypatch.setattr(system_libraries, "WINDOW_LIBRARIES", {"libc.so.6": "libc6"})
    for name in system_libraries.TEST_PROGRAMS.keys() - {"Xvfb"}:
        script(programs / name, "")
    assert system_libraries.missing(for_tests=True).programs == ("Xvfb",)
    assert "xvfb" in system_libraries.missing(for_tests=True).packages
    assert system_libraries.missing(for_tests=False).programs == ()


def test_a_probe_that_dies_counts_all_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_libraries, "PROBE", "import os; os.abort()")
    assert set(system_libraries.missing(for_tests=False).libraries) == set(system_libraries.WINDOW_LIBRARIES)


def test_root_installs_without_a_question(
    lacking: list[Missing], programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    calls = apt_get(programs, succeeds=True)
    lacking[:] = [SOME, Missing()]
    system_libraries.ensure(progress, for_tests=True)
    update, install = [json.loads(line) for line in calls.read_text().splitlines()]
    assert update == ["update", "-qq", "noninteractive"]
    assert install == ["install", "-y", "-qq", "--no-install-recommends", *SOME.packages, "noninteractive"]
    assert progress.lines[-1] == "    Complete"


def test_nothing_is_installed_when_nothing_is_missing(
    lacking: list[Missing], programs: Path, progress: RecordedProgress
) -> None:
    calls = apt_get(programs, succeeds=True)
    lacking[:] = [Missing()]
    system_libraries.ensure(progress)
    assert not calls.exists()


def test_a_failed_installation_shows_why_and_names_the_command(
    lacking: list[Missing], programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    apt_get(programs, succeeds=False)
    with pytest.raises(EnvironmentProblem) as caught:
        system_libraries.ensure(progress)
    assert caught.value.code == "system-library-missing"
    assert caught.value.message == "Missing: libEGL.so.1, libxcb-cursor.so.0, Xvfb."
    assert caught.value.hint == "Run: sudo apt-get install libegl1 libxcb-cursor0 xvfb"
    assert "Unable to locate package" in progress.text


@pytest.mark.parametrize(("asks", "runs"), [(False, True), (True, False)])
def test_sudo_is_used_only_where_it_asks_nothing(
    programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, asks: bool, runs: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    calls = apt_get(programs, succeeds=True)
    script(programs / "sudo", f"if {asks}: sys.exit(1)\nos.execvp(args[1], args[1:]) if args[1] != 'true' else None")
    assert system_libraries.apt_install(("libegl1",), progress) is runs
    assert calls.exists() is runs


def test_an_old_list_of_packages_is_no_obstacle_and_the_end_of_the_words_is_shown(
    programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (programs / "env").symlink_to("/usr/bin/env")
    refused = "print('noise'); sys.stderr.write('E: no network'); sys.exit(100)"
    script(programs / "apt-get", f"if args[0] == 'update':\n    {refused}\nprint('noise')")
    assert system_libraries.apt_install(("libegl1", "libgl1"), progress)
    assert progress.lines == ["    Running apt-get install libegl1 libgl1"]
    script(programs / "apt-get", "sys.stderr.write('x' * 3000 + 'broken\\n')\nsys.exit(1)")
    assert not system_libraries.apt_install(("libegl1",), progress)
    assert progress.lines[-1] == "x" * (2000 - len("broken")) + "broken"
    assert capfd.readouterr() == ("", "")


def test_without_sudo_a_person_gets_the_command(
    lacking: list[Missing], programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    apt_get(programs, succeeds=True)
    with pytest.raises(EnvironmentProblem) as caught:
        system_libraries.ensure(progress)
    assert "sudo apt-get install libegl1" in caught.value.hint


def test_other_package_managers_find_packages_by_their_libraries(programs: Path) -> None:
    names = "'libEGL.so.1()(64bit)' 'libxcb-cursor.so.0()(64bit)' /usr/bin/Xvfb"
    assert system_libraries.command_for_person(SOME).endswith("libEGL.so.1 libxcb-cursor.so.0 Xvfb")
    script(programs / "zypper", "")
    assert system_libraries.command_for_person(SOME) == f"Run: sudo zypper install {names}"
    script(programs / "dnf", "")
    assert system_libraries.command_for_person(SOME) == f"Run: sudo dnf install {names}"


def test_a_missing_font_alone_is_named(lacking: list[Missing], programs: Path, progress: RecordedProgress) -> None:
    lacking[:] = [Missing((), (), ("fonts-dejavu-core",))]
    with pytest.raises(EnvironmentProblem, match=r"Missing: a font\."):
        system_libraries.ensure(progress)


def test_wine_is_installed_where_that_asks_nothing(
    programs: Path, progress: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list(system_libraries.WINDOWS_PROGRAMS)
    script(programs / names[0], "")
    asked: list[tuple[str, ...]] = []

    def install(packages: tuple[str, ...], _: RecordedProgress) -> bool:
        asked.append(packages)
        for name in names:
            script(programs / name, "")
        return True

    monkeypatch.setattr(system_libraries, "apt_install", lambda *_: False)
    assert system_libraries.ensure_wine(progress) == names[1:]
    monkeypatch.setattr(system_libraries, "apt_install", install)
    assert system_libraries.ensure_wine(progress) == []
    assert system_libraries.ensure_wine(progress) == []
    assert asked == [("wine64", "winbind", "gcc-mingw-w64-x86-64-win32", "binutils-mingw-w64-x86-64")]
