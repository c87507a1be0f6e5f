"""Evaluation of a run beside its base model: the right way to compare, true figures, and a file that keeps them."""

from __future__ import annotations

import json
import operator
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import sacrebleu

from tests.engine.conftest import train
from tests.engine.prepared import conduct_here
from tests.tiny_model import write_chats
from tests.workbooks import write_workbook
from tunesmith_core import evaluations
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.evaluate import EVALUATE, EvaluateSpec
from tunesmith_core.operations.runner import Outcome
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.report.facts import read
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.evaluation import evaluate, general, metrics, pattern
from tunesmith_engine.evaluation.difference import difference

Make = Callable[..., RunSpec]
New = Callable[[RunSpec], Run]


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        (['{"a": 1}', "[1]"], ["json_equal", "json_valid"]),
        (["It is 4.", "-1,200.5 km"], ["number_match", "exact_match", "token_f1"]),
        (["yes", "no"] * 3, ["choice", "exact_match", "token_f1"]),
        (["yes", "no"], ["exact_match", "token_f1"]),
        (["yes"] * 9, ["exact_match", "token_f1"]),
        (["word " * 30, "other " * 30], ["rouge_l", "chrf", "token_f1"]),
        (["1", "one"], ["exact_match", "token_f1"]),
        (["北京是首都。", "東京タワー"], ["exact_match", "chrf"]),
        (["北京是中国的首都，也是政治中心。" * 3, "東京は日本の首都です。" * 3], ["chrf", "rouge_l"]),
        (["서울은 대한민국의 수도이며 최대 도시입니다"], ["rouge_l", "chrf", "token_f1"]),
        (["12 个", "40 台"], ["number_match", "exact_match", "chrf"]),
    ],
)
def test_the_way_to_compare_follows_the_data(expected: list[str], names: list[str]) -> None:
    assert [metric.name for metric in metrics.metrics_for(expected)] == names


@pytest.mark.parametrize(
    ("score", "answer", "expected", "value"),
    [
        (metrics.exact_match, "The  Cat!", "cat", 1.0),
        (metrics.exact_match, "cats", "cat", 0.0),
        (metrics.token_f1, "the big cat sat", "a cat sat down", 2 / 3),
        (metrics.token_f1, "", "", 1.0),
        (metrics.token_f1, "", "cat", 0.0),
        (metrics.token_f1, "我喜欢猫", "我喜欢狗。", 0.75),
        (metrics.number_match, "7 apples, so 1,200.50", "It is 1200.5", 1.0),
        (metrics.number_match, "12", "13", 0.0),
        (metrics.number_match, "none", "13", 0.0),
        (metrics.number_match, "Das sind 3,5 km", "3.5", 1.0),
        (metrics.number_match, "It is 3.5 km", "3,5", 1.0),
        (metrics.number_match, "Es kostet 1.234,50 Euro", "1,234.5", 1.0),
        (metrics.number_match, "1.234", "1234", 1.0),
        (metrics.number_match, "1.234", "1,234", 1.0),
        (metrics.number_match, "1.234", "12.34", 0.0),
        (metrics.number_match, "35", "3,5", 0.0),
        (metrics.number_match, "0,125", "125", 0.0),
        (metrics.number_match, "1234,567", "1.234.567", 0.0),
        (metrics.number_match, "1.234.567", "1234567", 1.0),
        (metrics.number_match, "1,00,000.5", "100.000,5", 1.0),
        (metrics.number_match, "1’234.5 or 1\u202f234,5", "1234.5", 1.0),
        (metrics.number_match, "\u221212", "-12", 1.0),
        (metrics.number_match, "Am 24.12.2025", "2025", 1.0),
        (metrics.number_match, "1,2.5", "2.5", 1.0),
        (metrics.number_match, "\u4e00\u5171 3.5 \u5143", "3,50", 1.0),
        (metrics.json_valid, '{"a": [1, 2]}', "", 1.0),
        (metrics.json_valid, '{"a": [1, 2}', "", 0.0),
        (metrics.json_valid, "[" * 100_000, "", 0.0),
        (metrics.json_equal, '{"b":2, "a":1}', '{"a": 1, "b": 2}', 1.0),
        (metrics.json_equal, "no", "{}", 0.0),
        (metrics.holds, "It is the Rio Grande, I think", "Rio Grande", 1.0),
        (metrics.holds, "Rio de Grande", "Rio Grande", 0.0),
        (metrics.holds, "nobody", "no", 0.0),
        (metrics.holds, "anything", "", 0.0),
        (metrics.chosen, "Yes, of course", "yes", 1.0),
        (metrics.chosen, "yesterday", "yes", 0.0),
        (metrics.chosen, "no yes", "yes", 0.0),
        (metrics.chosen, "", "", 0.0),
        (metrics.exact_match, "", "A", 0.0),
        (metrics.exact_match, "the", "A", 0.0),
        (metrics.exact_match, "a", "A", 1.0),
    ],
)
def test_answers_are_compared(
    score: Callable[[str, str], float], answer: str, expected: str, value: float
) -> None:
    assert score(answer, expected) == pytest.approx(value)


