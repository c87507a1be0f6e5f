"""What plan and preview say of how prompts and responses are trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.finished_runs import finish, trained
from tunesmith_core import cli, cli_specs
from tunesmith_core.datafmt.formats import RAW, RAW_TEXT
from tunesmith_core.datafmt.sniffing import Sniffed
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.hardware import Hardware
from tunesmith_core.measured import Time
from tunesmith_core.planner import Plan
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec

Make = Callable[..., RunSpec]
Script = Callable[[dict[str, Any]], None]

PLAN = Plan({"weights": 1 << 30}, 1 << 30, 1 << 29, 2 << 30, "tight", 10, None, 1 << 20, "low", ())


@pytest.fixture
def spec_file(tmp_path: Path, make_spec: Make, fake_engine: Script) -> str:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(make_spec().to_dict()))
    return str(path)


def test_plan_warns_of_plain_text_for_a_model_with_a_template(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: PLAN)
    rows = tmp_path / "pairs.csv"
    rows.write_text("question,answer\nWho?,Me.\n")
    spec, path = make_spec(), tmp_path / "raw.json"
    spec.data.sources[0].path, spec.evaluation.percent = str(rows), 0.0
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    assert "plain text" not in capsys.readouterr().err
    spec.data.sources[0].format = RAW
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    assert "joined as plain text" in capsys.readouterr().err
    assert cli.main(["plan", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == [RAW_TEXT]
    (Path(spec.model.path) / "tokenizer_config.json").write_text("{}")
    assert cli.main(["plan", str(path)]) == 0
    assert "plain text" not in capsys.readouterr().err


def test_plan_reads_a_file_as_data_check_does_and_advises_what_can_be_typed(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: PLAN)
    rows = tmp_path / "western.csv"
    rows.write_bytes("question,answer\nWo ist er?,In München\n".encode("windows-1252"))
    spec, path = make_spec(), tmp_path / "spec.json"
    spec.data.sources[0].path = str(rows)
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    assert "It is read as Windows-1252" in capsys.readouterr().err
    rows.write_bytes("links,rechts\nWo ist er?,In München\n".encode("windows-1252"))
    assert cli.main(["plan", str(path)]) == 2
    err = capsys.readouterr().err
    assert 'data.sources[0].columns, for example {"prompt": "links", "completion": "rechts"}' in err
    assert "Map the columns" not in err


def test_the_encoding_of_a_file_in_an_archive_is_a_field_of_the_spec(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, path = make_spec(), tmp_path / "spec.json"
    path.write_text(json.dumps(spec.to_dict()))

    def fail(_spec: RunSpec) -> None:
        raise TunesmithError("dataset-encoding", "a.csv: not UTF-8.", actions=["read-as-cp932"])

    monkeypatch.setattr(cli_specs.preflight, "check_rows", fail)
    assert cli.main(["plan", str(path)]) == 2
    err = capsys.readouterr().err
    assert 'hint: Write into the spec: data.sources[0].encoding, for example "cp932"' in err
    assert "Text encoding" not in err


def test_an_encoding_that_was_chosen_and_a_template_that_is_unclear_are_left_to_the_spec(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, path = make_spec(), tmp_path / "spec.json"
    spec.data.sources[0].encoding = "windows-1252"
    path.write_text(json.dumps(spec.to_dict()))
    checked: list[str] = []

    def fail(spec: RunSpec) -> None:
        checked.append(spec.data.sources[0].encoding)
        raise TunesmithError("chat-template-unclear", "It answers twice.")

    monkeypatch.setattr(cli_specs.preflight, "check_rows", fail)
    assert cli.main(["plan", str(path)]) == 2
    assert checked == ["windows-1252"]
    assert "hint: Choose a model with another chat template." in capsys.readouterr().err


def test_plan_refuses_a_group_column_that_is_not_there(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, path = make_spec(), tmp_path / "spec.json"
    spec.evaluation.group_column = "nosuch"
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 2
    assert 'there is no column "nosuch"' in capsys.readouterr().err


def test_plan_refuses_what_a_run_refuses_in_the_rows(make_spec: Make, capsys: pytest.CaptureFixture[str]) -> None:
    spec = make_spec("run")
    path = Path(spec.data.sources[0].path)
    path.write_text('{"messages": [{"role": "robot", "content": "x"}]}\n', encoding="utf-8")
    place = path.with_name("spec.json")
    place.write_text(json.dumps(spec.to_dict()), encoding="utf-8")
    assert cli.main(["plan", str(place)]) == 2
    assert "line 1" in capsys.readouterr().err


@pytest.mark.parametrize(("warmup", "is_told"), [(0, False), (9, False), (10, True), (11, True)])
def test_plan_warns_of_a_warm_up_that_never_ends(
    make_spec: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    warmup: int,
    is_told: bool,
) -> None:
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: PLAN)
    spec, path = make_spec(), tmp_path / "spec.json"
    spec.schedule.warmup_steps = warmup
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    assert (f"The warm-up has {warmup} steps and the run 10" in capsys.readouterr().err) == is_told


@pytest.mark.parametrize(
    ("steps", "seconds", "words"),
    [
        (10, (60, 90), "Time: 1 min 00 s to 1 min 30 s for the steps, without loading, evaluation and saving\n"),
        (10, None, "Time: not known yet, because no run like this one has finished on this device."),
        (None, None, "Time: not known, because the number of rows is not."),
    ],
)
def test_plan_tells_the_time_or_why_there_is_none(
    spec_file: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    steps: int | None,
    seconds: tuple[int, int] | None,
    words: str,
) -> None:
    told = replace(PLAN, total_steps=steps, seconds=seconds)
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: told)
    assert cli.main(["plan", spec_file]) == 0
    out = capsys.readouterr().out
    assert words in out
    assert ("Steps:" in out) == (steps is not None)


def test_plan_tells_the_whole_time_of_a_run_that_was_made_before(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = Hardware("cpu", "x86", 1 << 34, 1 << 33, 1 << 34, 1 << 33)
    monkeypatch.setattr(cli_specs, "detect_hardware", lambda: [cpu])
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **__: replace(PLAN, seconds=(60, 90)))
    spec, path = make_spec(), tmp_path / "spec.json"
    finish(spec)
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    assert "Time: 1 min 00 s to 1 min 30 s\n" in capsys.readouterr().out


def test_plan_says_by_which_run_it_tells_the_time(
    make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []

    def plan(*_: object, step_s: float | None, other_s: float | None, **__: object) -> Plan:
        given.extend((step_s, other_s))
        return replace(PLAN, seconds=(60, 90))

    cpu = Hardware("cpu", "x86", 1 << 34, 1 << 33, 1 << 34, 1 << 33)
    monkeypatch.setattr(cli_specs, "detect_hardware", lambda: [cpu])
    monkeypatch.setattr(cli_specs.planner, "plan", plan)
    spec, path = make_spec("earlier"), tmp_path / "spec.json"
    trained(spec)
    spec.optimizer.learning_rate, spec.name = 1e-5, "mine"
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    assert 'Time: 1 min 00 s to 1 min 30 s, by the run "earlier" with the same model and method' in out
    assert given == [1.5, 8.0], "the three rows of the data, not the eight of a step"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [((1, 1), "Time: about 1 s"), ((3601, 3620), "Time: about 1 h 00 min"), ((1, 2), "Time: 1 s to 2 s")],
)
def test_a_time_whose_ends_read_alike_is_said_once(seconds: tuple[int, int], words: str) -> None:
    assert cli_specs._time(replace(PLAN, total_steps=3, seconds=seconds), Time(1.0, 1.0)) == words


def test_plan_counts_the_rows_that_are_used(
    make_spec: Make,
    tmp_path: Path,
    fake_engine: Script,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int | None] = []

    def counting(*_: object, num_rows: int | None, **__: object) -> Plan:
        told.append(num_rows)
        return PLAN

    monkeypatch.setattr(cli_specs.planner, "plan", counting)
    spec, path = make_spec(), tmp_path / "spec.json"
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n' * 30)
    spec.data.sources = [SourceSpec(path=str(rows)), SourceSpec(path=str(rows), most_rows=12)]
    path.write_text(json.dumps(spec.to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    monkeypatch.setattr(cli_specs.datafmt, "sniff", lambda *_, **__: Sniffed("xlsx", "auto", (), {}, None, 9))
    # Libraries count the rows of a workbook, unless there are many or they are missing.
    for rows_of_workbook in (20, None):
        fake_engine({"workbook-head": {"num_rows": rows_of_workbook}, "preview": {"is_complete": False}})
        assert cli.main(["plan", str(path)]) == 0
    fake_engine({"workbook-head": {"error": TunesmithError("dataset-empty", "No rows.").to_dict()}})
    assert cli.main(["plan", str(path)]) == 0
    assert told == [42, 32, None, None]
    capsys.readouterr()


def test_preview_lists_tokens_and_says_that_pairs_are_chats(
    make_spec: Make, tmp_path: Path, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = [
        {"id": 1, "text": "<|im_start|>", "trained": False, "special": "<|im_start|>"},
        {"id": 40, "text": "A\n", "trained": True, "special": ""},
    ]
    segments = [{"text": "<|im_start|>", "trained": False}, {"text": "A\n", "trained": True}]
    row = {"line": 1, "segments": segments, "num_tokens": 2, "num_trained_tokens": 1, "tokens": tokens}
    fake_engine({"preview": {"rows": [row], "pairs": "chat"}})
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(make_spec().to_dict()))
    assert cli.main(["preview", str(path), "--tokens"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "number  token           trained  control token",
        '1       "<|im_start|>"           <|im_start|>',
        '40      "A\\n"           yes',
        "Prompts and responses are trained as chats, by the chat template of the model.",
    ]


def test_preview_names_the_file_of_a_row_where_there_are_several(
    make_spec: Make, tmp_path: Path, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"line": 10, "place": "/d/b.jsonl, line 10", "segments": [], "num_tokens": 2, "num_trained_tokens": 1}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(make_spec().to_dict()))
    for reasons, words in ((["Text."], "--- line 10:"), (["Text.", "Text."], "--- /d/b.jsonl, line 10:")):
        fake_engine({"preview": {"rows": [row], "reasons": reasons}})
        assert cli.main(["preview", str(path)]) == 0
        assert capsys.readouterr().out.startswith(words)


LOOKED = {"is_complete": True, "num_rows": 3, "num_untrained": 0, "num_tokens": 27, "longest_tokens": 90}
LOOKED |= {"notes": ["Rows cut: 3 of 3."]}


def test_plan_tells_how_many_rows_are_cut(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(cli_specs.planner, "plan", lambda *_, **named: given.update(named) or PLAN)
    fake_engine({"preview": LOOKED})
    assert cli.main(["plan", spec_file]) == 0
    shown = capsys.readouterr()
    assert "Rows cut: 3 of 3." in shown.err
    assert "The run fits, but only just." in shown.out
    assert given["longest_tokens"] == 90


@pytest.mark.parametrize(
    ("reason", "code", "words"),
    [
        ("too_long", "spec-invalid", "supports only 64."),
        ("nothing_left", "no-trained-tokens", "Nothing would be learned"),
        ("nothing_left", "dataset-empty", "every row is longer"),
        ("unknown_token", "model-files-missing-or-corrupt", "the model knows only 16 tokens"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_plan_refuses_rows_that_would_stop_the_run(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str], reason: str, code: str, words: str,
    options: list[str],
) -> None:
    problem = UserError(code, words)
    fake_engine({"preview": LOOKED | {reason: problem.to_dict()}})
    assert cli.main(["plan", spec_file, *options]) == 2
    shown = capsys.readouterr()
    assert words in shown.out + shown.err
    assert "fits" not in shown.out + shown.err


def test_plan_refuses_a_model_that_lacks_weights(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = UserError("model-files-missing-or-corrupt", "9 weights are missing, such as a.weight.")
    fake_engine({"preview": LOOKED, "check-model": {"error": problem.to_dict()}})
    assert cli.main(["plan", spec_file]) == 2
    shown = capsys.readouterr()
    assert (shown.out, "9 weights are missing" in shown.err) == ("", True)
    # What keeps it from being looked at is no fault of the model.
    fake_engine({"preview": LOOKED, "check-model": {"error": TunesmithError("disk-full", "full").to_dict()}})
    assert cli.main(["plan", spec_file]) == 0
    assert "The run fits" in capsys.readouterr().out


def test_plan_refuses_rows_that_do_not_become_tokens(
    spec_file: str, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_engine({"preview": {"error": UserError("dataset-chat-template-missing", "no template").to_dict()}})
    assert cli.main(["plan", spec_file]) == 2
    shown_too = capsys.readouterr()
    assert (shown_too.out, "no template" in shown_too.err) == ("", True)


def test_plan_counts_examples_of_texts_that_are_split_and_a_replay_share(
    make_spec: Make, tmp_path: Path, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, path = make_spec(), tmp_path / "spec.json"
    for name, num in (("long", 5), ("replay", 28)):
        (tmp_path / name).write_text('{"text": "a"}\n' * num)
    spec.data.sources = [
        SourceSpec(path=str(tmp_path / "long")), SourceSpec(path=str(tmp_path / "replay"), replay=10.0)
    ]
    spec.evaluation.percent, spec.schedule.max_steps, spec.schedule.epochs = 0.0, 0, 1.0
    spec.schedule.micro_batch_size = spec.schedule.gradient_accumulation_steps = 1
    path.write_text(json.dumps(spec.to_dict()))
    fake_engine({"preview": LOOKED | {"rows_looked_at": [5, 28], "rows_used": [14, 28], "num_rows": 42}})
    assert cli.main(["plan", str(path)]) == 0
    assert "Steps: 16\n" in capsys.readouterr().out, "14 of the texts, 2 of the 28 rows"
    fake_engine({"preview": LOOKED | {"rows_looked_at": [5, 28], "rows_used": [14, 28], "is_complete": False}})
    assert cli.main(["plan", str(path)]) == 0
    assert "Steps: about 16\n" in capsys.readouterr().out, "not all rows were looked at"


def test_plan_counts_held_out_rows_and_steps_without_rows_that_are_left_out(
    make_spec: Make, tmp_path: Path, fake_engine: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, path = make_spec(), tmp_path / "spec.json"
    (tmp_path / "rows").write_text('{"text": "a"}\n' * 80)
    spec.data.sources, spec.evaluation.percent = [SourceSpec(path=str(tmp_path / "rows"))], 8.0
    spec.schedule.max_steps, spec.schedule.epochs, spec.schedule.micro_batch_size = 0, 1.0, 2
    spec.schedule.gradient_accumulation_steps = 1
    path.write_text(json.dumps(spec.to_dict()))
    looked = LOOKED | {"rows_looked_at": [80], "rows_used": [56], "num_rows": 80}
    fake_engine({"preview": looked})
    assert cli.main(["plan", str(path)]) == 0
    shown = capsys.readouterr()
    assert "Steps: 26\n" in shown.out
    assert "Held-out rows: 4 of 56." in shown.err
    assert "Hold out 11% or more." in shown.err
    fake_engine({"preview": looked | {"is_complete": False}})
    assert cli.main(["plan", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["are_rows_counted"] is False
    assert any(note.startswith("Held-out rows: about ") for note in told["notes"]), told["notes"]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("dpo", '{"prompt": "Question", "chosen": "Better answer", "rejected": "Worse answer"}'),
        ("classify", '{"text": "question", "class": "answer"}'),
    ],
)
def test_the_columns_that_a_hint_names_are_those_of_the_method(
    kind: str, columns: str, make_spec: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = make_spec().to_dict()
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "Who?", "answer": "Me."}\n' * 20)
    values["data"]["sources"] = [{"path": str(rows)} | ({"format": "labeled"} if kind == "classify" else {})]
    values["objective"] = {"kind": kind}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(values))
    assert cli.main(["plan", str(path)]) == 2
    assert f"data.sources[0].columns, for example {columns}" in capsys.readouterr().err
