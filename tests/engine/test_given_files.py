"""Any file that a person brings is read: compressed, in archives and folders, as tables, splits and several at once."""

from __future__ import annotations

import gzip
import json
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import zstandard
from pyarrow import ipc, parquet
from transformers import AutoTokenizer

from tests.engine.conftest import events, train
from tests.engine.prepared import prepare
from tests.workbooks import write_workbook
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.messages import joined
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data import members
from tunesmith_engine.data.members import is_plain_name
from tunesmith_engine.data.preview import preview
from tunesmith_engine.data.read import Source, _together

MakeSpec = Callable[..., RunSpec]

PAIRS = [{"question": f"What is {number}?", "answer": f"It is {number}."} for number in range(3)]
JSONL = "".join(json.dumps(pair) + "\n" for pair in PAIRS)
CSV = "question,answer\n" + "".join(f"{pair['question']},{pair['answer']}\n" for pair in PAIRS)
ANSWERS = [pair["answer"] for pair in PAIRS]


def read(path: Path, **spec: Any) -> tuple[list[str], list[str], Source]:
    """Return the places, the answers or texts, and the source of all rows."""
    source = Source(SourceSpec(path=str(path), **spec), skip_bad_rows=False)
    found = [(source.place(number), conversation) for number, conversation in source.conversations()]
    said = [getattr(each, "completion", getattr(each, "text", "")) for _, each in found]
    return [place for place, _ in found], said, source


def refusal_of(path: Path, **spec: Any) -> TunesmithError:
    with pytest.raises(UserError) as refusal:
        read(path, **spec)
    assert str(path) in refusal.value.message
    return refusal.value