@pytest.mark.parametrize(
    ("expected", "answer", "is_right"),
    [
        (["12", "13 km"], "It is 12", True),
        (["12", "13 km"], "It is 14", False),
        (['{"a": 1}'], '{"a":1}', True),
        (["Paris", "Rio Grande"], "Paris.", True),
        (["Paris", "Rio Grande"], "Rome.", False),
        (["Paris", "a sentence that can be worded in another way"], "Paris", None),
        (["Paris", "Rome", "Washington D.C."], "Rome.", False),
        (["Paris.", "Rome."], "It is Paris.", True),
        (["Four, arr!", "Fish and biscuits, arr."], "The answer is 4.", None),
        (["\u56db\u4e2a\uff01", "\u662f\u9c7c\u3002"], "\u56db", None),
        ([], "Paris", None),
    ],
)
def test_an_answer_is_right_or_wrong_where_wording_does_not_matter(
    expected: list[str], answer: str, is_right: bool | None
) -> None:
    score = metrics.right_or_wrong(expected)
    assert (None if score is None else bool(score(answer, expected[0]))) is is_right


@pytest.mark.parametrize(
    ("answer", "expected", "value"),
    [
        # As rouge-score 0.1.2 gives them.
        ("quick brown the fox", "the quick brown fox", 0.75),
        ("the cat, sat; on: a mat!", "The cat sat on the mat.", 0.8333333333333334),
        ("dont stop me now", "don't stop_me now", 0.6666666666666665),
        ("f a c e x b d", "a b c d e f", 0.4615384615384615),
        ("You can return the item within 30 days of purchase.", "Return it within 30 days.", 0.5333333333333333),
        ("x", "", 0.0),
        ("", "x", 0.0),
        # By hand: that package drops other letters than a to z.
        ("北京是首都", "北京是中国的首都", 2 * 5 / (5 + 8)),
        ("Grosse uber alles", "Größe über alles", 1 / 3),
        ("ÜBER alles", "über alles", 1.0),
        ("हिन्दी में उत्तर", "हिन्दी में", 2 * 2 / (3 + 2)),
        ("हिन्दी", "हिन्दू", 0.0),
    ],
)
def test_rouge_l(answer: str, expected: str, value: float) -> None:
    assert metrics.rouge_l(answer, expected) == pytest.approx(value, abs=1e-12)


def test_the_common_subsequence_is_that_of_the_table() -> None:
    rng = random.Random(0)
    for _ in range(200):
        first, second = ([rng.choice("abcde") for _ in range(rng.randrange(90))] for _ in range(2))
        row = [0] * (len(second) + 1)
        for word in first:
            before = row[:]
            for place, other in enumerate(second, 1):
                row[place] = before[place - 1] + 1 if word == other else max(before[place], row[place - 1])
        assert metrics._common_length(first, second) == row[-1]


def test_chrf_is_that_of_sacrebleu_and_of_its_definition() -> None:
    pairs = [("quick brown the fox", "the quick brown fox"), ("北京是首都", "北京是中国的首都"), ("", "x"), ("x", "")]
    for answer, expected in pairs:
        assert metrics.chrf(answer, expected) == sacrebleu.sentence_chrf(answer, [expected]).score / 100
    assert metrics.chrf("the same", "the same") == pytest.approx(1.0)
    # Of "abc" and "abd": 2 of 3 characters, 1 of 2 pairs, 0 of 1 triple; there is nothing longer.
    assert metrics.chrf("abc", "abd") == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)


def test_an_import_of_the_figures_loads_no_sacrebleu() -> None:
    code = "import sys, tunesmith_engine.evaluation.metrics; sys.exit('sacrebleu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("home")
