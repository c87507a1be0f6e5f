"""What several streams and a branch beside attention take, by the shapes of a model's tensors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.core.test_planner import fused
from tests.core.test_shared_keys import TOKENS, _card, _layer
from tests.tiny_model import build_tiny_model
from tunesmith_core import altup_memory, fused_memory
from tunesmith_core.mixer_memory import mixers
from tunesmith_core.model_cards import read_model_card

NUM_STREAMS, RANK = 3, 12
LAYER = {name: shape for name, shape in _layer(64, 32, 32).items() if name != "layer_scalar"}
ALTUP = {
    "altup.modality_router.weight": (NUM_STREAMS, 64),
    "laurel.linear_left.weight": (RANK, 64),
    "laurel.linear_right.weight": (64, RANK),
}
PLAIN, STREAMS = _card([_layer(64, 32, 32)] * 2), _card([{**LAYER, **ALTUP}] * 2)


def test_attention_of_layers_with_streams_may_share_keys() -> None:
    assert mixers(STREAMS, False) == mixers(PLAIN, False)
    assert (altup_memory.num_streams(STREAMS), altup_memory.num_streams(PLAIN)) == (NUM_STREAMS, 1)


@pytest.mark.parametrize("level", ["none", "smart", "full"])
def test_the_streams_that_enter_each_layer_are_kept_in_place_of_one(level: str) -> None:
    def taken(num_layers: int) -> int:
        card = _card([{**LAYER, **ALTUP}] * num_layers)
        return fused_memory.activation_bytes(fused({}), card, 2, TOKENS, level)

    def plain(num_layers: int) -> int:
        return fused_memory.activation_bytes(fused({}), _card([_layer(64, 32, 32)] * num_layers), 2, TOKENS, level)

    assert taken(3) - taken(2) == plain(3) - plain(2) + 2 * TOKENS * 64 * (NUM_STREAMS - 1)


def test_what_lies_beside_the_layers_is_counted() -> None:
    extra = fused_memory.COLUMN_ALIGNMENT
    # The streams and their gradients, coefficients and theirs, and what is embedded.
    number = 2 * NUM_STREAMS * 64 + 2 * (NUM_STREAMS**2 + NUM_STREAMS) + 64 + extra
    assert altup_memory.beside(STREAMS, extra) == number
    # What Laurel has between its products and gives, and the gradients of both.
    laurel = 2 * (RANK + extra) + 2 * 64 + extra
    assert altup_memory.block(STREAMS, extra) == max(laurel, 3 * (64 + extra))
    assert altup_memory.tile_bytes(STREAMS, 2) == 96 * 3
    assert altup_memory.passing_bytes(STREAMS, 2) == altup_memory.ROUTER_NUMBERS * 64 * 2
    others = altup_memory.beside(PLAIN, extra), altup_memory.block(PLAIN, extra), altup_memory.tile_bytes(PLAIN, 2)
    assert (*others, altup_memory.passing_bytes(PLAIN, 2)) == (0, 0, 0, 0)


def test_a_width_for_each_layer_counts_as_the_largest(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="is not among the launcher's packages")
    folder = build_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": [96, 128]}))
    assert read_model_card(folder).intermediate_size == 128