def write_zip(path: Path, members: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def table() -> Any:  # Any: pyarrow.Table
    return pyarrow.Table.from_pylist(PAIRS)


@pytest.mark.parametrize("packed", [gzip.compress, zstandard.ZstdCompressor().compress])
@pytest.mark.parametrize(("name", "text", "first"), [("a.jsonl", JSONL, 1), ("a.csv", CSV, 2), ("a", JSONL, 1)])
def test_a_compressed_file_is_read_line_by_line(
    tmp_path: Path, packed: Callable[[bytes], bytes], name: str, text: str, first: int
) -> None:
    path = tmp_path / (name + (".gz" if packed is gzip.compress else ".zst"))
    path.write_bytes(packed(text.encode()))
    before = path.read_bytes()
    assert read(path)[:2] == ([f"{path}, line {number}" for number in range(first, first + 3)], ANSWERS)
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_damage_is_named_with_the_line_that_could_be_reached(tmp_path: Path, suffix: str) -> None:
    lines = "".join(json.dumps({"text": f"{number * 7919 % 100_003} and more"}) + "\n" for number in range(20_000))
    whole = (gzip.compress if suffix == "gz" else zstandard.ZstdCompressor().compress)(lines.encode())
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    source = Source(SourceSpec(path=str(path)), skip_bad_rows=False)
    numbers = []
    with pytest.raises(UserError, match="the compressed data is damaged") as refusal:
        numbers += [number for number, _ in source.conversations()]
    line = int(refusal.value.message.partition("line ")[2].partition(":")[0])
    assert line > 1000
    assert refusal.value.hint == "Copy or download the file again."


@pytest.mark.parametrize("name", ["a.csv.gz", "a.parquet.zst", "a.xlsx.gz"])
def test_what_is_compressed_may_be_of_any_kind(tmp_path: Path, name: str) -> None:
    inner = tmp_path / Path(name).stem
    if inner.suffix == ".csv":
        inner.write_text(CSV)
    elif inner.suffix == ".parquet":
        parquet.write_table(table(), inner)
    else:
        write_workbook(inner, {"A": [["question", "answer"], *([pair["question"], pair["answer"]] for pair in PAIRS)]})
    path = tmp_path / "packed" / name
    path.parent.mkdir()
    pack = gzip.compress if name.endswith(".gz") else zstandard.ZstdCompressor().compress
    path.write_bytes(pack(inner.read_bytes()))
    places, said, _ = read(path)
    assert said == ANSWERS
    assert all(place.startswith(f"{path}, ") for place in places)


def test_each_row_of_an_archive_names_its_member(tmp_path: Path) -> None:
    parquet.write_table(table(), tmp_path / "t.parquet")
    path = write_zip(
        tmp_path / "a.zip",
        {
            "data/b.csv": CSV,
            "a.jsonl": JSONL,
            "t.parquet": (tmp_path / "t.parquet").read_bytes(),
            "README.md": "# A set\n",
            "picture.png": b"\x89PNG",
            "empty.jsonl": "",
            "__MACOSX/._a.jsonl": b"\0\1",
        },
    )
    places, said, source = read(path)
    assert said == ANSWERS * 3
    assert places[::3] == [f"{path}/a.jsonl, line 1", f"{path}/data/b.csv, line 2", f"{path}/t.parquet, row 1"]
    assert source.notes == {
        "dataset-parts-unread": f"{path} has files that are not read (2): picture.png, README.md. "
        f"{path}/empty.jsonl: the file is empty. The file is left out."
    }


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_file_in_an_archive_is_read(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix == "gz" else zstandard.ZstdCompressor().compress
    inner = f"in/a.jsonl.{suffix}"
    path = write_zip(tmp_path / "a.zip", {inner: pack(JSONL.encode()), "README.md": "# A set\n"})
    places, said, _ = read(path)
    assert (said, places[0]) == (ANSWERS, f"{path}/{inner}, line 1")
    write_zip(path, {inner: pack(JSONL.encode())[:-9]})
    assert f"{path}/{inner}, line " in refusal_of(path).message
    write_zip(path, {inner: pack(b'{"text": "%s"}\n' % (b"a" * 100_000) * 400)})
    assert "unpacks to more than 100 times its size" in refusal_of(path).message


def test_a_fault_in_a_member_is_told_with_member_and_line(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"b.jsonl": JSONL + '{"question": 5\n', "a.jsonl": JSONL})
    assert f"{path}/b.jsonl, line 4, column 15" in refusal_of(path).message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../a.jsonl", "no file name that every system takes"),
        ("/etc/a.jsonl", "no file name"),
        ("C:/a.jsonl", "no file name"),
        ("a\\b.jsonl", "no file name"),
        ("aux.jsonl", "no file name"),
        ("b/COM1", "no file name"),
        ("a.jsonl ", "no file name"),
        ("x" * 300, "no file name"),
    ],
)
def test_an_archive_with_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str, said: str) -> None:
    assert said in refusal_of(write_zip(tmp_path / "a.zip", {name: JSONL})).message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip"]


def test_usual_names_of_all_languages_are_taken() -> None:
    assert all(map(is_plain_name, ["a.jsonl", "dir/数据 集.csv", "a-b_c (1).txt", "company.com", "über/x"]))


def test_links_bombs_passwords_and_archives_in_archives_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("a.jsonl")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "is a link or a device" in refusal_of(path).message

    write_zip(path, {"a.jsonl": b" " * 32 * 1024**2})
    assert "unpacks to more than 100 times its size" in refusal_of(path).message

    # What all files hold together counts as well, beside what is free.
    several = {f"{number}.jsonl": b" " * 6 * 1024**2 for number in range(3)}
    size = write_zip(path, several).stat().st_size
    monkeypatch.setattr(members, "MAX_RATIO", (2 * 1024**2) // size + 1)
    assert len(members.zip_members(path)) == 3
    monkeypatch.setattr(members, "MAX_RATIO", (2 * 1024**2 - 1) // size)
    assert "unpacks to more than" in refusal_of(path).message
    monkeypatch.undo()

    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress((b'{"text": "' + b"a" * 1_000_000 + b'"}\n') * 40))
    assert "unpacks to more than 100 times its size" in refusal_of(packed).message

    write_zip(path, {"inner.zip": write_zip(tmp_path / "inner.zip", {"a.jsonl": JSONL}).read_bytes()})
    assert "no file that can be read. The files are: inner.zip" in refusal_of(path).message

    locked = bytearray(write_zip(path, {"a.jsonl": JSONL}).read_bytes())
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(locked))
    assert "is locked by a password" in refusal_of(path).message

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jsonl", JSONL)
        archive.writestr("A.jsonl", JSONL)
    assert "two files of the same name" in refusal_of(path).message