def test_a_pattern_is_looked_for_in_a_limited_process() -> None:
    texts = ["Order 1234 shipped.", "no order", ""]
    assert pattern.matches(r"Order \d{4}", texts) == [1.0, 0.0, 0.0]
    assert pattern.reason("(?i)ORDER", texts) == "2 of 3 expected answers match (?i)ORDER"
    for words, part in (("(", "( is not a regular expression: missing )"), ("^(a|aa)+$", "too much time or memory")):
        with pytest.raises(TunesmithError, match=re.escape(part)) as caught:
            pattern.matches(words, ["a" * 60 + "!"])
        assert caught.value.code == "usage"
    with pytest.raises(TunesmithError, match="No row has an answer"):
        pattern.reason("a", [])


def test_a_difference_has_an_interval_and_a_chance() -> None:
    found = difference([0.0] * 20, [1.0] * 18 + [0.0] * 2)
    assert (found["before"], found["after"], found["gain"]["rows"]) == (0.0, 0.9, 20)
    assert 0.7 < found["gain"]["low"] < 0.9 < found["gain"]["high"] <= 1.0
    assert found["p"] < 0.01
    same = difference([0.0, 1.0] * 10, [0.0, 1.0] * 10)
    assert (same["gain"]["low"], same["gain"]["high"], same["p"]) == (0.0, 0.0, 1.0)
    noise = difference([0.0, 1.0] * 10, [1.0, 0.0] * 10)
    assert noise["gain"]["low"] < 0 < noise["gain"]["high"]
    assert noise["p"] > 0.9
    assert difference([0.0] * 6, [1.0] * 6)["p"] == 2 / 64, "all ways to exchange six pairs"
    assert difference([0.0] * 4, [1.0] * 4)["gain"] is None, "too few rows tell nothing"


def test_general_questions_are_about_thirty_in_two_languages() -> None:
    assert len(general.QUESTIONS) == len(dict(general.QUESTIONS)) == 30
    assert sum(not question.isascii() for question, _ in general.QUESTIONS) == 8
    assert general.is_right(r"\b12\b|twelve", "It is Twelve.") == 1.0
    assert general.is_right(r"\b12\b|twelve", "It is 121.") == 0.0
    for question, right in general.QUESTIONS:
        assert general.is_right(right, question) == 0.0, f"{question} answers itself"


def measured(run: Run, **more: Any) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    spec = EvaluateSpec(str(run.path), **more)  # type: ignore[arg-type]
    return conduct_here(EVALUATE, spec, on_event=events.append, take=lambda _folder, answer: answer), events


def test_a_run_is_measured_and_the_figures_are_kept(tiny_spec: Make, new_run: New, tmp_path: Path) -> None:
    run = new_run(tiny_spec(evaluation={"percent": 40}, schedule={"max_steps": 12}))
    assert train(run) == 0
    outcome, events = measured(run)
    found = outcome.get()
    losses, held_out = found["losses"], read(run).held_out
    assert losses["rows"] == 6
    assert losses["before"] == pytest.approx(held_out[0], rel=1e-5)
    assert losses["after"] == pytest.approx(held_out[12], rel=1e-5)
    assert losses["gain"]["low"] <= losses["gain"]["mean"] <= losses["gain"]["high"]
    assert losses["perplexity_after"] < losses["perplexity_before"]
    assert found["metrics"][0]["name"] == "number_match"
    assert all(0 <= each[key] <= 1 for each in found["metrics"] for key in ("before", "after", "p"))
    assert found["general"]["rows"] == 30
    kept = json.loads(Path(found["path"]).read_text(encoding="utf-8"))
    assert {key: kept[key] for key in ("step", "losses", "answers")} == {
        key: found[key] for key in ("step", "losses", "answers")
    }
    assert evaluations.newest(run)["at"] == found["at"]
    rows = {each["messages"][0]["content"]: each["messages"][1]["content"] for each in _rows(run)}
    assert {each["prompt"]: each["expected"] for each in found["answers"]}.items() <= rows.items()
    phases = [event.data for event in events if event.type == "phase"]
    told = list(dict.fromkeys(str(phase["name"]) for phase in phases))
    wanted = [evaluations.COMPARING, *evaluations.ANSWERING, *evaluations.ASKING]
    assert [name for name in told if name in wanted] == wanted, "what is done now is told"
    assert not [phase for phase in phases if phase["total"] and phase["done"] >= phase["total"]], "no bar is full"
    counts = [phase["done"] for phase in phases if phase["name"] == evaluations.ANSWERING[1]]
    assert counts == list(range(len(found["answers"])))
    other = write_chats(tmp_path / "other.jsonl", 5)
    again = measured(run, data=str(other), rows=2, matches=r"\d")[0].get()
    assert (again["losses"]["rows"], len(again["answers"])) == (5, 2)
    assert (again["metrics"][0]["name"], again["metrics"][1]["name"]) == ("matches", "number_match")
    assert again["metrics"][0]["after"] == fmean(bool(re.search(r"\d", each["after"])) for each in again["answers"])
    assert again["data"]["path"] == str(other)
    assert evaluations.newest(run)["at"] == again["at"]


