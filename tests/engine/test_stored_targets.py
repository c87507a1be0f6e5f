"""Rows that keep what a bigger model found likely, as targets: numbers and bytes of tokens, cuts, what does not fit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase

from tests.engine.distillation.stored_rows import write_stored
from tests.engine.prepared import prepare
from tunesmith_core.datafmt import StoredAnswer
from tunesmith_core.errors import TunesmithError
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import IGNORED_LABEL, Example
from tunesmith_engine.data import stored as module
from tunesmith_engine.data.preview import preview
from tunesmith_engine.data.stored import StoredTargets, fingerprint
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.packed.pack import make_packed_batch, soft_tokens
from tunesmith_engine.train.loss import make_batch

MakeSpec = Callable[..., RunSpec]
CPU = torch.device("cpu")


@pytest.fixture
def kd_spec(tiny_spec: MakeSpec, tiny_model: Path, tmp_path: Path) -> RunSpec:
    """A spec whose rows keep what the model itself finds likely."""
    spec = tiny_spec()
    path = tmp_path / "stored.jsonl"
    write_stored(spec, tiny_model, path)
    spec.objective.kind, spec.data.sources[0].path = "kd", str(path)
    return spec


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    from tests.tiny_model import build_tiny_model

    return load_tokenizer(build_tiny_model(tmp_path_factory.mktemp("model") / "tiny"))


def _rows(spec: RunSpec) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(spec.data.sources[0].path).read_text(encoding="utf-8").splitlines()]


def _write(spec: RunSpec, rows: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    Path(spec.data.sources[0].path).write_text(lines, encoding="utf-8")


def _published(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return a row as logs of chat completions are: tokens by text and bytes, some without bytes."""
    kept = row["logprobs"]
    special = set(tokenizer.all_special_tokens)

    def token(number: int, logprob: float) -> dict[str, Any]:
        name = str(tokenizer.convert_ids_to_tokens(number))
        if name in special:
            return {"token": name, "bytes": None, "logprob": logprob}
        return {"token": "\ufffd", "bytes": [module.LETTERS[letter] for letter in name], "logprob": logprob}

    content = [
        {**token(number, -0.1), "top_logprobs": [token(*each) for each in zip(ids, values, strict=True)]}
        for number, ids, values in zip(kept["token_ids"], kept["top_ids"], kept["top_logprobs"], strict=True)
    ]
    return {**row, "logprobs": {"content": content}}


