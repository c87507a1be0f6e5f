"""Settings: kept across starts, refused when wrong, never in the way of a start when the file is damaged."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tunesmith_core import settings as module
from tunesmith_core.environments import own_command
from tunesmith_core.errors import UserError
from tunesmith_core.locks import FileLock
from tunesmith_core.settings import Settings, SettingsFile, iter_settings, settings_path


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_absent_file_means_defaults_and_no_problem(home: Path) -> None:
    file = SettingsFile()
    assert file.path == settings_path() == home / "config" / "settings.json"
    assert (file.values, file.problem) == (Settings(), None)
    assert not file.path.exists(), "loading writes nothing"


def test_change_and_save_last(home: Path) -> None:
    file = SettingsFile()
    file.change(language="zh_CN", font_scale_percent=150)
    assert SettingsFile().values == Settings(), "change alone stays in memory"
    file.save()
    again = SettingsFile()
    assert (again.values.language, again.values.font_scale_percent, again.problem) == ("zh_CN", 150, None)
    assert json.loads(again.path.read_text(encoding="utf-8"))["version"] == 1


def test_what_another_process_wrote_meanwhile_is_kept(home: Path) -> None:
    window = SettingsFile()
    subprocess.run(own_command("tunesmith_setup", "settings", "proxy=http://proxy.example:8080"), check=True)
    window.change(theme="dark")
    window.save()
    saved = SettingsFile().values
    assert (saved.proxy, saved.theme) == ("http://proxy.example:8080", "dark")
    assert window.values == saved, "the window goes by it, too"
    subprocess.run(own_command("tunesmith_setup", "settings", "theme=light"), check=True)
    window.change(language="en")
    window.save()
    assert SettingsFile().values.theme == "light", "an older change of the window does not come back"


def test_what_another_process_wrote_is_read_again_beside_what_was_changed_here(home: Path) -> None:
    file, other = SettingsFile(), SettingsFile()
    file.refresh()
    assert file.values == Settings(), "without a file nothing changes"
    file.change(theme="dark")
    other.change(theme="light", language="zh_CN")
    other.save()
    file.refresh()
    assert (file.values.theme, file.values.language) == ("dark", "zh_CN")
    file.save()
    settings_path().write_text("{", encoding="utf-8")
    file.refresh()
    assert file.values.language == "zh_CN"


def test_a_change_during_a_save_is_not_lost(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SettingsFile()
    file.change(theme="dark")
    write_json = module.files.atomic_write_json

    def change_meanwhile(path: Path, content: object) -> None:
        write_json(path, content)
        file.change(theme="light")

    with monkeypatch.context() as patch:
        patch.setattr(module.files, "atomic_write_json", change_meanwhile)
        file.save()
    assert file.values.theme == "light"
    file.save()
    assert SettingsFile().values.theme == "light"


def test_a_save_that_failed_is_made_up_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SettingsFile()
    file.change(theme="dark")

    def fail(_path: Path, _content: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(module.files, "atomic_write_json", fail)
        with pytest.raises(OSError, match="no room"):
            file.save()
    file.save()
    assert SettingsFile().values.theme == "dark"


def test_a_save_waits_for_another_writer_but_not_forever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.1)
    file = SettingsFile()
    file.change(theme="dark")
    with FileLock(file.path.with_suffix(".lock")), pytest.raises(TimeoutError, match="locked by another process"):
        file.save()
    file.save()
    assert SettingsFile().values.theme == "dark"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"font_scale_percent": 300}, "settings.font_scale_percent must be at most 200"),
        ({"theme": "pink"}, "settings.theme must be one of"),
        ({"keep_awake": "yes"}, "settings.keep_awake must be true or false"),
        ({"colour": 1}, "settings.colour is not a setting"),
    ],
)
def test_wrong_change_is_refused_whole(home: Path, values: dict[str, object], words: str) -> None:
    file = SettingsFile()
    with pytest.raises(UserError, match=words) as caught:
        file.change(**{"language": "en", **values})
    assert caught.value.code == "setting-invalid"
    assert file.values == Settings(), "nothing of it was taken"


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("package_index", "https://mirror.example/simple"),
        ("package_index", "http://name:pass%40word@localhost:8081/repository/pypi/simple/"),
        ("package_index", ""),
        ("pytorch_index", "https://mirror.example/pytorch-wheels"),
        ("proxy", "http://name:secret@proxy.example:8080"),
        ("proxy", "socks5h://[::1]:1080/"),
        ("wheel_folder", str(Path.cwd())),
        ("wheel_folder", ""),
    ],
)
def test_addresses_and_folders_are_taken(home: Path, name: str, good: str) -> None:
    file = SettingsFile()
    file.change(**{name: good})
    file.save()
    again = SettingsFile()
    assert (getattr(again.values, name), again.problem) == (good, None)


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [
        ("package_index", "mirror.example/simple", "must begin with https:// / http://"),
        ("package_index", "ftp://me:hunter2@mirror.example", "must begin with https:// / http://"),
        ("package_index", "https://me:hunter2@/simple", "must contain a host name"),
        ("package_index", "https://me:hunter2@mirror.example:port/simple", "valid port number"),
        ("package_index", "https://me:hunter2@mirror.example:0/simple", "must contain a host name"),
        ("package_index", "https://me:hunter2@[::1/simple", "must contain a host name"),
        ("package_index", "https://me:hunter2@mirror.example/a b", "must not contain spaces"),
        ("pytorch_index", "https://me:hunter2@mirror.example/whl?token=1", "must not contain ?"),
        ("pytorch_index", "https://me:hunter2@mirror.example/whl#1", "must not contain ?"),
        ("proxy", "me:hunter2@proxy.example:8080", "must begin with http:// / https:// / socks5://"),
        ("proxy", "http://me:hunter2@proxy.example:8080/simple", "must end with the port"),
        ("wheel_folder", "wheels", "must be the full path of a folder"),
    ],
)
def test_wrong_addresses_are_refused_without_repeating_them(home: Path, name: str, bad: str, words: str) -> None:
    file = SettingsFile()
    with pytest.raises(UserError) as caught:
        file.change(**{name: bad})
    assert f"settings.{name} must" in caught.value.message
    assert words in caught.value.message
    assert "hunter2" not in str(caught.value.to_dict())
    write(file.path, {"version": 1, "theme": "dark", name: bad})
    again = SettingsFile()
    assert again.values == Settings(theme="dark")
    assert again.problem is not None
    assert "hunter2" not in str(again.problem.to_dict())


@pytest.mark.parametrize("damage", ["{ not json", "[1]", '{"theme": "dark"}', '{"version": "1"}', '{"version": 0}'])
def test_damaged_file_falls_back_to_the_last_good_copy(home: Path, damage: str) -> None:
    file = SettingsFile()
    file.change(theme="dark")
    file.save()
    write(file.path, damage)
    again = SettingsFile()
    assert again.values.theme == "dark"
    assert again.problem is not None
    assert again.problem.code == "settings-damaged"
    assert str(file.path) in again.problem.message


def test_damage_names_line_and_column(home: Path) -> None:
    write(settings_path(), '{\n  "version": 1,\n  oops')
    problem = SettingsFile().problem
    assert problem is not None
    assert "line 3, column 3" in problem.message


def test_both_files_damaged_means_defaults(home: Path) -> None:
    file = SettingsFile()
    write(file.path, "x")
    write(file.last_good_path, "y")
    again = SettingsFile()
    assert again.values == Settings()
    assert again.problem is not None
    assert str(file.path) in again.problem.message, "the first cause is told"


def test_file_alone_lost_is_no_damage(home: Path) -> None:
    file = SettingsFile()
    file.change(theme="light")
    file.save()
    file.path.unlink()
    again = SettingsFile()
    assert (again.values.theme, again.problem) == ("light", None)


def test_one_bad_value_costs_only_itself(home: Path) -> None:
    write(settings_path(), {"version": 1, "theme": "pink", "language": "en"})
    file = SettingsFile()
    assert (file.values.theme, file.values.language) == ("system", "en")
    assert file.problem is not None
    assert "settings.theme" in file.problem.message


def test_values_of_a_newer_version_survive(home: Path) -> None:
    write(settings_path(), {"version": 9, "theme": "dark", "hologram": True})
    file = SettingsFile()
    assert (file.values.theme, file.problem) == ("dark", None)
    file.change(language="en")
    file.save()
    content = json.loads(file.path.read_text(encoding="utf-8"))
    assert (content["version"], content["hologram"], content["language"]) == (9, True, "en")


def test_migrations_run_in_order_from_the_version_of_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def to_two(values: dict[str, object]) -> dict[str, object]:
        return {"theme": "dark" if values["night"] else "light"}

    def to_three(values: dict[str, object]) -> dict[str, object]:
        return {**values, "font_scale_percent": 125}

    monkeypatch.setattr(module, "MIGRATIONS", (to_two, to_three))
    write(settings_path(), {"version": 1, "night": True})
    file = SettingsFile()
    assert (file.values.theme, file.values.font_scale_percent) == ("dark", 125)
    file.save()
    assert json.loads(file.path.read_text(encoding="utf-8"))["version"] == 3
    write(settings_path(), {"version": 2, "theme": "light"})
    assert SettingsFile().values.theme == "light"


def test_every_setting_is_declared_and_its_default_is_valid(home: Path) -> None:
    rows = iter_settings()
    assert [name for name, *_ in rows] == list(Settings.__slots__)
    assert all(declaration.label and declaration.meaning for *_, declaration in rows)
    SettingsFile().change(**{name: default for name, _type, default, _declaration in rows})


@pytest.mark.parametrize("content", ["{", '{"version": 1, "theme": "pink", "language": "en"}'])
def test_a_damaged_file_is_set_aside_before_it_is_written_again(home: Path, content: str) -> None:
    path = settings_path()
    path.parent.mkdir(parents=True)
    path.write_text(content)
    file = SettingsFile()
    assert file.problem is not None
    file.change(theme="dark")
    file.save()
    aside = path.with_name("settings.damaged.json")
    assert aside.read_text() == content
    assert SettingsFile().problem is None
    file.change(theme="light")
    file.save()
    assert aside.read_text() == content
    path.unlink()
    file.last_good_path.write_text("{")
    file.save()
    assert aside.read_text() == content, "there was no file to set aside"


@pytest.mark.parametrize("number", ["Infinity", "NaN", '{"a": [-Infinity]}'])
def test_a_number_that_json_lacks_does_not_keep_settings_from_being_saved(home: Path, number: str) -> None:
    file = SettingsFile()
    file.save()
    text = file.path.read_text(encoding="utf-8")
    file.path.write_text(text.replace("{", f'{{"of-tomorrow": {number}, "kept": 1, ', 1), encoding="utf-8")
    again = SettingsFile()
    again.change(theme="dark")
    again.save()
    assert SettingsFile().values.theme == "dark"
    assert json.loads(file.path.read_text(encoding="utf-8"))["kept"] == 1