def test_each_data_file_is_measured_beside_the_whole(tiny_spec: Make, new_run: New, tmp_path: Path) -> None:
    spec = tiny_spec(evaluation={"percent": 40}, schedule={"max_steps": 4})
    more = write_chats(tmp_path / "more.jsonl", 15)
    spec.data.sources.append(SourceSpec(path=str(more), format="messages"))
    run = new_run(spec)
    assert train(run) == 0
    told = [event.data for event in read_journal(run.journal_path) if event.type == "eval"]
    paths = [source.path for source in spec.data.sources]
    for event in told:
        losses, nums = zip(*((each["loss"], each["num_tokens"]) for each in event["source_losses"]), strict=True)
        assert [each["path"] for each in event["source_losses"]] == paths
        assert sum(nums) == event["num_tokens"]
        assert sum(map(operator.mul, losses, nums)) / sum(nums) == pytest.approx(event["loss"], rel=1e-6)
    sources = measured(run)[0].get()["sources"]
    assert [each["path"] for each in sources] == paths
    for name, event in (("before", told[0]), ("after", told[-1])):
        expected = [each["loss"] for each in event["source_losses"]]
        assert [each[name] for each in sources] == pytest.approx(expected, rel=1e-5)


def test_a_workbook_is_measured_by_the_columns_and_the_sheet_that_were_named(
    tiny_spec: Make, new_run: New, tmp_path: Path
) -> None:
    run = new_run(tiny_spec(evaluation={"percent": 40}, schedule={"max_steps": 2}))
    assert train(run) == 0
    rows = [["Item", "Price"], *[[f"tea {number}", f"{number} pounds"] for number in range(7)]]
    path = write_workbook(tmp_path / "prices.xlsx", {"Notes": [["x"], ["y"]], "Prices": rows})
    read_as = {"columns": {"prompt": "Item", "completion": "Price"}, "sheet": "Prices"}
    found = measured(run, data=str(path), rows=3, read_as=read_as)[0].get()
    assert (found["losses"]["rows"], found["data"]["path"]) == (7, str(path))
    assert found["answers"][0]["expected"] == "0 pounds"
    sheet_of_the_run = run.load_spec()
    sheet_of_the_run.data.sources[0].sheet = "Questions"
    asked = evaluate._asked_spec(sheet_of_the_run, str(path), {"encoding": "gb18030"})
    assert [each.sheet for each in asked.all_sources()] == ["", ""], "a sheet is of its own file"
    error = measured(run, data=str(path), rows=3)[0].error
    assert error is not None
    assert error.code == "dataset-column-missing"


def test_a_pattern_that_fails_on_an_answer_costs_only_its_own_figure(tmp_path: Path) -> None:
    def refused(*_: object) -> list[float]:
        raise TunesmithError("usage", "It takes too long.")

    host = Host(Operation(tmp_path))
    with host, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pattern, "matches", refused)
        assert evaluate._matched(host, "a", "", ["a"], ["b"]) == []
    assert [event.data["message"] for event in read_journal(tmp_path / "events.jsonl")] == ["It takes too long."]


def test_a_pattern_that_can_not_be_read_is_refused_before_the_model_is_loaded(tiny_spec: Make, new_run: New) -> None:
    run = new_run(tiny_spec(evaluation={"percent": 40}, schedule={"max_steps": 2}))
    assert train(run) == 0
    outcome, events = measured(run, matches="(")
    assert outcome.error is not None
    assert "( is not a regular expression" in outcome.error.message
    assert not any(event.data.get("name") == "model" for event in events)


def test_a_planted_share_of_matches_is_found(tmp_path: Path) -> None:
    before, after = ["none"] * 30 + ["id-7"] * 10, ["id-7"] * 36 + ["none"] * 4
    with Host(Operation(tmp_path)) as host:
        (found,) = evaluate._matched(host, r"id-\d", "why", before, after)
    assert (found["name"], found["reason"], found["before"], found["after"]) == ("matches", "why", 0.25, 0.9)
    assert 0.4 < found["gain"]["low"] < 0.65 < found["gain"]["high"] < 0.9
    assert found["p"] < 0.01


