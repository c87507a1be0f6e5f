"""Answers by the fused model are those of transformers, token for token, for every family and rows of any lengths."""

from __future__ import annotations

import pytest

from tests.engine.fused.families import FUSED
from tests.engine.fused.test_model import adapted, compute
from tunesmith_core.sampling import Sampling
from tunesmith_engine.decode.fused import FusedDecoder
from tunesmith_engine.decode.plain import PlainDecoder

PROMPTS = [[3, 5, 7], [4], [9, 8, 7, 6, 5, 31, 44, 100, 17, 3, 2, 1]]


@pytest.mark.parametrize("family", FUSED)
def test_the_likeliest_answers_are_those_of_transformers(family: str) -> None:
    model = adapted(family)
    plain = PlainDecoder(model, compute())
    expected = [plain.generate(PROMPTS, Sampling(12), (), with_adapter=with_adapter) for with_adapter in (True, False)]
    fused = FusedDecoder.attach(model, compute())
    for with_adapter, answers in zip((True, False), expected, strict=True):
        assert fused.generate(PROMPTS, Sampling(12), (), with_adapter=with_adapter) == answers
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            assert fused.generate([prompt], Sampling(12), (), with_adapter=with_adapter) == [answer]
