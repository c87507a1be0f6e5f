"""Named data sets, the versions that were seen of them, and the runs that used each."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tunesmith_core import data_library, files, paths
from tunesmith_core.errors import UserError
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

Make = Callable[..., RunSpec]

pytestmark = pytest.mark.usefixtures("home")


def source(path: Path) -> SourceSpec:
    return SourceSpec(path=str(path))


def test_a_set_has_a_version_for_each_content(data_file: Path) -> None:
    added = data_library.add("mine", [source(data_file)])
    (first,) = added.versions
    assert first.hash == hashlib.sha256(data_file.read_bytes()).hexdigest()
    assert (first.noted, first.size_bytes) == (first.hash[:16], data_file.stat().st_size)
    assert (added.format, added.columns, added.missing) == ("messages", ("messages",), [])
    before = data_file.read_text()
    data_file.write_text(before * 2)
    assert data_library.find("mine").versions[0] == first
    assert len(data_library.find("mine").versions) == 2
    data_file.write_text(before)
    changed_back = data_library.find("mine").versions
    assert (len(changed_back), changed_back[-1]) == (2, first)
    data_file.unlink()
    gone = data_library.find("mine")
    assert (gone.versions, gone.missing) == (changed_back, [str(data_file)])


def test_a_set_of_several_files_has_one_hash_of_all(data_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "a"}\n')
    (version,) = data_library.add("both", [source(data_file), source(other)]).versions
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (data_file, other)]
    assert version.hash == hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    assert version.noted == f"{hashes[0][:16]}, {hashes[1][:16]}"


def test_files_of_another_set_are_replaced_only_when_that_was_said(data_file: Path, tmp_path: Path) -> None:
    other, name = tmp_path / "other.csv", "我的数据"
    other.write_text("question,answer\na,b\n")
    data_library.add(name, [source(data_file)])
    data_library.add(f"{name}-02", [source(other)])
    with pytest.raises(UserError, match="already keeps") as refused:
        data_library.add(name, [source(other)])
    assert refused.value.code == "dataset-name-taken"
    assert refused.value.message.values == {"name": name, "path": str(data_file), "free": f"{name}-03"}
    assert f"{name}-03" in refused.value.hint
    assert data_library.find(name).sources[0].path == str(data_file)
    # The same file may be kept in another way.
    assert data_library.add(name, [SourceSpec(path=str(data_file), format="messages")]).format == "messages"


def test_replacing_keeps_versions_and_date(data_file: Path, tmp_path: Path) -> None:
    first = data_library.add("mine", [source(data_file)])
    other = tmp_path / "other.csv"
    other.write_text("question,answer\na,b\n")
    raw = SourceSpec(path=str(other), format="prompt-completion-raw")
    again = data_library.add("mine", [raw], overwrite=True)
    assert (again.created, len(again.versions)) == (first.created, 2)
    assert (again.format, again.columns) == ("prompt-completion-raw", ("question", "answer"))


def test_a_set_needs_a_name_and_files_that_can_be_read(data_file: Path, tmp_path: Path) -> None:
    for name, sources in ((" ", [source(data_file)]), ("mine", [])):
        with pytest.raises(UserError, match="needs a name"):
            data_library.add(name, sources)
    with pytest.raises(UserError, match="can't be read"):
        data_library.add("mine", [source(tmp_path / "nothing.jsonl")])
    with pytest.raises(UserError, match="no data set named mine"):
        data_library.find("mine")
    with pytest.raises(UserError, match="no data set named mine"):
        data_library.remove("mine")
    assert data_library.sets() == []


@pytest.mark.parametrize("name", ["/data/plants.jsonl", "a\\b", "a/b"])
def test_a_name_is_never_taken_for_a_path(name: str, data_file: Path) -> None:
    with pytest.raises(UserError, match="can't hold"):
        data_library.add(name, [source(data_file)])


def test_sets_are_sorted_and_removed_without_their_files(data_file: Path) -> None:
    for name in ("b", "A", "c"):
        data_library.add(name, [source(data_file)])
    data_library.remove("c")
    assert [each.name for each in data_library.sets()] == ["A", "b"]
    assert data_file.exists()


def noted(run: Run, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = SimpleNamespace(fingerprint={"data": data})
    known = data_library.newest_noted
    monkeypatch.setattr(
        data_library, "newest_noted", lambda path: manifest if path == run.checkpoints_path else known(path)
    )


def test_the_runs_of_a_set_say_which_version_they_saw(
    make_spec: Make, data_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [create_run(make_spec(name)) for name in ("one", "two", "three", "four")]
    other = tmp_path / "other.jsonl"
    other.write_text(data_file.read_text() * 2)
    for run in runs[1:3]:
        spec = run.load_spec()
        spec.data.sources[0].path = str(other)
        files.atomic_write_json(run.spec_path, spec.to_dict())
    runs[3].spec_path.write_text("{")
    mine = data_library.add("mine", [source(data_file)])
    noted(runs[1], mine.versions[0].noted, monkeypatch)
    uses = data_library.users(mine)
    assert [(use.run, use.version) for use in uses] == [(runs[1].id, mine.versions[0].hash), (runs[0].id, "")]
    assert data_library.users(mine, [runs[2]]) == []


@pytest.fixture
def old_file(data_file: Path) -> Path:
    """A file that did not change for long."""
    os.utime(data_file, ns=(1, 1))
    return data_file


def test_a_file_is_hashed_again_only_when_it_changed(data_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    real = files.sha256_file
    monkeypatch.setattr(files, "sha256_file", lambda path: (read.append(path), real(path))[1])
    first = data_library.file_hash(data_file)
    assert data_library.file_hash(data_file) == first
    # A file that was just written may be written again within the same time.
    assert len(read) == 2
    for time_s, num_read in ((1, 3), (2, 4)):
        os.utime(data_file, (time_s, time_s))
        for _ in range(2):
            assert data_library.file_hash(data_file) == first
        assert len(read) == num_read
    assert data_library.file_hash(data_file.with_name("nothing")) == ""
    assert data_library.content_hash([data_file, data_file.with_name("nothing")]) == ""


def test_a_file_that_was_given_its_old_time_back_is_hashed_again(old_file: Path) -> None:
    first = data_library.file_hash(old_file)
    content = old_file.read_bytes()
    old_file.write_bytes(content[:-2] + b"X" + content[-1:])
    os.utime(old_file, ns=(1, 1))
    assert data_library.file_hash(old_file) != first


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_a_pipe_is_no_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jsonl")
    assert data_library.file_hash(tmp_path / "a.jsonl") == ""
    assert data_library.file_hash(tmp_path / ("x" * 300)) == ""


@pytest.mark.parametrize("content", ["{", "[]", '{"sets": 5}', '{"sets": {"mine": {"name": 5}, "more": 7}}'])
def test_a_damaged_list_is_an_empty_one(content: str, data_file: Path) -> None:
    for path in (paths.config_dir() / "data-sets.json", paths.cache_dir() / "data-hashes.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert data_library.sets() == []
    assert data_library.add("new", [source(data_file)]).versions
    assert [each.name for each in data_library.sets()] == ["new"]


def test_a_hash_that_cannot_be_remembered_is_told_all_the_same(old_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path, _value: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(files, "atomic_write_json", refuse)
    assert data_library.file_hash(old_file) == hashlib.sha256(old_file.read_bytes()).hexdigest()


def test_only_the_newest_hashes_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_library, "MOST_CACHED", 2)
    for number in range(3):
        (tmp_path / str(number)).write_text(str(number))
        os.utime(tmp_path / str(number), ns=(1, 1))
        data_library.file_hash(tmp_path / str(number))
    cached = json.loads((paths.cache_dir() / "data-hashes.json").read_text())
    assert list(cached) == [str(tmp_path / "1"), str(tmp_path / "2")]