def _rows(run: Run) -> list[dict[str, Any]]:
    path = Path(run.load_spec().data.sources[0].path)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_without_rows_a_file_is_asked_for(tiny_spec: Make, new_run: New) -> None:
    run = new_run(tiny_spec(schedule={"max_steps": 2}))
    assert train(run) == 0
    with pytest.raises(TunesmithError) as caught:
        measured(run)[0].get()
    assert caught.value.code == "usage"
    assert "Name a file of rows" in caught.value.hint


def test_another_base_model_is_not_measured(
    tiny_spec: Make, new_run: New, tiny_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_model, tmp_path / "own")
    run = new_run(
        tiny_spec(evaluation={"percent": 40}, schedule={"max_steps": 2}, model={"path": str(folder)})
    )
    assert train(run) == 0
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.5}), encoding="utf-8")
    with pytest.raises(TunesmithError, match=r"config\.json") as refusal:
        measured(run)[0].get()
    assert refusal.value.code == "base-model-differs"
    assert refusal.value.hint == "Restore the named files, then try again."


@pytest.mark.parametrize("num_rows", [4, 6], ids=["held", "begun with"])
def test_of_choices_an_answer_may_hold_one_only(num_rows: int) -> None:
    is_right = metrics.right_or_wrong((["yes", "no"] * 3)[:num_rows])
    assert is_right is not None
    assert is_right("Yes.", "yes") == 1.0
    assert is_right("yes and no", "yes") == 0.0
    assert is_right("no", "yes") == 0.0


def test_a_choice_may_stand_in_a_longer_one() -> None:
    is_right = metrics.right_or_wrong(["positive", "very positive"] * 3)
    assert is_right is not None
    assert is_right("very positive", "very positive") == 1.0
    assert is_right("very positive", "positive") == 0.0


@pytest.mark.parametrize("num_rows", [4, 16], ids=["held", "begun with"])
def test_a_choice_may_be_the_letter_of_an_article(num_rows: int) -> None:
    is_right = metrics.right_or_wrong((["A", "B", "C", "D"] * 4)[:num_rows])
    assert is_right is not None
    for answer in ("A", "A.", "A, since a dog is no cat", "(A)"):
        assert is_right(answer, "A") == 1.0, answer
    for answer in ("B", "B is a dog", "", "a dog"):
        assert is_right(answer, "A") == 0.0, answer
    assert is_right("B, a dog", "B") == 1.0


@pytest.mark.parametrize(
    ("answer", "expected", "is_right"),
    [
        ("Paris", "Paris", True),
        ("The capital of France is Paris. It lies on the Seine.", "Paris", True),
        ("France has many cities. One thinks of Lyon. So the answer is Paris.", "Paris", True),
        ("It is Lyon. Paris is only larger. That is all I know.", "Paris", False),
        ("It is not Paris.", "Paris", False),
        ("Paris isn't the capital.", "Paris", False),
        ("It isn\u2019t Lyon but Paris.", "Paris", True),
        ("Paris, not Lyon.", "Paris", True),
        ("Paris and not Lyon.", "Lyon", False),
        ("Parisian", "Paris", False),
        ("not valid", "valid", False),
        ("It is not valid.", "not valid", True),
        ("No, never.", "No", True),
        ("At 10:30, I think", "10:30", True),
        ("In St. Louis.", "St. Louis", True),
        ("Es ist nicht Paris, sondern Bern.", "Bern", True),
        ("Es ist nicht Paris, sondern Bern.", "Paris", False),
        ("Paris ist es nicht.", "Paris", False),
        ("Die Hauptstadt ist Paris.\nSie liegt an der Seine.", "Paris", True),
        ("Lyon ist gro\u00df. Paris ist gr\u00f6\u00dfer. Nizza ist klein.", "Paris", False),
        ("法国的首都是巴黎。它在塞纳河边。", "巴黎", True),
        ("首都不是巴黎。", "巴黎", False),
        ("不是里昂，而是巴黎。", "巴黎", True),
        ("是巴黎而非里昂。", "里昂", False),
        ("巴黎非常美。", "巴黎", True),
        ("首都是里昂。巴黎更大。我只知道这些。", "巴黎", False),
    ],
)
def test_a_right_answer_says_what_is_expected_and_not_only_mentions_it(
    answer: str, expected: str, is_right: bool
) -> None:
    score = metrics.right_or_wrong([expected, "Rio Grande"])
    assert score is not None
    assert bool(score(answer, expected)) is is_right


def test_different_names_are_no_choices() -> None:
    is_right = metrics.right_or_wrong(["Paris", "Rome", "Bern"])
    assert is_right is not None
    assert is_right("Paris, which is far from Rome", "Paris") == 1.0