def test_an_archive_of_too_many_files_and_a_damaged_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_zip(tmp_path / "a.zip", {"a.jsonl": JSONL, "b.jsonl": JSONL})
    monkeypatch.setattr(members, "MAX_ENTRIES", 1)
    assert "more than 1 files" in refusal_of(path).message
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    assert "the ZIP archive is damaged" in refusal_of(path).message
    monkeypatch.undo()
    broken = bytearray(whole)
    broken[40] ^= 0xFF
    path.write_bytes(bytes(broken))
    assert f"{path}/a.jsonl" in refusal_of(path).message


@pytest.mark.parametrize("write", [ipc.new_file, ipc.new_stream])
def test_arrow_files_and_streams_are_read_and_damage_is_named(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "a.arrow"
    with write(path, table().schema) as writer:
        writer.write_table(table())
    assert read(path)[:2] == ([f"{path}, row {number}" for number in (1, 2, 3)], ANSWERS)
    path.write_bytes(path.read_bytes()[:200])
    assert "row 1: the Arrow file is damaged" in refusal_of(path).message


def test_what_datasets_saved_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(PAIRS)
    rows.save_to_disk(tmp_path / "one")
    assert read(tmp_path / "one")[1] == ANSWERS
    datasets.DatasetDict({"test": rows, "train": rows}).save_to_disk(tmp_path / "two")
    _, said, source = read(tmp_path / "two")
    assert said == ANSWERS
    assert source.notes["dataset-parts-unread"].endswith("has splits that are not read: test.")
    (tmp_path / "one" / "state.json").write_text('{"_data_files": [{"filename": "../two/x.arrow"}]}')
    assert "no tables are listed" in refusal_of(tmp_path / "one").message
    (tmp_path / "two" / "dataset_dict.json").write_text('{"splits": 5}')
    assert "no splits are listed" in refusal_of(tmp_path / "two").message
    (tmp_path / "two" / "dataset_dict.json").write_text("[]")
    assert "not an object" in refusal_of(tmp_path / "two").message


@pytest.mark.parametrize("names", [("train", "test"), ("test", "train", "Validation")])
def test_of_an_object_of_splits_the_rows_for_training_are_read(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({name: [{"text": f"{name} {number}"} for number in (1, 2)] for name in names}))
    _, said, source = read(path)
    assert said == ["train 1", "train 2"]
    others = ", ".join(f'"{name}"' for name in names if name != "train")
    assert source.notes["dataset-parts-unread"].endswith(f"which are not read: {others}.")


def test_the_readable_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for name, content in {
        "b/a.csv": CSV.encode(),
        "a.jsonl.gz": gzip.compress(JSONL.encode()),
        "c.txt": b"Some text.\n",
        "README.md": b"# About\n",
        "dataset_info.json": b'{"a": 1}',
        "x.bin": b"\0\1\2",
        "z.zip": write_zip(tmp_path / "z.zip", {"a.jsonl": JSONL}).read_bytes(),
        ".hidden/a.jsonl": b"nonsense",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    places, said, source = read(folder)
    assert said == [*ANSWERS, *ANSWERS, "Some text."]
    expected = [f"{folder / 'a.jsonl.gz'}, line 1", f"{folder / 'b/a.csv'}, line 2", f"{folder / 'c.txt'}, line 1"]
    assert places[::3] == expected
    note = source.notes["dataset-parts-unread"]
    assert note.startswith(f"{folder} has files that are not read (4): x.bin, z.zip, ")
    assert all(name in note for name in ("README.md", "dataset_info.json"))


def test_a_folder_of_nothing_and_a_damaged_file_in_one_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    assert "The files are: none" in refusal_of(folder).message
    (folder / "a.xlsx").write_bytes(b"PK\x03\x04 nothing more")
    assert f"{folder / 'a.xlsx'}: the workbook " in refusal_of(folder).message


def test_files_of_a_folder_that_can_not_be_read_are_left_out_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for name, content in {
        "a.txt": b"Some text.\n",
        "broken.pdf": b"%PDF-1.7 nothing more",
        "empty.txt": b"",
        "blank.md": b"\n\n",
        "fake.pdf": b"No PDF.\n",
        "z.txt": b"More text.\n",
    }.items():
        (folder / name).write_bytes(content)
    _, said, source = read(folder)
    assert said == ["Some text.", "More text."]
    note = source.notes["dataset-parts-unread"]
    assert f"{folder / 'empty.txt'}: the file is empty. The file is left out." in note
    for name, reason in (("broken.pdf", "damaged"), ("blank.md", "no rows"), ("fake.pdf", 'ends in ".pdf"')):
        assert reason in note.partition(f"{folder / name}: ")[2].partition("left out.")[0]
    for name in ("a.txt", "z.txt"):
        (folder / name).unlink()
    assert refusal_of(folder).message == f"{folder / 'blank.md'}: the file has no rows."
    # Which encoding it has is for the person to say.
    (folder / "a.txt").write_text("Some text.\n")
    (folder / "b.txt").write_bytes("\xfcber".encode("latin-1"))
    assert refusal_of(folder).code == "dataset-encoding"


def test_a_sheet_can_be_chosen(tmp_path: Path) -> None:
    sheets = {"First": [["text"], ["one"]], "Data": [["text"], ["two"]], "Empty": []}
    path = write_workbook(tmp_path / "a.xlsx", sheets, hidden=["Data"])
    assert read(path, sheet="Data")[1] == ["two"]
    assert 'there is no sheet "Dato". It has: "First"' in refusal_of(path, sheet="Dato").message
    assert refusal_of(path, sheet="Empty").code == "dataset-empty"


@pytest.fixture
def several(tiny_spec: MakeSpec, tmp_path: Path) -> RunSpec:
    spec = tiny_spec()
    paths = [tmp_path / "one.jsonl", tmp_path / "two.csv", write_zip(tmp_path / "three.zip", {"a.jsonl": JSONL})]
    paths[0].write_text(JSONL)
    paths[1].write_text(CSV)
    spec.data.sources = [SourceSpec(path=str(path)) for path in paths]
    return spec


def test_notes_of_several_files_are_said_once_and_of_three_at_most() -> None:
    said = ["one", "one", "two", "three", "four"]
    assert _together({"odd": words} for words in said) == {"odd": joined(["one", "two", "three"])}
    assert _together([{"odd": "one"}, {"odd": "one"}, {"other": "two"}]) == {"odd": "one", "other": "two"}


def test_several_files_are_previewed_and_prepared_together(several: RunSpec, tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    shown = preview(several, tokenizer, 6)
    assert shown["num_rows"] == 9
    first, second, third = (source.path for source in several.data.sources)
    assert [row["place"] for row in shown["rows"]] == [
        f"{first}, line 1",
        f"{first}, line 2",
        f"{second}, line 2",
        f"{second}, line 3",
        f"{third}/a.jsonl, line 1",
        f"{third}/a.jsonl, line 2",
    ]
    assert prepare(several, tokenizer).stats.num_train_rows == 9


def test_a_run_trains_on_a_folder_and_says_what_is_not_read(
    tiny_spec: MakeSpec, new_run: Callable[[RunSpec], Run], tmp_path: Path
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.jsonl").write_text(JSONL)
    (folder / "b.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (folder / "c.bin").write_bytes(b"\0\1")
    run = new_run(tiny_spec(data={"path": str(folder)}, schedule={"max_steps": 1}))
    assert train(run) == 0
    warnings = [event.data for event in events(run, "warning") if event.data["code"] == "dataset-parts-unread"]
    assert [each["message"] for each in warnings] == [f"{folder} has files that are not read (1): c.bin."]
