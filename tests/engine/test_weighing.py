"""Files mixed by weight and cap within a run: exact over an epoch, told, and the same after a stop."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.prepared import prepare
from tunesmith_core.errors import UserError
from tunesmith_core.messages import Message
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.spec_training import ScheduleSpec
from tunesmith_engine.data import PreparedData
from tunesmith_engine.data.preview import preview
from tunesmith_engine.data.weighing import SourceShare, drawn_rows, mixture_notes
from tunesmith_engine.train.schedule import StepPlan

MakeSpec = Callable[..., RunSpec]


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def mixed(tiny_spec: MakeSpec, tmp_path: Path) -> Callable[..., RunSpec]:
    """Make a run of files with so many rows of text, and (weight, cap) of each."""

    def make(numbers: Sequence[int], settings: Sequence[tuple[float, int | None]], percent: float = 0.0) -> RunSpec:
        spec = tiny_spec(evaluation={"percent": percent})
        spec.data.sources = []
        for name, number, (weight, cap) in zip("abcdefghij", numbers, settings, strict=False):
            path = tmp_path / f"{name}.jsonl"
            path.write_text("".join(json.dumps({"text": f"{name} {row}"}) + "\n" for row in range(number)))
            spec.data.sources.append(SourceSpec(path=str(path), weight=weight, most_rows=cap))
        assert not spec.problems()
        return spec

    return make


def epoch_of(data: PreparedData, tokenizer: Any, epoch: int = 0, **schedule: Any) -> list[str]:
    """What one epoch of a run trains on, in its order."""
    plan = StepPlan.of(ScheduleSpec(**schedule), data)
    steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
    rows = [row for step in steps for row in plan.rows(step)]
    assert len(rows) == plan.num_rows
    return [tokenizer.decode(data.train[row].input_ids, skip_special_tokens=True) for row in rows]


def test_an_epoch_has_exactly_the_shares_of_the_weights(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase
) -> None:
    data = prepare(mixed([10, 30], [(3.0, None), (1.0, None)]), tokenizer)
    epochs = [epoch_of(data, tokenizer, number) for number in range(2)]
    for texts in epochs:
        assert Counter(text[0] for text in texts) == {"a": 30, "b": 10}
        assert set(Counter(text for text in texts if text[0] == "a").values()) == {3}
        assert max(Counter(text for text in texts if text[0] == "b").values()) == 1
    assert {text for text in epochs[0] if text[0] == "b"} != {text for text in epochs[1] if text[0] == "b"}
    assert epochs[0] == epoch_of(data, tokenizer)
    assert epochs[0] != epoch_of(data, tokenizer, seed=7)
    assert any(text[0] == "b" for text in epochs[0][:30]), "files are mixed within the epoch"
    assert len(data.train) == data.stats.num_train_rows == 40


def test_files_without_a_weight_give_every_row_once(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase
) -> None:
    data = prepare(mixed([7, 4, 12], [(0.0, None), (1.0, None), (1.0, None)]), tokenizer)
    texts = epoch_of(data, tokenizer)
    assert Counter(text[0] for text in texts) == {"a": 7, "b": 8, "c": 8}
    assert len({text for text in texts if text[0] == "a"}) == 7
    plain = prepare(mixed([7, 4, 12], [(0.0, None)] * 3), tokenizer)
    assert StepPlan.of(ScheduleSpec(), plain) == StepPlan(ScheduleSpec(), 23), "the order of runs without weights"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 90)), min_size=1, max_size=5),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_every_row_of_a_file_is_taken_about_as_often(files: list[tuple[int, int]], seed: int, epoch: int) -> None:
    shares = [SourceShare("f", rows, 0, taken if rows else 0) for rows, taken in files]
    counts = Counter(drawn_rows(shares, seed, epoch))
    start = 0
    for share in shares:
        own = [counts.pop(row, 0) for row in range(start, start + share.num_train_rows)]
        start += share.num_train_rows
        assert sum(own) == share.num_epoch_rows
        assert max(own, default=0) - min(own, default=0) <= 1
    assert not counts


def test_without_shuffling_the_files_follow_each_other(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase
) -> None:
    data = prepare(mixed([2, 6], [(1.0, None), (1.0, None)]), tokenizer)
    texts = epoch_of(data, tokenizer, shuffle=False)
    assert texts[:4] == ["a 0", "a 1"] * 2
    assert texts[4:] == sorted(texts[4:])


def test_a_cap_keeps_a_seeded_choice_of_rows(mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase) -> None:
    spec = mixed([40, 5], [(0.0, 10), (0.0, 99)])
    data = prepare(spec, tokenizer)
    texts = epoch_of(data, tokenizer, shuffle=False)
    assert Counter(text[0] for text in texts) == {"a": 10, "b": 5}
    assert texts[:10] != [f"a {row}" for row in range(10)]
    assert epoch_of(prepare(spec, tokenizer), tokenizer, shuffle=False) == texts
    a = spec.data.sources[0].path
    assert data.notes["dataset-rows-capped"] == f"{a}: 10 of 40 rows are used."
    spec.data.sources[0].most_rows = 1
    assert prepare(spec, tokenizer).notes["dataset-rows-capped"] == f"{a}: 1 of 40 rows is used."
    spec.data.sources[0].most_rows = 10
    spec.schedule.seed = 5
    assert epoch_of(prepare(spec, tokenizer), tokenizer, shuffle=False) != texts


def test_bad_rows_do_not_count_for_the_cap_where_they_are_skipped(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase
) -> None:
    spec = mixed([12], [(0.0, 10)])
    path = Path(spec.data.sources[0].path)
    path.write_text('{"text": 5}\n' + path.read_text())
    spec.data.skip_bad_rows = True
    data = prepare(spec, tokenizer)
    assert (len(data.train), data.stats.num_skipped_rows) == (10, 1)
    assert data.notes["dataset-rows-capped"] == f"{path}: 10 of 12 rows are used."


def test_rows_that_are_held_out_count_for_the_cap_and_not_for_the_weight(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase
) -> None:
    data = prepare(mixed([40, 20], [(1.0, 20), (3.0, None)], percent=25.0), tokenizer)
    assert (len(data.train), len(data.eval)) == (30, 10)
    a, b = data.sources
    assert (a.num_train_rows + a.num_eval_rows, b.num_train_rows + b.num_eval_rows) == (20, 20)
    assert a.num_epoch_rows + b.num_epoch_rows == 30
    assert a.num_epoch_rows in (7, 8)
    held_out = {tokenizer.decode(example.input_ids) for example in data.eval}
    assert not held_out & set(epoch_of(data, tokenizer))


def test_held_out_rows_of_a_file_of_their_own_have_no_weight_and_no_cap(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    spec = mixed([4, 4], [(1.0, 2), (1.0, None)])
    spec.evaluation.path = str(tmp_path / "held.jsonl")
    Path(spec.evaluation.path).write_text('{"text": "held out"}\n' * 9)
    data = prepare(spec, tokenizer)
    assert (len(data.train), len(data.eval)) == (6, 9)
    assert [source.num_epoch_rows for source in data.sources] == [3, 3]


def test_a_note_says_how_often_rows_are_taken(mixed: Callable[..., RunSpec]) -> None:
    spec = mixed([10, 30, 5, 5], [(1.0, None), (1.0, None), (1.0, None), (1.0, None)])
    a, b, c, d = (source.path for source in spec.data.sources)
    numbers = [(a, 10, 25), (b, 30, 10), (c, 5, 10), (d, 5, 5)]
    notes = mixture_notes(spec, [SourceShare(path, rows, 0, taken) for path, rows, taken in numbers])
    assert notes["dataset-mixture"] == (
        f"Examples in an epoch: 50. {a}: 25 from 10 rows, each taken 2 or 3 times. {b}: 10 of its 30 rows, others in "
        f"each epoch. {c}: 10 from 5 rows, each taken 2 times. {d}: all 5 rows, each taken once."
    )
    assert isinstance(notes["dataset-mixture"], Message)
    for times, words in ((1, "taken once"), (3, "taken 3 times")):
        spec = mixed([1, 1], [(1.0, None), (1.0, None)])
        notes = mixture_notes(spec, [SourceShare("a", 1, 0, times), SourceShare("b", 1, 0, 1)])
        assert notes["dataset-mixture"].endswith(f". a: its only row, {words}. b: its only row, taken once.")
    many = mixed([1] * 7, [(1.0, None)] * 7)
    words = mixture_notes(many, [SourceShare("f", 1, 0, 1)] * 7)["dataset-mixture"]
    assert words.endswith("Further files with a weight: 2.")
    many.data.sources = [SourceSpec(path="f")]
    assert not mixture_notes(many, [SourceShare("f", 1, 0, 1)])


@pytest.mark.parametrize(
    ("numbers", "settings", "percent", "words"),
    [
        ([100, 2], [(1000.0, None), (1.0, None)], 0.0, r"b\.jsonl: its weight of 1 \(data\.sources\[1\]\.weight\) is"),
        ([1, 1], [(1.0, None), (1.0, None)], 50.0, r"\.jsonl: there is no row to train for its weight of 1 \(data"),
    ],
)
def test_a_weight_that_gives_no_example_is_refused(
    numbers: list[int],
    settings: list[tuple[float, int | None]],
    percent: float,
    words: str,
    mixed: Callable[..., RunSpec],
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        prepare(mixed(numbers, settings, percent=percent), tokenizer)
    assert caught.value.code == "dataset-weight"


def test_the_preview_says_what_weights_will_do(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = mixed([10, 40], [(1.0, None), (1.0, 30)], percent=10.0)
    a, b = (source.path for source in spec.data.sources)
    (note,) = preview(spec, tokenizer, 3)["notes"]
    assert note == (
        'Rows in the files: 50. Held out: 4. Left out by "Most rows": 10. '
        f"Examples in an epoch: 36. {a}: 18 from 9 rows, each taken 2 times. {b}: 18 of its 27 rows, others in each "
        "epoch."
    )
    whole = mixed([10, 40], [(1.0, None), (1.0, None)])
    assert preview(whole, tokenizer, 3)["notes"][0].startswith("Examples in an epoch: 50.")
    spec.data.sources[1].weight = 3.0
    monkeypatch.setattr("tunesmith_engine.data.preview.MAX_ROWS", 20)
    (note,) = preview(spec, tokenizer, 3)["notes"]
    assert note == (
        f"{a}: 25% of the examples of the files with a weight. {b}: 75% of the examples of the files with a weight."
    )
    monkeypatch.undo()
    spec.data.sources[1].weight = 10_000.0
    assert any("is too low for an example." in note for note in preview(spec, tokenizer, 3)["notes"])


def test_a_replay_share_is_mixed_into_an_epoch(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase
) -> None:
    spec = mixed([18, 40], [(0.0, None), (0.0, None)])
    spec.data.sources[1].replay = 10.0
    data = prepare(spec, tokenizer)
    epochs = [epoch_of(data, tokenizer, number) for number in range(2)]
    for texts in epochs:
        assert Counter(text[0] for text in texts) == {"a": 18, "b": 2}
        assert len({text for text in texts if text[0] == "a"}) == 18
    assert {text for text in epochs[0] if text[0] == "b"} != {text for text in epochs[1] if text[0] == "b"}
    assert "2 of its 40 rows" in str(data.notes["dataset-mixture"])
    planned = preview(spec, tokenizer, 1)["notes"]
    assert any("2 of its 40 rows" in str(note) or "10% of the examples" in str(note) for note in planned)


def test_a_replay_file_that_is_held_out_whole_is_named(
    mixed: Callable[..., RunSpec], tokenizer: PreTrainedTokenizerBase
) -> None:
    spec = mixed([18, 1], [(0.0, None), (0.0, None)], percent=50.0)
    spec.data.sources[1].replay = 10.0
    refused = []
    for seed in range(20):
        spec.schedule.seed = seed
        try:
            prepare(spec, tokenizer)
        except UserError as error:
            refused.append((error.code, "no row to train for its share of 10 %" in str(error.message)))
    assert refused
    assert set(refused) == {("dataset-weight", True)}
