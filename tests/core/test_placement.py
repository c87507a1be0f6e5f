"""Which folders can hold data, and where environments go on Windows; Windows' rules are decided on pure paths."""

from __future__ import annotations

import errno
import json
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

import pytest

from tunesmith_core import files, placement
from tunesmith_core.errors import EnvironmentProblem
from tunesmith_core.machine import Disk, Machine
from tunesmith_core.placement import needs_short_folder, problem_of, record_work_folder, short_folders, work_folder

WINDOWS = Machine(
    system="windows",
    disks=(
        Disk(path="C:\\", kind="fixed"),
        Disk(path="D:\\", kind="fixed"),
        Disk(path="D:\\mounted", kind="removable"),
        Disk(path="E:\\", kind="removable"),
        Disk(path="N:\\", kind="network"),
    ),
)
LINUX = Machine(
    system="linux",
    disks=(
        Disk(path="/", kind="fixed"),
        Disk(path="/mnt/nas", kind="network"),
        Disk(path="/media/usb", kind="removable"),
    ),
)
VARIABLES = {
    "SystemRoot": "C:\\Windows",
    "ProgramFiles": "C:\\Program Files",
    "ProgramFiles(x86)": "C:\\Program Files (x86)",
    "OneDriveCommercial": "D:\\Firma",
    "OneDrive": "",
}


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("D:\\Tunesmith", None),
        ("D:\\12345678901234567", None),
        ("D:\\123456789012345678", "longer than 20 characters"),
        ("C:\\Users\\Ann\\AppData\\Local\\Tunesmith", "longer than 20 characters"),
        ("D:\\My Data", "spaces"),
        ("D:\\训练", "letters other than"),
        ("D:\\Ayşe\\Tunesmith", "letters other than"),
    ],
)
def test_environments_leave_a_root_that_compilers_can_not_use(root: str, words: str | None) -> None:
    reason = needs_short_folder(PureWindowsPath(root))
    assert reason == words or (words and reason and words in reason)


def test_short_folders_are_on_the_same_drive_and_short() -> None:
    folders = list(short_folders(PureWindowsPath("d:\\训练\\x")))
    assert folders == [PureWindowsPath(f"D:\\Tunesmith{number}") for number in ("", *range(2, 100))]
    assert all(needs_short_folder(folder) is None for folder in folders)


def silent(text: str) -> None:
    """Takes no notice."""
    raise AssertionError(text)


