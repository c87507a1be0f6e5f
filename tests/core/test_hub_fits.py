"""Whether a model would fit, told by its size alone."""

from __future__ import annotations

import dataclasses

import pytest

from tunesmith_core.hardware import Hardware
from tunesmith_core.hub_fits import likely_fits, usual_card
from tunesmith_core.model_library import USUAL_TOKENS, fits
from tunesmith_core.planner import plan
from tunesmith_core.spec import RunSpec

GIB = 1 << 30


def card_of(gib: int) -> Hardware:
    return Hardware("cuda", "GPU", gib * GIB, gib * GIB, 64 * GIB, 64 * GIB, 0, (8, 9))


@pytest.mark.parametrize("size", [1, 1000, 135_000_000, 600_000_000, 1_700_000_000, 8_200_000_000, 70_000_000_000])
def test_the_shapes_come_to_the_size(size: int) -> None:
    card = usual_card(size)
    counted = card.num_linear_parameters + card.vocab_size * card.hidden_size
    if size > 10**6:
        assert counted == pytest.approx(size, rel=0.05)
    assert card.num_parameters == size
    assert card.num_layers >= 1


@pytest.mark.parametrize(
    ("size", "vocabulary", "layers", "width"),
    [
        (134_515_008, 49_152, 30, 576),
        (596_049_920, 151_936, 28, 1024),
        (1_235_814_400, 128_256, 16, 2048),
        (8_030_261_248, 128_256, 32, 4096),
        (70_553_706_496, 128_256, 80, 8192),
    ],
    ids=["SmolLM2-135M", "Qwen3-0.6B", "Llama-3.2-1B", "Llama-3.1-8B", "Llama-3.3-70B"],
)
def test_the_shapes_are_near_those_of_a_real_model(size: int, vocabulary: int, layers: int, width: int) -> None:
    card = usual_card(size)
    assert 0.55 < card.vocab_size / vocabulary < 1.5
    assert 0.7 < card.num_layers / layers <= 1.5
    assert 0.8 < card.hidden_size / width < 1.25


def test_a_larger_model_needs_a_larger_card() -> None:
    order = ["fits", "tight", "unmeasured", "exceeds"]
    assert likely_fits(0, card_of(24)) == {}
    for method in ("qlora", "lora"):
        sizes = (135_000_000, 1_700_000_000, 8_000_000_000, 14_000_000_000, 70_000_000_000)
        verdicts = [order.index(likely_fits(size, card_of(24))[method]) for size in sizes]
        assert verdicts == sorted(verdicts)
        assert (verdicts[0], verdicts[-1]) == (0, 3)
    assert likely_fits(8_000_000_000, card_of(12))["lora"] == "exceeds"
    assert likely_fits(8_000_000_000, card_of(12))["qlora"] != "exceeds"


def test_a_small_model_is_judged_alike_by_its_size_and_by_its_shapes() -> None:
    shapes = usual_card(135_000_000)
    small = dataclasses.replace(shapes, num_layers=30, hidden_size=576, intermediate_size=1536, vocab_size=49_152)
    computer = Hardware("cpu", "CPU", 16 * GIB, 12 * GIB, 16 * GIB, 12 * GIB, 0, (0, 0))
    assert fits(small, computer) == likely_fits(135_000_000, computer) == {"lora": "fits"}
    run = plan(RunSpec(), computer, card=small, longest_tokens=USUAL_TOKENS)
    assert run.verdict == "fits"
