"""The example data: complete, free of doubles and contradictions, and a spec that the core accepts."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest

from tunesmith_assets.samples import (
    LANGUAGES,
    Fact,
    class_spec,
    document_spec,
    example_spec,
    facts,
    full_spec,
    label_spec,
    preference_spec,
    reward_spec,
    sample_folder,
    score_spec,
    step_spec,
    teacher_spec,
)
from tunesmith_core import held_out, presets
from tunesmith_core.evaluations import FEWEST_ROWS
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import LEARNING_RATE_DIVISOR

pytestmark = pytest.mark.parametrize("language", LANGUAGES)

SPECS = (
    *(
        class_spec,
        document_spec,
        example_spec,
        full_spec,
        label_spec,
        preference_spec,
        reward_spec,
        score_spec,
        step_spec,
    ),
    teacher_spec,
)
NUM_FACTS = 20
NUM_TRAIN_WORDINGS = 8
NUM_HELDOUT_WORDINGS = 2


def read_rows(language: str, name: str) -> list[dict[str, Any]]:
    """The rows of a data file, checked to be UTF-8 with plain line ends and no blank line."""
    data = (sample_folder(language) / name).read_bytes()
    assert b"\r" not in data
    assert not data.startswith(b"\xef\xbb\xbf")
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.decode("utf-8").removesuffix("\n").split("\n")]


def read_pairs(language: str, name: str) -> list[tuple[str, str]]:
    """Question and answer of each row, checked to be one exchange in the messages shape."""
    pairs = []
    for row in read_rows(language, name):
        assert row.keys() == {"messages"}
        question, answer = row["messages"]
        assert (question["role"], answer["role"]) == ("user", "assistant")
        for message in (question, answer):
            assert message.keys() == {"role", "content"}
            assert message["content"] == message["content"].strip() != ""
        pairs.append((question["content"], answer["content"]))
    return pairs


def fact_of(answer: str, language: str) -> Fact:
    """The one fact that an answer states."""
    (fact,) = [fact for fact in facts(language) if fact.is_answered_by(answer)]
    return fact


def plain(question: str) -> str:
    """A question without case, spaces and punctuation, to find doubles that differ in nothing else."""
    return "".join(letter for letter in question.casefold() if letter.isalnum())


def test_every_fact_has_eight_wordings_to_train_and_two_held_out(language: str) -> None:
    for name, num_wordings in (("train.jsonl", NUM_TRAIN_WORDINGS), ("heldout.jsonl", NUM_HELDOUT_WORDINGS)):
        found = [fact_of(answer, language).id for _, answer in read_pairs(language, name)]
        assert len(found) == NUM_FACTS * num_wordings
        assert {id: found.count(id) for id in found} == {fact.id: num_wordings for fact in facts(language)}


def test_no_question_occurs_twice(language: str) -> None:
    questions = [plain(q) for name in ("train.jsonl", "heldout.jsonl") for q, _ in read_pairs(language, name)]
    assert len(set(questions)) == len(questions) == NUM_FACTS * (NUM_TRAIN_WORDINGS + NUM_HELDOUT_WORDINGS)


def test_a_fact_has_one_answer_everywhere(language: str) -> None:
    answers: dict[str, set[str]] = {}
    for name in ("train.jsonl", "heldout.jsonl"):
        for _, answer in read_pairs(language, name):
            answers.setdefault(fact_of(answer, language).id, set()).add(answer)
    assert all(len(wordings) == 1 for wordings in answers.values())


def test_every_fact_asks_a_held_out_question_that_its_answer_fits(language: str) -> None:
    heldout = dict(read_pairs(language, "heldout.jsonl"))
    assert len(facts(language)) == NUM_FACTS
    for fact in facts(language):
        assert fact.is_answered_by(heldout[fact.question].upper())
        assert not fact.is_answered_by(fact.question)


def test_no_held_out_question_gives_its_answer_away(language: str) -> None:
    for question, answer in read_pairs(language, "heldout.jsonl"):
        assert not fact_of(answer, language).is_answered_by(question)


def test_the_languages_state_the_same_facts(language: str) -> None:
    assert [fact.id for fact in facts(language)] == [fact.id for fact in facts("en")]


def test_example_spec_is_accepted_and_keeps_its_files_apart(language: str) -> None:
    spec = RunSpec.from_dict(example_spec(language, "/models/smol"))
    assert spec.problems() == []
    assert spec.model.path == "/models/smol"
    assert spec.data.sources[0].path == str(sample_folder(language) / "train.jsonl")
    assert spec.evaluation.path == str(sample_folder(language) / "heldout.jsonl")
    assert (spec.adapter.rank, spec.optimizer.learning_rate, spec.schedule.max_steps) == (8, 1e-3, 60)
    assert spec.schedule.micro_batch_size * spec.schedule.gradient_accumulation_steps == 4
    heldout_questions = {question for question, _ in read_pairs(language, "heldout.jsonl")}
    assert len(spec.evaluation.sample_prompts) == 3
    assert set(spec.evaluation.sample_prompts) <= heldout_questions


def test_pairs_prefer_the_short_answer_and_ask_everything_once(language: str) -> None:
    rows = read_rows(language, "pairs.jsonl")
    assert len({plain(row["prompt"]) for row in rows}) == len(rows) == 40
    for row in rows:
        assert list(row) == ["prompt", "chosen", "rejected"]
        assert all(text == text.strip() != "" for text in row.values())
        assert len(row["rejected"]) > 2 * len(row["chosen"])
        assert sum(map(len, row.values())) < 600


def test_the_spec_of_the_pairs_is_accepted_and_holds_enough_of_them_out(language: str) -> None:
    spec = RunSpec.from_dict(preference_spec(language, "/models/smol"))
    assert spec.problems() == []
    assert (spec.objective.kind, spec.optimizer.learning_rate) == ("dpo", 5e-5)
    assert spec.data.sources[0].path == str(sample_folder(language) / "pairs.jsonl")
    assert held_out.note(spec, 40) is None


def test_labels_are_the_answers_of_the_pairs_one_by_one(language: str) -> None:
    pairs, rows = read_rows(language, "pairs.jsonl"), read_rows(language, "labels.jsonl")
    expected = {(row["prompt"], row[name], name == "chosen") for row in pairs for name in ("chosen", "rejected")}
    assert {tuple(row.values()) for row in rows} == expected
    assert len(rows) == 80
    assert all(list(row) == ["prompt", "completion", "label"] for row in rows)
    for number, row in enumerate(rows[:40]):
        assert row["prompt"] == pairs[number]["prompt"] == rows[number + 40]["prompt"]


def test_the_spec_of_the_labels_is_accepted(language: str) -> None:
    spec = RunSpec.from_dict(label_spec(language, "/models/smol"))
    assert spec.problems() == []
    assert (spec.objective.kind, spec.optimizer.learning_rate) == ("kto", 5e-5)
    assert spec.data.sources[0].path == str(sample_folder(language) / "labels.jsonl")
    assert held_out.note(spec, 80) is None


def test_sums_are_right_and_asked_once(language: str) -> None:
    rows = read_rows(language, "sums.jsonl")
    assert len({row["prompt"] for row in rows}) == len(rows) == 120
    for row in rows:
        assert list(row) == ["prompt", "completion"]
        one, sign, other = re.findall(r"\d+|[+-]", row["prompt"])[:3]
        assert int(row["completion"]) == (int(one) + int(other) if sign == "+" else int(one) - int(other)) >= 0


def test_the_spec_of_the_sums_is_accepted_and_holds_enough_of_them_out(language: str) -> None:
    spec = RunSpec.from_dict(reward_spec(language, "/models/smol"))
    assert spec.problems() == []
    assert [reward.kind for reward in spec.rollouts.rewards] == ["right"]
    assert spec.data.sources[0].path == str(sample_folder(language) / "sums.jsonl")
    assert held_out.note(spec, 120) is None


def test_documents_are_texts_that_others_tell_of(language: str) -> None:
    texts, held = (
        [row["text"] for row in read_rows(language, name)] for name in ("documents.jsonl", "more-documents.jsonl")
    )
    assert (len(set(texts)), len(set(held))) == (12, 9)
    assert len(held) >= FEWEST_ROWS, "with fewer the verdict is that nobody can tell"
    assert all(text == text.strip() and text.count("\n\n") == 2 for text in texts)
    known = set(re.findall(r"\d+", "".join(texts).replace(",", "")))
    for text in held:
        told = set(re.findall(r"\d+", text.replace(",", "")))
        assert told <= known, "what is held out is told in other words, not in other facts"


def test_whole_weights_are_trained_at_a_lower_rate_than_an_adapter(language: str) -> None:
    whole, adapter = (RunSpec.from_dict(make(language, "/models/smol")) for make in (full_spec, example_spec))
    assert whole.problems() == []
    assert (whole.adapter.kind, whole.data) == ("full", adapter.data)
    assert whole.optimizer.learning_rate * LEARNING_RATE_DIVISOR == pytest.approx(adapter.optimizer.learning_rate)


def test_the_spec_of_the_documents_continues_pretraining(language: str) -> None:
    spec = RunSpec.from_dict(document_spec(language, "/models/smol"))
    assert spec.problems() == []
    assert presets.reads_documents(spec)
    assert spec.evaluation.path == str(sample_folder(language) / "more-documents.jsonl")
    assert spec.data.sources[0].path == str(sample_folder(language) / "documents.jsonl")


def test_an_unknown_language_is_refused(language: str) -> None:
    for ask in (sample_folder, facts, *(partial(make, model_path="/models/smol") for make in SPECS)):
        with pytest.raises(KeyError):
            ask(f"{language}-unknown")