def ignore(_text: str) -> None:
    """Takes every notice."""


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the top of a drive, where short folders are made."""

    def candidates(_root: PurePath) -> list[PurePath]:
        return [tmp_path / "Tunesmith", tmp_path / "Tunesmith2"]

    monkeypatch.delenv("TUNESMITH_WORK", raising=False)
    monkeypatch.setattr(placement, "short_folders", candidates)
    return tmp_path


def test_linux_has_no_such_rule(drive: Path) -> None:
    root = drive / "my 数据" / ("x" * 30)
    assert work_folder(root) == root
    record_work_folder(root, silent)
    assert not root.exists()


def test_the_choice_is_recorded_and_stays(drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = drive / "my data"
    assert work_folder(root, windows=True) == drive / "Tunesmith", "before anything is written"
    assert not root.exists()
    told: list[str] = []
    record_work_folder(root, told.append, windows=True)
    reason = f"because {root} can't be used for them: its path contains spaces"
    assert told == [f"Environments and caches go to {drive / 'Tunesmith'}, {reason}."]
    monkeypatch.setattr(placement, "needs_short_folder", lambda _root: None)
    assert work_folder(root, windows=True) == drive / "Tunesmith", "other rules of a later version change nothing"
    assert work_folder(drive / "other", windows=True) == drive / "other"


def test_a_root_that_can_hold_everything_does(drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = drive / "root"
    monkeypatch.setattr(placement, "needs_short_folder", lambda _root: None)
    record_work_folder(root, silent, windows=True)
    record = json.loads((root / "config" / "placement.json").read_text())
    assert record == {"version": 1, "work_folder": str(root)}
    monkeypatch.setattr(placement, "needs_short_folder", lambda _root: "stricter now")
    assert work_folder(root, windows=True) == root


def test_the_short_folder_of_somebody_else_is_left_alone(drive: Path) -> None:
    record_work_folder(drive / "first root", ignore, windows=True)
    record_work_folder(drive / "second root", ignore, windows=True)
    assert work_folder(drive / "first root", windows=True) == drive / "Tunesmith"
    assert work_folder(drive / "second root", windows=True) == drive / "Tunesmith2"
    third = drive / "third root"
    assert work_folder(third, windows=True) == third, "none is left"


@pytest.mark.parametrize("content", [None, "no json", "[]"])
def test_a_folder_that_happens_to_have_the_name_is_left_alone(drive: Path, content: str | None) -> None:
    (drive / "Tunesmith").mkdir()
    if content:
        (drive / "Tunesmith" / placement.OWNER).write_text(content)
    assert work_folder(drive / "my data", windows=True) == drive / "Tunesmith2"


def test_what_was_begun_before_the_choice_was_recorded_goes_on(drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = drive / ("x" * 30)
    chosen = work_folder(root, windows=True)
    for room in ("cache", "envs", "tmp"):
        (chosen / room).mkdir(parents=True)
        assert work_folder(root, windows=True) == chosen
    (chosen / "notes.txt").touch()
    assert work_folder(root, windows=True) != chosen
    (chosen / "notes.txt").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(placement.os, "listdir", lambda _: (_ for _ in ()).throw(PermissionError))
        assert work_folder(root, windows=True) != chosen
    for _ in range(2):
        record_work_folder(root, ignore, windows=True)
        assert json.loads((chosen / placement.OWNER).read_text()) == {"version": 1, "data_root": str(root)}


def test_a_lost_record_is_found_again_by_the_mark_in_the_short_folder(drive: Path) -> None:
    root = drive / "my data"
    record_work_folder(root, ignore, windows=True)
    (root / placement.RECORD).write_text("damaged")
    assert work_folder(root, windows=True) == drive / "Tunesmith"


def test_a_root_that_was_moved_to_another_drive_chooses_anew(drive: Path) -> None:
    root = drive / "my data"
    (root / "config").mkdir(parents=True)
    files.atomic_write_json(root / placement.RECORD, {"version": 1, "work_folder": "elsewhere"})
    assert work_folder(root, windows=True) == drive / "Tunesmith"


def test_the_person_can_choose_the_work_folder(drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNESMITH_WORK", str(drive / "w"))
    for windows in (False, True):
        assert work_folder(drive / "my data", windows=windows) == drive / "w"
        record_work_folder(drive / "my data", silent, windows=windows)
    assert list(drive.iterdir()) == []


def test_a_drive_that_takes_no_short_folder_is_told(drive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, _value: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "atomic_write_json", refuse)
    with pytest.raises(EnvironmentProblem, match="its path contains spaces") as caught:
        record_work_folder(drive / "my data", silent, windows=True)
    assert caught.value.code == "permission-or-antivirus"
    assert "TUNESMITH_WORK" in caught.value.hint
    assert not (drive / "my data").exists()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("D:\\Tunesmith", None),
        ("C:\\Users\\Ayşe Yılmaz\\AppData\\Local\\Tunesmith", None),
        ("D:\\训练 数据", None),
        ("D:\\OneDriver\\x", None),
        ("Tunesmith", "not a full path"),
        ("\\Tunesmith", "not a full path"),
        ("C:\\Users\\Ann\\OneDrive\\Tunesmith", "synchronized with a cloud"),
        ("C:\\Users\\Ann\\onedrive - Contoso\\Tunesmith", "synchronized with a cloud"),
        ("C:\\Users\\Ann\\Dropbox\\x", "synchronized with a cloud"),
        ("d:\\firma\\Documents\\x", "synchronized with a cloud"),
        ("N:\\Tunesmith", "network drive"),
        ("\\\\server\\share\\Tunesmith", "network drive"),
        ("\\\\wsl.localhost\\Ubuntu\\home\\ann", "network drive"),
        ("E:\\Tunesmith", "removable drive"),
        ("D:\\mounted\\Tunesmith", "removable drive"),
        ("C:\\", "belongs to the operating system"),
        ("c:\\windows\\Temp\\x", "belongs to the operating system"),
        ("C:\\Program Files\\Tunesmith", "belongs to the operating system"),
        ("D:\\Programs\\Tunesmith\\data", "the program's own folder"),
        ("D:\\programs\\tunesmith", "the program's own folder"),
        ("D:\\" + "x" * 97, None),
        ("D:\\" + "x" * 98, "has 101 characters"),
    ],
)
def test_folders_on_windows(path: str, words: str | None) -> None:
    problem = problem_of(path, WINDOWS, variables=VARIABLES, program_folder=PureWindowsPath("D:\\Programs\\Tunesmith"))
    assert (problem.message if problem else None) == words or (words and problem and words in problem.message)
    if problem:
        assert problem.exit_code == 2
        assert str(PureWindowsPath(path)) in problem.message
        assert problem.hint.startswith("Choose a folder")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/home/ann/.local/share/tunesmith", None),
        ("/home/ayşe yılmaz/" + "x" * 200, None),
        ("/opt/tunesmith", None),
        ("/tmp/tunesmith", None),
        ("tunesmith", "not a full path"),
        ("/", "belongs to the operating system"),
        ("/usr/local/tunesmith", "belongs to the operating system"),
        ("/mnt/nas/ann", "network drive"),
        ("/media/usb", "removable drive"),
        ("/home/ann/OneDrive/x", "synchronized with a cloud"),
    ],
)
def test_folders_on_linux(path: str, words: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    problem = problem_of(PurePosixPath(path), LINUX)
    assert (problem.message if problem else None) == words or (words and problem and words in problem.message)


def test_unknown_disks_refuse_nothing() -> None:
    assert problem_of("/mnt/nas/ann", Machine(system="linux")) is None
    assert problem_of("N:\\x", Machine(system="windows", disks=()), variables={}) is None


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert placement.writing_problem(tmp_path / "new") is None

    def refuse(_folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "probe_writable", refuse)
    problem = placement.writing_problem(tmp_path)
    assert problem is not None
    assert problem.code == "permission-or-antivirus"
    assert problem.message == f"{tmp_path} can't be written: Permission denied."
