"""RunSpec and declared fields: every wrong value is named with its place, every right one survives a round trip."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tunesmith_core import declared, spec_sections, spec_training
from tunesmith_core.declared import FieldProblem, read_section
from tunesmith_core.errors import UserError
from tunesmith_core.spec import RunSpec, idle_note, in_force, iter_settings, strength_of
from tunesmith_core.spec_problems import cross_problems

ABOVE_0 = 1e-300


def good() -> dict[str, Any]:
    spec = RunSpec(name="n")
    spec.model.path, spec.data.sources[0].path = "org/model", "data.jsonl"
    return spec.to_dict()


def problem_of(values: object) -> str:
    with pytest.raises(UserError) as caught:
        RunSpec.from_dict(values, "a.json")
    assert caught.value.code == "spec-invalid"
    return caught.value.message


@pytest.mark.parametrize(
    ("path", "default", "lowest", "highest"),
    [
        ("data.context_length", 2048, 8, 1_048_576),
        ("data.skip_bad_rows", False, None, None),
        ("adapter.rank", 16, 1, 4096),
        ("adapter.alpha", 32.0, ABOVE_0, None),
        ("adapter.dropout", 0.0, 0.0, 0.95),
        ("adapter.rslora", False, None, None),
        ("adapter.dora", False, None, None),
        ("optimizer.learning_rate", 2e-4, ABOVE_0, 1.0),
        ("optimizer.lora_plus_ratio", 1.0, 1.0, 1000.0),
        ("optimizer.embedding_rate", 0.2, ABOVE_0, 10.0),
        ("optimizer.weight_decay", 0.0, 0.0, 1.0),
        ("optimizer.beta1", 0.9, 0.0, 0.9999),
        ("optimizer.beta2", 0.999, 0.0, 0.999999),
        ("optimizer.epsilon", 1e-8, 1e-30, 1.0),
        ("optimizer.max_grad_norm", 1.0, 0.0, None),
        ("schedule.epochs", 3.0, ABOVE_0, 10_000.0),
        ("schedule.max_steps", 0, 0, 10_000_000),
        ("schedule.micro_batch_size", 2, 1, 4096),
        ("schedule.gradient_accumulation_steps", 4, 1, 4096),
        ("schedule.warmup_steps", None, 0, 10_000_000),
        ("schedule.seed", 42, 0, 2**31 - 1),
        ("schedule.shuffle", True, None, None),
        ("evaluation.percent", 5.0, 0.0, 50.0),
        ("evaluation.every_steps", 0, 0, 10_000_000),
        ("evaluation.early_stopping", 0, 0, 10_000_000),
        ("evaluation.sample_every_steps", 0, 0, 10_000_000),
        ("evaluation.sample_max_tokens", 64, 1, 4096),
        ("saving.every_minutes", 10.0, ABOVE_0, 1440.0),
        ("saving.every_steps", 0, 0, 10_000_000),
        ("saving.keep", 2, 2, 1000),
        ("hardware.kernels", True, None, None),
        ("hardware.fp8_weights", False, None, None),
        ("hardware.activation_checkpointing", False, None, None),
        ("hardware.cpu_threads", 0, 0, 1024),
    ],
)
def test_a_setting_has_its_default_and_takes_its_whole_range(
    path: str, default: float | None, lowest: float | None, highest: float | None
) -> None:
    setting = next(each for each in iter_settings() if each.path == path)
    assert setting.default == default

    def problem(value: float) -> str | None:
        return declared.value_problem(value, setting.declaration)

    step = 1e-6 if isinstance(default, float) else 1
    if lowest is not None:
        below, words = (0, "must be above 0") if lowest == ABOVE_0 else (lowest - step, "must be at least")
        assert problem(lowest) is None
        assert words in str(problem(below))
    if highest is not None:
        assert problem(highest) is None
        assert "must be at most" in str(problem(highest + step))
    elif not isinstance(default, bool):
        assert problem(10**15) is None


@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (12, 0), (19, 0), (20, 2), (49, 4), (50, 5), (9000, 5)])
def test_an_unset_warm_up_is_a_tenth_of_a_short_run(total: int, warmup: int) -> None:
    assert spec_training.ScheduleSpec().num_warmup_steps(total) == warmup
    assert spec_training.ScheduleSpec(warmup_steps=7).num_warmup_steps(total) == 7


def test_a_spec_survives_json() -> None:
    values = good()
    values["adapter"]["target_modules"] = ["q_proj"]
    values["data"]["sources"][0]["columns"] = {"text": "body"}
    spec = RunSpec.from_dict(json.loads(json.dumps(values)))
    assert spec.to_dict() == values
    assert spec.problems() == []


def test_a_short_spec_takes_the_defaults() -> None:
    spec = RunSpec.from_dict({"version": 1, "model": {"path": "m/n"}, "data": {"path": "d"}})
    assert spec.adapter == spec_sections.AdapterSpec()


@pytest.mark.parametrize(
    ("section", "name", "value", "words"),
    [
        ("adapter", "rank", 0, "adapter.rank must be at least 1"),
        ("adapter", "rank", 5000, "adapter.rank must be at most 4096"),
        ("adapter", "rank", 1.5, "adapter.rank must be a whole number, not 1.5"),
        ("adapter", "rank", True, "adapter.rank must be a whole number"),
        ("adapter", "alpha", 0, "adapter.alpha must be above 0"),
        ("adapter", "alpha", "1", "adapter.alpha must be a number"),
        ("adapter", "alpha", float("inf"), "adapter.alpha must be a finite number"),
        ("quantization", "kind", "int3", "quantization.kind must be one of none, nf4"),
        ("adapter", "target_modules", [1], "adapter.target_modules must be a text or a list of texts"),
        ("adapter", "target_modules", [], "adapter.target_modules must name at least one module"),
        ("adapter", "target_modules", "q_proj", 'adapter.target_modules must be "all-linear" or a list'),
        ("adapter", "rslora", 1, "adapter.rslora must be true or false"),
        ("data", "sources", [{"columns": {"text": 1}}], "data.sources[0].columns must be an object of texts"),
        ("data", "sources", [{"path": "a"}, {"path": None}], "data.sources[1].path must be a text"),
        ("data", "sources", [{"path": "a"}, {}], "data.sources[1].path is missing"),
        ("data", "sources", [], "data.sources must be a list of at least one"),
        ("data", "sources", {}, "data.sources must be a list of at least one"),
        ("hardware", "devices", [], "hardware.devices must name a device"),
        ("hardware", "devices", ["cuda:0", "cuda:1"], "hardware.devices must name one device. Several are not"),
        ("hardware", "devices", ["cuda:64"], "hardware.devices must be auto, cpu, cuda or cuda:1"),
        ("objective", "kind", "guess", "objective.kind must be one of classify, cpo, dpo, "),
        (
            "saving",
            "surprise",
            1,
            "saving.surprise is not a setting of this version. The settings here are: every_minutes, every_steps, keep",
        ),
        ("schedule", "batch_size", 4, "is not a setting of this version. Did you mean micro_batch_size?"),
        ("model", "path", " ", "model.path is missing"),
        ("data", "sources", [{"path": ""}], "data.sources[0].path is missing"),
        ("data", "sources", [{"path": "a", "weight": -1}], "data.sources[0].weight must be at least 0"),
        (
            "data",
            "sources",
            [{"path": "a", "weight": 2}, {"path": "b"}],
            "data.sources[0].weight has no effect: a is the only file with a weight",
        ),
        (
            "data",
            "sources",
            [{"path": "a"}, {"path": "b", "most_rows": 0}],
            "data.sources[1].most_rows must be at least 1, or empty for all rows of b",
        ),
        ("data", "sources", [{"path": "a", "most_rows": "x"}], "data.sources[0].most_rows must be a whole number or"),
        ("evaluation", "group_column", 3, "evaluation.group_column must be a text"),
    ],
)
def test_a_wrong_value_is_named(section: str, name: str, value: object, words: str) -> None:
    values = good()
    values[section][name] = value
    message = problem_of(values)
    assert message.startswith("a.json:")
    assert words in message


def test_a_spec_in_force_has_the_values_of_the_paper() -> None:
    spec = RunSpec()
    assert in_force(spec) is spec
    spec.objective.kind = "simpo"
    assert in_force(spec).objective.beta == 2.0
    spec.objective.kind, spec.objective.beta = "cpo", 0.3
    assert (in_force(spec).objective.beta, in_force(spec).objective.sft_weight) == (0.3, 1.0)
    assert spec.objective.sft_weight is None
    spec.objective.sft_weight = 0.0
    assert strength_of(spec) == (0.3, 0.0), "0 is none of it"
    spec.objective.beta = 0.0
    assert [problem.path for problem in cross_problems(spec) if "beta" in problem.path] == ["objective.beta"]


def test_all_wrong_values_are_named_at_once() -> None:
    values = good() | {"name": 1, "extra": {}, "version": 0, "saving": []}
    values["adapter"]["rank"] = 0
    message = problem_of(values)
    for words in (
        "name must be a text",
        "extra is not a section",
        "version must be 3, not 0",
        "saving must be an object",
    ):
        assert words in message
    assert "adapter.rank" in message
    assert problem_of([]) == "a.json:\n  the content must be a JSON object"


def test_orthogonal_initial_values_need_an_even_rank_and_16_bits() -> None:
    values = good()
    values["adapter"] |= {"initial_values": "orthogonal", "rank": 8}
    assert RunSpec.from_dict(values).problems() == []
    values["adapter"]["rank"] = 7
    assert "adapter.rank must be even" in problem_of(values)
    values["quantization"]["kind"] = "nf4"
    assert "adapter.initial_values can't be orthogonal beside frozen weights in 4 bits" in problem_of(values)


def test_early_stopping_needs_something_to_evaluate() -> None:
    values = good()
    values["evaluation"] |= {"early_stopping": 2, "percent": 0.0}
    assert "evaluation.early_stopping needs evaluation data" in problem_of(values)
    for enough in ({"early_stopping": 0}, {"percent": 1.0}, {"path": "held-out.jsonl"}):
        values["evaluation"] |= {"early_stopping": 2, "percent": 0.0, "path": ""} | enough
        assert RunSpec.from_dict(values, "a.json").problems() == []


def test_a_newer_version_is_refused_politely() -> None:
    with pytest.raises(UserError) as caught:
        RunSpec.from_dict({"version": 4})
    assert caught.value.code == "spec-too-new"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"version": 1,\n oops}', "line 2, column 2"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b'{"version": ' + b"1" * 5000 + b"}", "a number is too long"),
        (None, "No such file"),
    ],
)
def test_a_file_that_is_no_spec_is_named_with_its_place(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "spec.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        RunSpec.load(path)
    assert caught.value.code == "file-unreadable"
    assert str(path) in caught.value.message
    assert words in caught.value.message


def test_relative_paths_are_taken_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    values = good()
    values["model"]["path"] = "models"
    values["evaluation"]["path"] = "held-out.jsonl"
    (tmp_path / "spec.json").write_text(json.dumps(values), encoding="utf-8-sig")
    spec = RunSpec.load(tmp_path / "spec.json")
    assert spec.model.path == str(tmp_path / "models")
    assert spec.data.sources[0].path == str(tmp_path / "data.jsonl")
    assert spec.evaluation.path == str(tmp_path / "held-out.jsonl")
    values["model"]["path"] = "org/name"
    (tmp_path / "spec.json").write_text(json.dumps(values))
    assert RunSpec.load(tmp_path / "spec.json").model.path == "org/name"


def test_a_model_of_the_library_is_meant_by_its_name(tmp_path: Path, home: Path) -> None:
    (home / "models" / "tiny-chat").mkdir(parents=True)
    values, path = good(), tmp_path / "spec.json"

    def model(name: str) -> str:
        values["model"]["path"] = name
        path.write_text(json.dumps(values))
        return RunSpec.load(path).model.path

    assert model("tiny-chat") == str(home / "models" / "tiny-chat")
    assert model("other") == "other"
    assert model("n" * 300) == "n" * 300
    (tmp_path / "tiny-chat").mkdir()
    assert model("tiny-chat") == str(tmp_path / "tiny-chat"), "a folder beside the spec comes first"


def test_a_spec_from_before_weights_takes_every_row_once() -> None:
    values = good()
    for name in ("weight", "most_rows"):
        del values["data"]["sources"][0][name]
    del values["evaluation"]["group_column"]
    spec = RunSpec.from_dict(values)
    (source,) = spec.data.sources
    assert (source.weight, source.most_rows, spec.evaluation.group_column) == (0.0, None, "")
    assert source.num_used(7) == 7
    assert (source.examples_used(7, 21), source.examples_used(0, 0)) == (21, 0)
    assert spec == RunSpec.from_dict(good())


def test_the_smallest_numbers_for_a_file_are_taken() -> None:
    values = good()
    values["data"]["sources"] = [{"path": "a", "weight": 1e-9, "most_rows": 1}, {"path": "b", "weight": 1}]
    first, _ = RunSpec.from_dict(values).data.sources
    assert (first.num_used(9), first.weight) == (1, 1e-9)


def test_a_file_of_held_out_rows_has_no_weight_and_no_cap() -> None:
    values = good()
    values["data"]["sources"] = [{"path": "a", "weight": 2, "most_rows": 5}, {"path": "b", "weight": 1}]
    values["evaluation"]["path"] = "c"
    first, _, held_out = RunSpec.from_dict(values).all_sources()
    assert (first.num_used(4), first.num_used(9)) == (4, 5)
    assert (held_out.path, held_out.weight, held_out.most_rows) == ("c", 0.0, None)


@pytest.mark.parametrize(
    ("percent", "path", "column"), [(5.0, "", "customer"), (0.0, "", ""), (5.0, "held.jsonl", "")]
)
def test_groups_count_where_a_share_is_held_out(percent: float, path: str, column: str) -> None:
    evaluation = spec_training.EvaluationSpec(percent=percent, path=path, group_column="customer")
    assert evaluation.groups_by == column


def test_every_setting_is_declared_valid_by_default_and_can_be_set() -> None:
    spec = RunSpec.from_dict(good())
    paths = [setting.path for setting in iter_settings()]
    assert len(paths) == len(set(paths)) > 40
    for setting in iter_settings():
        assert setting.declaration.label
        assert setting.declaration.meaning.endswith(".")
        assert declared.type_problem(setting.default, setting.type) is None
        assert declared.value_problem(setting.default, setting.declaration) is None
        setting.set(spec, setting.default)
        assert setting.get(spec) == setting.default


def test_odd_types_are_described() -> None:
    assert declared.type_problem(1, int | None) is None
    assert declared.type_problem(None, int | None) is None
    assert declared.type_problem("x", int | None) == "a whole number or null"
    assert declared.type_problem(1, list[bytes]) == "a list"
    assert str(FieldProblem("a.b", "is bad")) == "a.b is bad"


def test_only_declared_fields_are_listed() -> None:
    @dataclass
    class Section:
        plain: int = 0
        listed: list[str] = declared.declared(["a"], label="L", meaning="M.")

    globals()["Section"] = Section
    assert declared.declaration_of(dataclasses.fields(Section)[0]) is None
    assert [name for name, *_ in declared.iter_declarations(Section)] == ["listed"]
    assert read_section(Section, {"listed": ["b"]}, "s", []).listed == ["b"]


def test_settings_without_effect_are_named() -> None:
    spec = RunSpec()
    assert idle_note(spec) is None
    spec.adapter.kind, spec.adapter.dora, spec.adapter.rank_pattern = "oft", True, ["q_proj=4"]
    assert str(idle_note(spec)) == "Without effect in this run: adapter.rank_pattern, adapter.dora."
    spec.adapter.kind = "lora"
    assert idle_note(spec) is None
