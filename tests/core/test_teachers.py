"""Whether one model can teach another: told by the files of their tokenizers, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_run import make_tiny_run
from tunesmith_core import memory_steps, planner, preflight, teacher_memory
from tunesmith_core.agreement import Agreement, of_event
from tunesmith_core.errors import TunesmithError
from tunesmith_core.evaluations import loss_help
from tunesmith_core.hardware import Hardware
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.protocol import Event
from tunesmith_core.report.facts import Facts, verdict_on
from tunesmith_core.report.page import page
from tunesmith_core.spec import RunSpec, has_effect, told_settings
from tunesmith_core.teachers import check_teacher, size_note, teacher_note, vocabulary_difference
from tunesmith_core.verdict import Measured, judge

GIB = 1 << 30


def write_vocabulary(folder: Path, vocabulary: object, added: object = ()) -> Path:
    folder.mkdir(exist_ok=True)
    values = {"model": {"vocab": vocabulary}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_the_same_tokens_in_any_order_are_no_difference(tmp_path: Path) -> None:
    one = write_vocabulary(tmp_path / "one", {"a": 0, "b": 1}, [{"content": "<end>", "id": 2}])
    other = write_vocabulary(tmp_path / "other", {"b": 1, "a": 0, "<end>": 2})
    assert vocabulary_difference(one, other) is None
    scored = write_vocabulary(tmp_path / "scored", [["a", -1.0], ["b", -2.0], ["<end>", 0.0]])
    assert vocabulary_difference(one, scored) is None


@pytest.mark.parametrize(
    ("vocabulary", "words"),
    [
        ({"a": 0, "b": 2}, "first in the token b (number 1 and 2)"),
        ({"a": 0}, "first in the token b (number 1 and –)"),
        ({"a": 0, "b": 1, "c": 2}, "first in the token c (number – and 2)"),
    ],
)
def test_the_first_other_token_is_named(vocabulary: dict[str, int], words: str, tmp_path: Path) -> None:
    one = write_vocabulary(tmp_path / "one", {"a": 0, "b": 1})
    assert words in str(vocabulary_difference(one, write_vocabulary(tmp_path / "other", vocabulary)))


def test_without_a_vocabulary_nobody_can_tell(tmp_path: Path) -> None:
    one = write_vocabulary(tmp_path / "one", {"a": 0})
    (tmp_path / "none").mkdir()
    assert "nobody can tell" in str(vocabulary_difference(one, tmp_path / "none"))


@pytest.mark.parametrize("content", ["[]", '{"model": {"vocab": 5}}', "nonsense", '{"model": {"vocab": [1]}}'])
def test_an_unreadable_vocabulary_is_named(content: str, tmp_path: Path) -> None:
    one = write_vocabulary(tmp_path / "one", {"a": 0})
    other = write_vocabulary(tmp_path / "other", {"a": 0})
    (other / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(TunesmithError, match=r"other.*the vocabulary can't be read") as caught:
        vocabulary_difference(one, other)
    assert caught.value.code == "teacher-unsuitable"


@pytest.fixture
def gkd_spec(make_spec: Callable[..., RunSpec], model_folder: Path, tmp_path: Path) -> RunSpec:
    """A spec with a copy of its model as the teacher."""
    teacher = tmp_path / "teacher"
    teacher.mkdir()
    for path in model_folder.iterdir():
        (teacher / path.name).write_bytes(path.read_bytes())
    for folder in (model_folder, teacher):
        write_vocabulary(folder, {"a": 0, "b": 1})
    values = make_spec().to_dict()
    values["objective"] = {"kind": "gkd"}
    values["teacher"] = {"path": str(teacher)}
    return RunSpec.from_dict(values)


@pytest.mark.usefixtures("fake_engine")
def test_an_unsuitable_teacher_is_named_before_the_run(gkd_spec: RunSpec) -> None:
    preflight.check(gkd_spec)
    assert check_teacher(gkd_spec) == Path(gkd_spec.teacher.path)
    write_vocabulary(Path(gkd_spec.teacher.path), {"a": 1, "b": 0})
    with pytest.raises(TunesmithError, match="can't teach") as caught:
        preflight.check(gkd_spec)
    assert (caught.value.code, "same family" in str(caught.value.hint)) == ("teacher-unsuitable", True)
    gkd_spec.teacher.path = f"{gkd_spec.model.path}/."
    with pytest.raises(TunesmithError, match="is the base model itself"):
        preflight.check(gkd_spec)
    gkd_spec.teacher.path = "/nowhere"
    with pytest.raises(TunesmithError, match="is not a folder"):
        preflight.check(gkd_spec)


def test_a_missing_teacher_and_the_model_itself_are_refused(gkd_spec: RunSpec) -> None:
    gkd_spec.teacher.path = " "
    assert [problem.path for problem in gkd_spec.problems()] == ["teacher.path"]
    gkd_spec.teacher.path = gkd_spec.model.path
    assert "another model" in str(gkd_spec.problems()[0].problem)


def test_settings_matter_where_a_teacher_is_asked(gkd_spec: RunSpec) -> None:
    assert has_effect(gkd_spec, "teacher.beta")
    assert not has_effect(gkd_spec, "teacher.max_tokens"), "no own answers"
    assert not has_effect(gkd_spec, "hardware.kernels")
    assert not has_effect(RunSpec(), "teacher.beta")
    assert has_effect(RunSpec(), "hardware.kernels")
    gkd_spec.teacher.own_answers = 0.5
    assert has_effect(gkd_spec, "teacher.max_tokens")
    told = {setting.path for setting in told_settings(gkd_spec)}
    assert {"teacher.beta", "teacher.own_answers"} <= told
    assert "teacher.path" not in told, "its name is told, and not its folder"


def test_a_teacher_of_the_library_is_found_by_its_name(gkd_spec: RunSpec, home: Path, tmp_path: Path) -> None:
    (home / "models" / "Big").mkdir(parents=True)
    gkd_spec.teacher.path = "Big"
    gkd_spec.resolve_paths(tmp_path)
    assert gkd_spec.teacher.path == str(home / "models" / "Big")
    gkd_spec.teacher.path = "org/big"
    gkd_spec.resolve_paths(tmp_path)
    assert gkd_spec.teacher.path == "org/big"


def test_a_teacher_that_is_not_bigger_is_told(gkd_spec: RunSpec) -> None:
    note = teacher_note(gkd_spec)
    assert note == "teacher is not bigger than the base model. There may be nothing to learn from it."
    card = read_model_card(Path(gkd_spec.model.path))
    assert size_note(card, dataclasses.replace(card, num_parameters=card.num_parameters + 1)) is None
    assert teacher_note(RunSpec()) is None


def hardware() -> Hardware:
    return Hardware("cuda", "GPU", 24 * GIB, 24 * GIB, 64 * GIB, 64 * GIB)


def test_the_plan_counts_the_teacher(gkd_spec: RunSpec) -> None:
    card = read_model_card(Path(gkd_spec.model.path))
    supervised = RunSpec.from_dict(gkd_spec.to_dict() | {"objective": {"kind": "sft"}})
    supervised.hardware.kernels = False
    plain = planner.plan(supervised, hardware(), card=card, longest_tokens=100)
    taught = planner.plan(gkd_spec, hardware(), card=card, longest_tokens=100)
    assert taught.parts["teacher"] >= 2 * card.num_parameters
    assert taught.parts["weights"] == plain.parts["weights"]
    size, tokens = 2, 100 * gkd_spec.schedule.micro_batch_size
    assert taught.parts["logits"] == card.vocab_size * (3 * size * tokens + 4 * 8 * min(tokens, 256))
    gkd_spec.teacher.weights = "nf4"
    assert planner.plan(gkd_spec, hardware(), card=card).parts["teacher"] != taught.parts["teacher"]
    gkd_spec.teacher.own_answers = 1.0
    longer = planner.plan(gkd_spec, hardware(), card=card, longest_tokens=100)
    assert longer.parts["activations"] > taught.parts["activations"]
    gkd_spec.teacher.path = "/nowhere"
    assert "teacher" not in teacher_memory.parts(gkd_spec, card, 2, 10), "said by the check"
    gkd_spec.teacher.path = ""
    assert "teacher" not in teacher_memory.parts(gkd_spec, card, 2, 10)


def test_a_teacher_in_4_bits_makes_room(gkd_spec: RunSpec) -> None:
    gkd_spec.hardware.devices = ["cuda"]
    step = next(each for each in memory_steps.MEMORY_STEPS if each.name == "four-bit-teacher")
    assert step.changes(gkd_spec) == {"teacher.weights": "nf4"}
    assert not step.changes(RunSpec())
    gkd_spec.hardware.devices = ["cpu"]
    assert not step.changes(gkd_spec)


def test_agreement_is_evidence_of_the_verdict() -> None:
    series = {0: {"agreement": 0.4}, 9: {"agreement": 0.75}}
    found = Agreement.of(series)
    assert found is not None
    assert str(found.told).startswith("At 75% of the held-out tokens")
    assert Agreement.of({0: {}, 9: {"agreement": 0.75}}) is None
    assert of_event({"agreement": 1, "loss": 2.0}) == {"agreement": 1.0}
    assert of_event({"loss": 2.0}) == {}
    setup: dict[str, Any] = {"num_train_rows": 90, "num_eval_rows": 10, "num_distinct_rows": 90}
    verdict = judge(Measured({0: 1.0, 9: 0.5}, {1: 1.0, 9: 0.5}, setup, teacher=series))
    assert "75%" in verdict.evidence


def test_a_report_tells_of_the_teacher(gkd_spec: RunSpec, tmp_path: Path) -> None:
    facts = Facts()
    for step, share in ((0, 0.4), (9, 0.75)):
        facts.fold(Event(step, 0.0, "eval", {"step": step, "loss": 1.0 - step / 20, "agreement": share}))
    html = page(make_tiny_run(tmp_path / "run"), gkd_spec, facts, verdict_on(facts))
    assert "<th>Agrees with the bigger model</th>" in html
    assert "<td>75%</td>" in html
    assert gkd_spec.teacher.path in html


def test_the_loss_is_explained(gkd_spec: RunSpec) -> None:
    assert "the bigger one" in loss_help(gkd_spec.objective)
