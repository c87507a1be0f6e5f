"""What a check says of answers that are labeled good or bad."""

from __future__ import annotations

from pathlib import Path

from tests.engine.desk.checking import check, problems_of, spec_of, write_lines

ROWS = [{"prompt": f"Is {n} even or odd?", "completion": "Even." * (1 + n), "label": n % 2 == 0} for n in range(6)]


def test_bad_answers_are_rows_and_labels_that_say_nothing_are_named(tmp_path: Path) -> None:
    changes = [{}, {"label": None}, {"label": "perhaps"}, {"label": "👎"}, {}, {}]
    rows = [row | change for row, change in zip(ROWS, changes, strict=True)]
    spec = spec_of(write_lines(tmp_path / "labels.jsonl", rows))
    spec.objective.kind = "kto"
    answer = check(tmp_path, spec)
    (problem,) = answer["problems"]
    assert [(row["line"], row["message"].partition(": ")[2]) for row in problem["rows"]] == [
        (2, "the label is missing."),
        (3, "'perhaps' is not a label."),
    ]
    assert answer["num_good_rows"] == 4


def test_a_scale_of_numbers_is_named_once(tmp_path: Path) -> None:
    rows = [row | {"label": 1 + place % 5} for place, row in enumerate(ROWS)]
    spec = spec_of(write_lines(tmp_path / "scale.jsonl", rows))
    spec.objective.kind = "kto"
    answer = check(tmp_path, spec)
    assert answer["num_good_rows"] == 0
    assert "numbers from 1 to 5" in answer["problems"][0]["rows"][0]["message"]


def test_pairs_are_looked_at_with_both_answers(tmp_path: Path) -> None:
    rows = [{"prompt": f"Is {n} even?", "chosen": "Yes.", "rejected": "No."} for n in range(2)]
    rows[1]["rejected"] = ""
    spec = spec_of(write_lines(tmp_path / "pairs.jsonl", rows))
    spec.objective.kind = "kto"
    assert problems_of(check(tmp_path, spec)) == {"empty-answer": [(2, problems_line(rows[1]))]}


def problems_line(row: dict[str, str]) -> int:
    """Return where the empty answer of a row stands in its line."""
    return len(str(row)) - 2
