"""`tunesmith data`: what a check found in plain sentences with file, line and column; what was written; the library."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import cli, cli_sources, data_library, terminal
from tunesmith_core.cli_data import what_is_done
from tunesmith_core.datafmt import resolve_layout
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.data import CHECK_DATA, CheckDataSpec, EditedRows, MixDataSpec, SaveDataSpec
from tunesmith_core.plain_text import pasted
from tunesmith_core.protocol import Event
from tunesmith_core.spec import RunSpec

Script = Callable[[dict[str, Any]], None]
Capture = pytest.CaptureFixture[str]

ROW = {"path": "/a/rows.jsonl", "line": 3, "column": 9, "message": "an email address.", "row": {}}
PROBLEM = {
    "rule": "personal-data",
    "severity": "note",
    "count": 2,
    "action": "keep",
    "actions": ["keep"],
    "title": "Probable personal data",
    "rows": [ROW, {**ROW, "line": 4, "column": None}],
}
FOUND = {
    "num_rows": 1234,
    "num_left_out_rows": 0,
    "num_good_rows": 1230,
    "num_problem_rows": 7,
    "formats": {"/a/rows.jsonl": "text"},
    "reasons": {"/a/rows.jsonl": "It is plain text."},
    "problems": [PROBLEM],
    "languages": {"en": 99, "xy": 1},
    "notes": ["Only some rows."],
}


@pytest.fixture
def said(capsys: Capture) -> Callable[..., tuple[int, str, str]]:
    """Run a command of `tunesmith data` and return exit code, output and notes."""

    def run(*words: str) -> tuple[int, str, str]:
        code = cli.main(["data", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


Said = Callable[..., tuple[int, str, str]]


def test_a_check_names_each_place(fake_engine: Script, data_file: Path, said: Said) -> None:
    fake_engine({"check-data": FOUND})
    code, out, err = said("check", str(data_file))
    assert code == 0
    assert "/a/rows.jsonl: It is plain text." in out
    assert "1,234 rows. 1,230 can be trained on (3 of them with a remark), 4 can't." in out
    assert "Note: Probable personal data (2). These rows are kept." in out
    assert "  /a/rows.jsonl:3:9: an email address.\n  /a/rows.jsonl:4: an email address." in out
    assert "Languages: English 99%, xy 1%" in out
    assert "Only some rows." in err
    fake_engine({"check-data": {**FOUND, "num_rows": 1, "num_good_rows": 1, "num_problem_rows": 0}})
    found = said("check", str(data_file), "--objective", "kto")[1]
    assert "\n1 row. 1 can be trained on (0 of them with a remark), 0 can't.\n" in found
    _, out, _ = said("check", str(data_file), "--rows", "1")
    assert "rows.jsonl:4" not in out


@pytest.mark.parametrize(
    ("severity", "rule", "action", "words"),
    [
        ("warning", "exact-duplicate", "skip", "A run keeps these rows; a repaired copy leaves them out."),
        ("warning", "secret", "repair", "A run keeps it; a repaired copy replaces it."),
        ("warning", "over-long", "drop", "These rows are left out."),
        ("warning", "unlearned", "drop", "These rows are left out."),
        ("error", "bad-json", "skip", "These rows are left out."),
        ("note", "personal-data", "keep", "These rows are kept."),
    ],
)
def test_what_only_a_copy_does_is_never_promised_of_a_run(severity: str, rule: str, action: str, words: str) -> None:
    assert str(what_is_done({"severity": severity, "rule": rule, "action": action})) == words


def test_a_path_is_said_once(fake_engine: Script, data_file: Path, said: Said) -> None:
    words = "/a/gone.jsonl: the file can't be read."
    row = {**ROW, "path": "/a/gone.jsonl", "line": 0, "column": None, "message": words}
    found = {**FOUND, "formats": {}, "reasons": {"/a/gone.jsonl": words}, "problems": [{**PROBLEM, "rows": [row]}]}
    fake_engine({"check-data": found})
    assert said("check", str(data_file))[1].count("/a/gone.jsonl") == 1
    assert said("check", str(data_file), "--rows", "0")[1].count("/a/gone.jsonl") == 1


def test_a_context_length_counts_for_nothing_without_a_tokenizer(data_file: Path, said: Said) -> None:
    code, out, told = said("check", str(data_file), "--context-length", "64")
    assert (code, out) == (2, "")
    assert "--context-length needs --model" in told


def test_errors_are_bad_input_and_json_is_the_answer(fake_engine: Script, data_file: Path, said: Said) -> None:
    bad = {**FOUND, "problems": [{**PROBLEM, "severity": "error", "action": "stop"}]}
    fake_engine({"check-data": bad})
    code, out, _ = said("check", str(data_file), "--json")
    assert (code, json.loads(out)["problems"][0]["action"]) == (2, "stop")
    assert "Error: Probable personal data (2). A run stops there." in said("check", str(data_file))[1]
    fake_engine({"check-data": {**FOUND, "problems": [], "notes": [], "languages": {}}})
    assert said("check", str(data_file))[1].endswith("No problems found.\n")


def test_what_is_checked_is_what_was_named(
    home: Path, data_file: Path, model_folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[Any] = []

    class Answer:
        def get(self) -> dict[str, Any]:
            return {**FOUND, "files": {"/out": 1}, "num_skipped_rows": 0}

    def conduct(_kind: object, spec: Any, **_: Any) -> Answer:
        specs.append(spec)
        return Answer()

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", conduct)
    monkeypatch.chdir(data_file.parent)
    Path("held.jsonl").touch()
    data_library.add("mine", [RunSpec().data.sources[0].__class__(path=str(data_file), format="messages")])
    said(
        "check",
        "data.jsonl",
        "mine",
        "--evaluation",
        "held.jsonl",
        "--model",
        str(model_folder),
        "--context-length",
        "99",
    )
    (spec,) = specs
    assert [each.path for each in spec.run.data.sources] == [str(data_file), str(data_file)]
    assert [each.format for each in spec.run.data.sources] == ["auto", "messages"]
    assert spec.run.evaluation.path == str(data_file.parent / "held.jsonl")
    assert (spec.run.data.context_length, spec.folder) == (99, str(model_folder))
    said("split", "data.jsonl", "--to", "a.jsonl", "--evaluation", "b.jsonl", "--count", "7", "--column", "group")
    assert (specs[-1].percent, specs[-1].count, specs[-1].column) == (0.0, 7, "group")
    assert (specs[-1].train, specs[-1].evaluation) == (
        str(data_file.parent / "a.jsonl"),
        str(data_file.parent / "b.jsonl"),
    )
    said("split", "data.jsonl", "--to", "a.jsonl", "--evaluation", "b.jsonl")
    assert (specs[-1].percent, specs[-1].count) == (5.0, 0)
    said("mix", "data.jsonl", "mine", "--to", "m.jsonl", "--weights", "2", "1", "--caps", "0", "5", "--seed", "3")
    assert specs[-1] == MixDataSpec(specs[-1].run, specs[-1].target, [2.0, 1.0], [0, 5], 0, 3)
    said("convert", "data.jsonl", "--to", "c.csv", "--messages")
    assert (specs[-1].target, specs[-1].as_messages) == (str(data_file.parent / "c.csv"), True)
    assert specs[-1].run.data.sources[0].sheet == ""
    for command in (["check"], ["show", "--model", str(model_folder)], ["convert", "--to", "c.csv"]):
        said(*command, "data.jsonl", "--sheet", "More")
        assert specs[-1].run.data.sources[0].sheet == "More"
    assert not any(getattr(spec, "overwrite", False) for spec in specs)
    said("convert", "data.jsonl", "--to", "c.csv", "--overwrite")
    assert specs[-1].overwrite
    assert home.is_dir()


def test_files_are_read_as_chosen_or_as_their_bytes_say(
    home: Path, tmp_path: Path, data_file: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[Any] = []

    class Answer:
        def get(self) -> dict[str, Any]:
            return {"files": {}, "num_skipped_rows": 0}

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", lambda _kind, spec, **_: specs.append(spec) or Answer())
    western = tmp_path / "western.csv"
    western.write_bytes("Frage,Antwort\nWo?,In M\u00fcnchen \u20ac\n".encode("windows-1252"))
    book = tmp_path / "book.zip"
    book.write_bytes(b"PK\x03\x04\xe9\xe9")
    names = ["convert", str(western), str(data_file), str(book), "--to", "out.jsonl"]
    _, _, err = said(*names)
    assert [each.encoding for each in specs[-1].run.data.sources] == ["windows-1252", "utf-8", "utf-8"]
    assert err.count("is read as") == 1
    assert "western.csv is not UTF-8. It is read as Windows-1252 (Western European)." in err
    options = ["--encoding", "cp932", "--format", "prompt-completion", "--columns", "prompt=Frage", "completion=A=B"]
    assert "is read as" not in said(*names, *options)[2]
    for source in specs[-1].run.data.sources:
        assert (source.encoding, source.format) == ("cp932", "prompt-completion")
        assert source.columns == {"prompt": "Frage", "completion": "A=B"}
    code, _, err = said(*names, "--columns", "prompt")
    assert (code, "prompt is not ROLE=COLUMN." in err) == (2, True)
    order = ["convert", "--to", "out.jsonl", "--columns", "prompt=Frage", "completion=A", str(data_file), str(western)]
    for words in (order, [*order, "--json"], ["convert", str(data_file), *order[1:6], str(western), "--json"]):
        assert said(*words)[0] == 0
        assert [each.path for each in specs[-1].run.data.sources] == [str(data_file), str(western)]
        assert specs[-1].run.data.sources[1].columns == {"prompt": "Frage", "completion": "A"}
    assert home.is_dir()


def test_a_hint_names_the_option(data_file: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TunesmithError("dataset-column-missing", "rows.csv: unrecognized format.", hint="Look at the window.")

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", fail)
    code, _, err = said("convert", str(data_file), "--to", "out.jsonl")
    assert (code, "--columns prompt=Question completion=Answer" in err, "window" in err) == (2, True, False)


def unrecognized() -> TunesmithError:
    rows = [{"Größe (m)": f"How tall is {name}?", "wert": f"{name} is tall."} for name in "abc"]
    with pytest.raises(TunesmithError) as caught:
        resolve_layout(rows, source="/a/odd.csv")
    return caught.value


EXAMPLE = pasted(["prompt=Größe (m)", "completion=wert"])


def test_columns_that_nobody_recognizes_are_named_by_an_option(
    data_file: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = unrecognized()
    row = {**ROW, "path": "/a/odd.csv", "line": 0, "column": None, "message": error.message}
    problem = {**PROBLEM, "severity": "error", "rule": "missing-column", "action": "stop"}
    reasons = {"/a/odd.csv": error.message}
    found = {**FOUND, "formats": {}, "reasons": reasons, "problems": [{**problem, "rows": [row]}]}

    class Answer:
        def get(self) -> dict[str, Any]:
            return found

    with monkeypatch.context() as patch:
        patch.setattr("tunesmith_core.cli_data.conduct", lambda *_, **__: Answer())
        out = said("check", str(data_file))[1]
    assert out.count("unrecognized format") == 1
    assert f"  Name the columns, for example: --columns {EXAMPLE}\n" in out

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", fail)
    err = said("convert", str(data_file), "--to", "out.jsonl")[2]
    assert f"--columns {EXAMPLE}" in err


def test_what_is_not_there_is_the_only_thing_that_is_told(
    tmp_path: Path, data_file: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunesmith_core.cli_data.conduct", lambda *_, **__: pytest.fail("There is nothing to check."))
    code, out, err = said("check", str(data_file), str(tmp_path / "gone.jsonl"))
    assert (code, out) == (2, "")
    assert said("check", str(data_file), "--evaluation", str(tmp_path / "gone.jsonl"))[:2] == (2, "")
    assert f"{tmp_path / 'gone.jsonl'}: the file can't be read: No such file or directory." in err


@pytest.mark.parametrize(
    ("code", "values", "hint", "in_spec"),
    [
        (
            "dataset-parse-error",
            {"sheets": '["Größe 1", "More"]'},
            'Write --sheet NAME, where NAME is one of these: "Größe 1", "More"',
            'data.sources[0].sheet, for example "Größe 1"',
        ),
        (
            "dataset-encoding",
            {"likely": "cp932"},
            "Name the encoding of the file: --encoding cp932",
            'data.sources[0].encoding, for example "cp932"',
        ),
    ],
)
def test_an_error_names_the_option_with_its_value(
    code: str,
    values: dict[str, str],
    hint: str,
    in_spec: str,
    tmp_path: Path,
    data_file: Path,
    said: Said,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def error() -> TunesmithError:
        return TunesmithError(
            code, "/a/odd.gz: no.", hint="Look at the window.", actions=("read-as-cp932",), **values
        )

    row = {**ROW, "path": "/a/odd.gz", "line": 0, "column": None, "message": error().message}
    found = {**FOUND, "num_rows": 0, "problems": [{**PROBLEM, "severity": "error", "action": "stop", "rows": [row]}]}

    class Answer:
        def get(self) -> dict[str, Any]:
            return found

    with monkeypatch.context() as patch:
        patch.setattr("tunesmith_core.cli_data.conduct", lambda *_, **__: Answer())
        out = said("check", str(data_file))[1]
    assert f"  {hint}\n" in out
    assert "can be trained on" not in out

    def fail(*_: object, **__: object) -> int:
        raise error()

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", fail)
    assert f"hint: {hint}\n" in said("convert", str(data_file), "--to", "out.jsonl")[2]
    spec = RunSpec()
    spec.model.path, spec.data.sources[0].path = "owner/model", str(data_file)
    (tmp_path / "spec.json").write_text(json.dumps(spec.to_dict()))
    with pytest.raises(TunesmithError) as caught:
        cli_sources.with_spec_hints(fail)(Namespace(spec=tmp_path / "spec.json"))
    assert in_spec in str(caught.value.hint)


def test_a_hint_fits_the_command(
    data_file: Path, model_folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(code: str, **values: str) -> None:
        def fail(*_: object, **__: object) -> None:
            raise TunesmithError(code, "No: {column}", **values)

        monkeypatch.setattr("tunesmith_core.cli_data.conduct", fail)

    fails("dataset-column-missing", column="nope")
    split = ("split", str(data_file), "--to", "a.jsonl", "--evaluation", "b.jsonl", "--column")
    err = said(*split, "nope")[2]
    assert ("with --column." in err, "--columns" in err) == (True, False)
    assert "--columns prompt=" in said(*split, "topic")[2]
    fails("chat-template-unclear", column="")
    err = said("show", str(data_file), "--model", str(model_folder))[2]
    assert ("another chat template" in err, "Loss on" in err) == (True, False)


def test_a_spec_survives_its_file() -> None:
    spec = CheckDataSpec(RunSpec(), "/model", EditedRows({"3": {"a": 1}}, AbsolutePath("/index")))
    assert CHECK_DATA.spec_from(json.loads(json.dumps(CHECK_DATA.spec_values(spec)))) == spec


def test_what_was_written_is_told(fake_engine: Script, data_file: Path, said: Said) -> None:
    answer = {"files": {"/out.csv": 1200}, "num_skipped_rows": 3}
    fake_engine({"convert-data": answer})
    code, out, err = said("convert", str(data_file), "--to", "/out.csv")
    assert (code, out.splitlines()[-1]) == (0, "Wrote 1,200 rows: /out.csv")
    assert "Rows that could not be read and were left out: 3" in err
    assert "without an answer" not in err
    assert json.loads(said("convert", str(data_file), "--to", "/out.csv", "--json")[1]) == answer
    fake_engine({"convert-data": {"files": {"/out.csv": 1}, "num_skipped_rows": 0}})
    assert said("convert", str(data_file), "--to", "/out.csv")[1].endswith("Wrote 1 row: /out.csv\n")
    fake_engine({"convert-data": {**answer, "num_skipped_rows": 0}})
    assert not said("convert", str(data_file), "--to", "/out.csv")[2]
    fake_engine({"mix-data": {**answer, "num_left_out_rows": 4, "are_chats": True, "lost_columns": {"rejected": 1200}}})
    err = said("mix", str(data_file), "--to", "/out.csv")[2]
    assert "Rows whose label is false or whose vote is a tie were left out: 4" in err
    assert "so every row was written as a chat of messages." in err
    assert 'left out of as many rows: "rejected" (1,200).' in err


def test_show_lists_tokens_of_rows(fake_engine: Script, data_file: Path, model_folder: Path, said: Said) -> None:
    token = {"id": 7, "text": "Hi", "trained": True, "special": ""}
    row = {"line": 1, "segments": [{"text": "Hi", "trained": True}], "num_tokens": 1, "num_trained_tokens": 1}
    fake_engine({"preview": {"rows": [{**row, "tokens": [token]}]}})
    code, out, _ = said("show", str(data_file), "--model", str(model_folder))
    assert code == 0
    assert "[[Hi]]" in out
    assert '7       "Hi"   yes' in out


def test_show_without_a_model_shows_rows_as_they_are_read(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "rows.jsonl"
    chat = {"messages": [{"role": "user", "content": "Hi\nthere"}, {"role": "assistant", "content": "Hello"}]}
    path.write_text(f'{json.dumps(chat)}\n{json.dumps({"odd": "Größe", "n": 3})}\n{{"broken\n', encoding="utf-8")
    code, out, err = said("show", str(path))
    assert code == 0
    assert out == "--- row 1\nuser: Hi\nthere\nassistant: Hello\n--- row 2\nodd: Größe\nn: 3\n"
    assert "--model MODEL" in err
    assert json.loads(said("show", str(path), "--rows", "1", "--json")[1]) == {str(path): [chat]}


def test_show_names_the_columns_that_are_not_used(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "quiz.jsonl"
    row = {"id": 7, "question": "Who is it?", "choices": ["It is me", "You"], "answer": 1}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    code, out, err = said("show", str(path))
    assert code == 0
    assert out == '--- row 1\nid: 7\nquestion: Who is it?\nchoices: ["It is me", "You"]\nanswer: 1\n'
    assert 'which of "choices" is right. Not used: id.\n' in err


def test_show_asks_the_engine_for_rows_of_a_workbook(fake_engine: Script, tmp_path: Path, said: Said) -> None:
    path = tmp_path / "rows.ods"
    path.write_bytes(b"PK\x03\x04rest")
    problem = TunesmithError("dataset-parse-error", "rows.ods: no workbook.").to_dict()
    fake_engine({"workbook-head": {"problem": problem, "rows": []}})
    code, _, err = said("show", str(path))
    assert code == 2
    assert "rows.ods: no workbook." in err
    fake_engine({"workbook-head": {"problem": None, "rows": [{"q": "Hi", "a": 3}]}})
    assert said("show", str(path))[:2] == (0, "--- row 1\nq: Hi\na: 3\n")
    notes = {"dataset-percentages-unknown": "5% is read as 0.05."}
    answer = {"problem": None, "rows": [{"q": "Hi"}], "sheet": "Data", "notes": notes}
    fake_engine({"workbook-head": answer})
    code, out, err = said("show", str(path))
    assert (code, out) == (0, f'{path}: sheet "Data"\n--- row 1\nq: Hi\n')
    assert "5% is read as 0.05.\n" in err


def test_what_became_of_rows_without_an_answer_is_told(fake_engine: Script, data_file: Path, said: Said) -> None:
    answer = {"files": {"/out.csv": 9}, "num_skipped_rows": 0}
    for name, words in (
        ("num_unanswered_left_out", "Rows without an answer were left out: 1,200\n"),
        ("num_unanswered_kept", "Rows without an answer were kept: 1,200. A run can't train on them.\n"),
    ):
        fake_engine({"convert-data": {**answer, name: 1200}})
        assert said("convert", str(data_file), "--to", "/out.csv")[2].endswith(words)


def test_a_mistyped_column_is_refused_where_rows_are_shown(tmp_path: Path, said: Said) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("Frage,Antwort\nWho?,Me.\n", encoding="utf-8")
    code, out, err = said("show", str(path), "--columns", "prompt=Fragen", "completion=Antwort")
    assert (code, out) == (2, "")
    assert f'{path}: there is no column "Fragen" (prompt). Its columns are: Frage, Antwort.' in err
    assert "hint: Name the columns, for example: --columns prompt=Frage completion=Antwort\n" in err


def test_show_of_an_unknown_model_says_so(home: Path, data_file: Path, said: Said) -> None:
    code, _, err = said("show", str(data_file), "--model", "nobody")
    assert code == 2
    assert "model-not-downloaded" in err
    assert home.is_dir()


def test_the_library_is_filled_listed_and_emptied(home: Path, data_file: Path, said: Said) -> None:
    assert said("list") == (0, "", "There are no data sets yet.\n")
    assert said("add", str(data_file), "--name", "mine")[1] == "mine is in the library, version 1.\n"
    added = json.loads(said("add", str(data_file), "--name", "more", "--json")[1])
    assert (added["format"], added["columns"], added["runs"]) == ("messages", ["messages"], [])
    out = said("list")[1].splitlines()
    assert out[1].split()[:6] == ["mine", "1", str(data_file.stat().st_size), "B", "messages", "1"]
    assert [each["name"] for each in json.loads(said("list", "--json")[1])] == ["mine", "more"]
    other = data_file.with_name("other.jsonl")
    other.write_bytes(data_file.read_bytes())
    code, _, err = said("add", str(other), "--name", "mine")
    assert (code, "dataset-name-taken" in err, '"mine-02", or add --overwrite' in err) == (2, True, True)
    replaced = json.loads(said("add", str(other), "--name", "mine", "--overwrite", "--json")[1])
    assert replaced["sources"][0]["path"] == str(other)
    said("add", str(data_file), "--name", "mine", "--overwrite")
    data_file.unlink()
    assert f"mine: the file {data_file} is missing." in said("list")[2]
    assert said("remove", "mine")[1] == "mine is no longer in the library. Its files are unchanged.\n"
    assert json.loads(said("remove", "more", "--json")[1]) == {"name": "more"}
    code, _, err = said("remove", "mine")
    assert (code, "dataset-unknown" in err) == (2, True)
    assert home.is_dir()


def test_a_result_stands_alone_on_standard_output(
    data_file: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer:
        def get(self) -> dict[str, Any]:
            return FOUND

    def conduct(*_: object, on_event: Callable[[Event], None]) -> Answer:
        on_event(Event(1, 0.0, "phase", {"name": "starting"}))
        return Answer()

    monkeypatch.setattr("tunesmith_core.cli_data.conduct", conduct)
    _, out, err = said("check", str(data_file))
    assert out.startswith("/a/rows.jsonl: It is plain text.\n")
    assert err.startswith("starting ...\n")
    _, out, err = said("check", str(data_file), "--json")
    assert (json.loads(out)["num_rows"], "starting" in err) == (1234, False)


def test_progress_tells_rows_and_time(capsys: Capture) -> None:
    progress = terminal.Progress()
    data = {"rows": 2000, "rows_per_s": 1500.2, "done_bytes": 1, "total_bytes": 2}
    progress.show(Event(1, 100.0, "progress", {**data, "remaining_s": 3.0}))
    progress.show(Event(2, 101.0, "progress", {**data, "remaining_s": 2.0}))
    progress.show(Event(3, 102.0, "progress", {**data, "remaining_s": 0.0}))
    of_run = {"name": "data", "done": 12_000, "total": 0, "unit": "rows", "rows_per_s": 800.0, "remaining_s": None}
    progress.show(Event(4, 103.0, "phase", of_run))
    progress.show(Event(5, 120.0, "phase", of_run))
    progress.close()
    said = ["2,000 rows  1,500 rows/s  3 s left", "2,000 rows  1,500 rows/s", "12,000 rows  800 rows/s"]
    assert capsys.readouterr().out.splitlines() == said


def test_a_copy_is_asked_for_with_what_a_person_changed(make_spec: Callable[..., RunSpec], tmp_path: Path) -> None:
    spec = SaveDataSpec(make_spec(), "", AbsolutePath(str(tmp_path / "copy.jsonl")), {"html": "repair"}, EditedRows())
    assert SaveDataSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