def test_logged_chat_completions_are_read_as_numbers_are(kd_spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    ours = prepare(kd_spec, tokenizer).train
    _write(kd_spec, [_published(row, tokenizer) for row in _rows(kd_spec)])
    theirs = prepare(kd_spec, tokenizer).train
    assert len(ours) == len(theirs) == 16
    for one, other in zip(ours, theirs, strict=True):
        assert one.soft is not None
        assert other.soft is not None
        for name in ("counts", "ids", "shares"):
            assert np.array_equal(getattr(one.soft, name), getattr(other.soft, name))


def test_targets_are_of_the_learned_tokens_and_sum_to_one(
    kd_spec: RunSpec, tokenizer: PreTrainedTokenizerBase
) -> None:
    data = prepare(kd_spec, tokenizer)
    most = max(int(example.soft.counts.max()) for example in data.train if example.soft)
    assert {example.soft.most for example in data.train if example.soft} == {most}
    for example in data.train:
        soft = example.soft
        assert soft is not None
        starts = np.cumsum(soft.counts) - soft.counts
        learned = example.input_ids[example.labels != IGNORED_LABEL]
        assert soft.ids[starts].tolist() == learned.tolist(), "the written one comes first"
        assert np.add.reduceat(soft.shares, starts) == pytest.approx(np.ones(len(starts)), abs=1e-6)
    kd_spec.objective.written_share = 0.5
    mixed = prepare(kd_spec, tokenizer)
    first, before = mixed.train[0].soft, data.train[0].soft
    assert first is not None
    assert before is not None
    assert first.shares[0] == pytest.approx(0.5 + 0.5 * before.shares[0])
    assert mixed.tokens_hash() != data.tokens_hash(), "a checkpoint of the one is none of the other"
    assert "dataset-probabilities-few" in data.notes, "an untrained model finds everything likely"
    assert "on average" in data.notes["dataset-probabilities-few"]


def test_a_cut_keeps_the_targets_of_what_is_left(kd_spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    whole = prepare(kd_spec, tokenizer).train[3]
    assert whole.soft is not None
    kd_spec.data.context_length = len(whole.input_ids) - 4
    cut = prepare(kd_spec, tokenizer).train[3]
    assert cut.soft is not None
    assert 0 < cut.num_trained_tokens == len(cut.soft.counts) < len(whole.soft.counts)
    num = len(cut.soft.ids)
    assert num == cut.soft.counts.sum()
    assert np.array_equal(cut.soft.ids, whole.soft.ids[:num])
    assert np.array_equal(cut.soft.shares, whole.soft.shares[:num])


def test_both_ways_see_the_same_targets(kd_spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = prepare(kd_spec, tokenizer).train[:3]
    packed, padded = make_packed_batch(rows, CPU, num_trained=200), make_batch(rows, 0, CPU)
    assert packed.soft is not None
    assert padded.soft is not None
    num = sum(row.num_trained_tokens for row in rows)
    assert torch.equal(packed.soft.ids[:num], padded.soft.ids)
    assert torch.equal(packed.soft.shares[:num], padded.soft.shares)
    assert torch.equal(packed.soft.ids[:num, 0], packed.targets[:num])
    assert not packed.soft.shares[num:].any()
    assert soft_tokens([Example(rows[0].input_ids, rows[0].labels)], CPU) is None


ANSWER = "It is 1"


def _example(tokenizer: PreTrainedTokenizerBase, answer: str = ANSWER) -> tuple[Example, list[int]]:
    prompt = tokenizer("Who?")["input_ids"]
    kept = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
    ids = np.array([*prompt, *kept], np.int32)
    labels = ids.copy()
    labels[: len(prompt)] = IGNORED_LABEL
    return Example(ids, labels), kept


def _targets(tokenizer: PreTrainedTokenizerBase, **changes: Any) -> Any:
    example, tokens = _example(tokenizer)
    likeliest = tuple(((token, -0.5), (3, -1.5)) for token in tokens)
    values = {"text": ANSWER, "tokens": tuple(tokens), "likeliest": likeliest, "vocabulary": fingerprint(tokenizer)}
    return StoredTargets(tokenizer, 0.0, []).of(example, StoredAnswer(**{**values, **changes}), "rows.jsonl, line 7")


def test_what_was_not_kept_is_learned_as_written(tokenizer: PreTrainedTokenizerBase) -> None:
    _, tokens = _example(tokenizer)
    head = tuple(tokens[:-1])
    soft = _targets(tokenizer, tokens=head, likeliest=tuple(((token, -0.5), (3, -1.5)) for token in head))
    assert soft.counts.tolist() == [2] * len(head) + [1], "its end was not logged"
    assert soft.shares[-1] == 1.0
    assert soft.shares[0] == pytest.approx(math.exp(-0.5) / (math.exp(-0.5) + math.exp(-1.5)))
    nothing = _targets(tokenizer, likeliest=((), *[((token, 0.0),) for token in tokens[1:]]))
    assert (nothing.counts[0], nothing.shares[0]) == (1, 1.0)
    beyond = _targets(tokenizer, likeliest=tuple(((10**6, -0.1), (token, -2.0)) for token in tokens))
    assert beyond.shares.tolist() == [1.0] * len(tokens), "a token that the model has no row for"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vocabulary": "another"}, "another tokenizer"),
        ({"text": "It is 10"}, "other tokens here"),
        ({"tokens": (b"It", b" is", b" 1"), "likeliest": (((b"It", -0.1),),) * 3, "vocabulary": ""}, "other tokens"),
        ({"tokens": (b"\xff\xff",), "likeliest": (((b"It", -0.1),),), "vocabulary": ""}, "other tokens"),
    ],
)
def test_what_does_not_fit_is_named(
    changes: dict[str, Any], reason: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    with pytest.raises(TunesmithError, match=f"rows.jsonl, line 7: .*{reason}") as caught:
        _targets(tokenizer, **changes)
    assert caught.value.code == "dataset-parse-error"


def test_rows_that_do_not_fit_are_left_out_and_the_first_is_named_where_none_is_left(
    kd_spec: RunSpec, tokenizer: PreTrainedTokenizerBase
) -> None:
    rows = _rows(kd_spec)
    kd_spec.data.skip_bad_rows = True
    rows[2]["logprobs"]["vocabulary"] = "another"
    _write(kd_spec, rows)
    data = prepare(kd_spec, tokenizer)
    assert (len(data.train), data.stats.num_bad_rows) == (15, 1)
    for row in rows:
        row["logprobs"]["vocabulary"] = "another"
    _write(kd_spec, rows)
    with pytest.raises(TunesmithError, match="line 1: the probabilities of this row"):
        prepare(kd_spec, tokenizer)


def test_another_end_of_the_answer_is_left_out(tokenizer: PreTrainedTokenizerBase) -> None:
    """A bigger model may end its answers with a token that the template doesn't write."""
    _, tokens = _example(tokenizer)
    other = (*tokens[:-1], 0)
    soft = _targets(tokenizer, tokens=other, likeliest=tuple(((token, -0.5),) for token in other))
    assert soft.ids.tolist() == tokens
    assert _targets(tokenizer).counts.tolist() == [2] * len(tokens), "the same end has targets of its own"


def test_new_words_leave_the_fingerprint_as_it_is(tmp_path: Path) -> None:
    from tests.tiny_model import build_tiny_model

    own = load_tokenizer(build_tiny_model(tmp_path / "tiny"))
    before = fingerprint(own)
    own.add_tokens(["Okvarel"])
    assert fingerprint(own) != before
    assert fingerprint(own, ["Okvarel"]) == before


def test_bytes_of_a_sentencepiece_vocabulary() -> None:
    tokens = {"\u2581is": b" is", "<0x0A>": b"\n", "a": b"a", "decade": b"decade"}
    tokens |= {"<0x0Ab": b"<0x0Ab", "a0Ab1>": b"a0Ab1>"}
    assert {token: module._sentence_piece(token) for token in tokens} == tokens
    assert module._byte_level("\u0120is") == b" is"
    assert module._byte_level("\u2581") == "\u2581".encode(), "no letter of a byte"


def test_a_preview_names_rows_that_do_not_fit(kd_spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = _rows(kd_spec)
    rows[1]["logprobs"]["vocabulary"] = "another"
    _write(kd_spec, rows)
    found = preview(kd_spec, tokenizer, 4)
    assert (found["num_rows"], found["num_skipped"]) == (15, 1)
    (problem,) = found["problems"]
    assert problem["line"] == 2
    assert "another tokenizer" in problem["message"]
    assert "found likely" in found["reasons"][0]
    for row in rows:
        row["logprobs"]["vocabulary"] = "another"
    _write(kd_spec, rows)
    with pytest.raises(TunesmithError, match="line 1: the probabilities"):
        preview(kd_spec, tokenizer, 4)
