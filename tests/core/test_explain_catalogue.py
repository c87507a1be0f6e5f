"""The catalogue of causes: complete, sound, and every signature finds what it was written for and no more."""

from __future__ import annotations

import json
import re

from tests.core.catalogue_expressions import keys, sample
from tunesmith_core.actions import ACTIONS, doable
from tunesmith_core.error_codes import CODES
from tunesmith_core.explain import catalogue, explain
from tunesmith_core.explain.catalogue import Signature, pattern, repair, signatures
from tunesmith_core.messages import said

FIELDS = {"key", "match", "weight", "place", "with", "without", "soft", "variant"}
CAUSES = list(json.loads((catalogue.FOLDER / "catalogue.json").read_text(encoding="utf-8"))["causes"])


def test_every_cause_is_a_known_code_and_has_signatures() -> None:
    assert set(list(CODES)[:43]) < set(CAUSES), "every cause that field reports taught us"
    assert set(CAUSES) - set(list(CODES)[:43]) == {"memory-full"}
    assert {signature.code for signature in signatures()} == set(CAUSES)
    assert catalogue.version() >= 1


def test_fields_are_known() -> None:
    data = json.loads((catalogue.FOLDER / "catalogue.json").read_text(encoding="utf-8"))
    for code, entries in data["causes"].items():
        for entry in entries:
            assert set(entry) <= FIELDS, (code, entry)
            assert entry.get("place", "") in ("", "exception", "frame"), entry
            assert 0 < entry["weight"] < 100, entry


def test_quick_words_belong_to_their_expressions() -> None:
    """A wrong word hides a signature for good; `python -m tests.core.catalogue_expressions` writes the right ones."""
    for signature in signatures():
        assert list(signature.key) == keys(signature.match), signature


def test_every_signature_finds_a_text_of_its_own_and_misses_it_without_its_words() -> None:
    for signature in signatures():
        for expression in (signature.match, signature.needed, signature.forbidden):
            pattern(expression)
        text = sample(signature.match)
        if "{2,}" not in signature.match and "{3,}" not in signature.match:
            assert pattern(signature.match).search(text), signature
        if signature.key != ("",):
            near_miss = re.sub("|".join(map(re.escape, signature.key)), "~", text, flags=re.IGNORECASE)
            assert not pattern(signature.match).search(near_miss), signature


def test_every_cause_and_variant_has_words_and_known_actions() -> None:
    for signature in signatures():
        for variant in ("", signature.variant):
            words, actions = repair(signature.code, variant)
            assert len(words) > 15
            assert said(words, "zh_CN") != words
            assert actions
            assert set(actions) <= set(ACTIONS)
    repairs = json.loads((catalogue.FOLDER / "repairs.json").read_text(encoding="utf-8"))
    assert set(repairs) == set(CAUSES)
    assert {"general"} <= set.intersection(*(set(variants) for variants in repairs.values()))


def test_variants_are_described() -> None:
    repairs = json.loads((catalogue.FOLDER / "repairs.json").read_text(encoding="utf-8"))
    named = {(signature.code, signature.variant) for signature in signatures() if signature.variant}
    assert {pair for pair in named if pair[1] not in repairs[pair[0]]} == set()


def test_a_button_stands_for_what_the_window_can_do() -> None:
    assert doable(("free-disk", "retry", "of-a-newer-version", "use-cpu")) == ["free-disk", "use-cpu"]


def test_signature_defaults() -> None:
    signature = Signature("cuda-oom", ("x",), "x", 50)
    assert (signature.place, signature.soft, signature.variant) == ("", False, "")


def test_chinese_answers_are_chinese() -> None:
    for text in ("RuntimeError: CUDA error: out of memory", "nothing of note"):
        assert re.search(r"[\u4e00-\u9fff]", said(explain(text).fix, "zh_CN"))
