"""A check of data doesn't count rows of which a run learns nothing, and says of them what plan and run say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.desk.checking import check, spec_of, write_lines
from tunesmith_engine.data.preview import preview
from tunesmith_engine.model.folder import load_tokenizer

LONG_QUESTION = "word " * 30


@pytest.mark.parametrize(
    ("kind", "overlong", "rule", "words"),
    [
        ("sft", "truncate", "unlearned", "answers begin beyond the context length of 100 tokens: 2 of 12."),
        ("sft", "split", "unlearned", "answers begin beyond the context length of 100 tokens: 2 of 12."),
        ("dpo", "truncate", "unlearned", "begin or differ beyond the context length of 100 tokens: 2 of 12."),
        ("sft", "skip", "over-long", ""),
    ],
)
def test_rows_that_a_run_leaves_out_are_not_counted_as_learned(
    tmp_path: Path, tiny_model: Path, kind: str, overlong: str, rule: str, words: str
) -> None:
    questions = [f"{number} {LONG_QUESTION}" if number in (3, 7) else f"Q{number}" for number in range(12)]
    rows = [{"prompt": text, "chosen": f"yes {text[:3]}", "rejected": "no"} for text in questions]
    if kind == "sft":
        rows = [{"prompt": text, "completion": f"yes {text[:3]}"} for text in questions]
    run = spec_of(write_lines(tmp_path / "a.jsonl", rows), context_length=100)
    run.objective.kind, run.data.overlong, run.model.path = kind, overlong, str(tiny_model)
    answer = check(tmp_path, run, str(tiny_model))
    assert [(each["rule"], each["count"], each["action"]) for each in answer["problems"]] == [(rule, 2, "drop")]
    assert (answer["num_rows"], answer["num_good_rows"], answer["num_problem_rows"]) == (12, 10, 2)
    looked = preview(run, load_tokenizer(tiny_model), 1)
    assert looked["rows_used"] == [10]
    told = [note for note in answer["notes"] if words and words in note]
    assert told == [note for note in looked["notes"] if words and words in note]
    assert len(told) == bool(words)


def test_rows_of_which_something_is_left_are_cut_or_split(tmp_path: Path, tiny_model: Path) -> None:
    texts = [{"text": LONG_QUESTION}, {"text": "short"}]
    run = spec_of(write_lines(tmp_path / "a.jsonl", texts), context_length=100)
    for overlong, action in (("truncate", "truncate"), ("split", "split")):
        run.data.overlong = overlong
        answer = check(tmp_path, run, str(tiny_model))
        assert [(each["rule"], each["action"]) for each in answer["problems"]] == [("over-long", action)]
        assert (answer["num_good_rows"], answer["num_problem_rows"]) == (2, 1)


@pytest.mark.parametrize(("overlong", "rule"), [("truncate", "unlearned"), ("skip", "over-long")])
def test_where_nothing_is_left_a_run_stops(tmp_path: Path, tiny_model: Path, overlong: str, rule: str) -> None:
    rows = [{"prompt": f"{number} {LONG_QUESTION}", "completion": "yes"} for number in range(3)]
    run = spec_of(write_lines(tmp_path / "a.jsonl", rows), context_length=100)
    run.data.overlong, run.model.path = overlong, str(tiny_model)
    answer = check(tmp_path, run, str(tiny_model))
    told = [(each["rule"], each["severity"], each["action"]) for each in answer["problems"]]
    assert told == [(rule, "error", "stop")]
    assert answer["num_good_rows"] == 0
    assert preview(run, load_tokenizer(tiny_model), 1)["nothing_left"]
