"""Model cards: what config.json, the weight headers and the model's own card say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_safetensors
from tunesmith_core.model_cards import list_models, read_model_card

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 16,
    "vocab_size": 32,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}
SHAPES = {
    "model.embed_tokens.weight": [32, 8],
    "model.norm.weight": [8],
    "model.layers.0.self_attn.q_proj.weight": [16, 8],
    "model.layers.0.mlp.down_proj.weight": [8, 16],
}


def write_model(folder: Path, config: dict[str, Any] | None = None, shapes: dict[str, list[int]] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    write_safetensors(folder / "model.safetensors", shapes or SHAPES)
    return folder


def test_a_card_holds_the_numbers_of_the_files(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "Qwen3-tiny")
    card = read_model_card(folder)
    assert (card.name, card.model_type, card.num_parameters) == ("Qwen3-tiny", "qwen3", 256 + 8 + 128 + 128)
    assert (card.hidden_size, card.num_layers, card.num_heads, card.num_kv_heads, card.head_dim) == (8, 1, 4, 2, 4)
    assert (card.intermediate_size, card.vocab_size) == (16, 32)
    assert (card.tied, card.dtype, card.has_chat_template, card.licence) == (True, "bfloat16", False, "Apache-2.0")
    assert card.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert card.linear_shapes == {
        "model.layers.0.self_attn.q_proj.weight": (16, 8),
        "model.layers.0.mlp.down_proj.weight": (8, 16),
    }
    assert card.num_linear_parameters == 256


def test_an_output_head_of_its_own_is_neither_tied_nor_a_layer_for_adapters(tmp_path: Path) -> None:
    card = read_model_card(write_model(tmp_path / "m", shapes={**SHAPES, "lm_head.weight": [32, 8]}))
    assert not card.tied
    assert "lm_head.weight" not in card.linear_shapes


def test_a_model_with_eyes_keeps_its_numbers_one_level_deeper(tmp_path: Path) -> None:
    text = {**CONFIG, "model_type": "gemma3_text"}
    card = read_model_card(write_model(tmp_path / "m", {"model_type": "gemma3", "text_config": text}))
    assert (card.hidden_size, card.licence) == (8, "Gemma terms")


def test_other_names_and_missing_numbers_have_their_usual_meaning(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 32, "n_positions": 128}
    card = read_model_card(write_model(tmp_path / "m", config))
    assert (card.num_kv_heads, card.head_dim, card.intermediate_size) == (2, 4, 32)
    assert (card.dtype, card.licence) == ("float32", "")


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("---\nlicense: mit\n---\n", "mit"),
        ('---\nlicense: other\nlicense_name: "my terms"\n---\n', "my terms"),
        ("# A model\n", "Apache-2.0"),
        ("license: 'a:b:c'\n", "a:b:c"),
        ("\n" * 39 + "license: mit\n", "mit"),
        ("\n" * 40 + "license: mit\n", "Apache-2.0"),
    ],
)
def test_the_models_own_card_tells_the_licence_first(tmp_path: Path, head: str, licence: str) -> None:
    folder = write_model(tmp_path / "m")
    (folder / "README.md").write_text(head)
    assert read_model_card(folder).licence == licence


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "gpt_neo", "num_heads": 2, "num_layers": 1, "hidden_size": 8}, (2, 1, 8)),
        ({"model_type": "mpt", "n_heads": 2, "n_layers": 1, "d_model": 8}, (2, 1, 8)),
        (
            # The other number is that of an encoder.
            {"model_type": "bart", "decoder_attention_heads": 2, "decoder_layers": 1, "num_hidden_layers": 6}
            | {"d_model": 8},
            (2, 1, 8),
        ),
        # No attention, and nothing else said: the weights tell the rest.
        ({"model_type": "rwkv"}, (1, 1, 8)),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_numbers_of_every_family_are_found(config: dict[str, Any], expected: tuple[int, ...], tmp_path: Path) -> None:
    card = read_model_card(write_model(tmp_path / "m", config))
    assert (card.num_heads, card.num_layers, card.hidden_size) == expected
    assert card.vocab_size == 32


def test_a_config_may_only_say_that_there_is_one_head_of_keys(tmp_path: Path) -> None:
    config = {"model_type": "falcon", "num_attention_heads": 4, "multi_query": True}
    assert read_model_card(write_model(tmp_path / "one", config)).num_kv_heads == 1
    of_groups = {**config, "new_decoder_architecture": True, "num_kv_heads": 2}
    assert read_model_card(write_model(tmp_path / "two", of_groups)).num_kv_heads == 2


def test_experts_and_routers_are_no_linear_layers(tmp_path: Path) -> None:
    shapes = {
        **SHAPES,
        "model.layers.0.mlp.experts.0.up_proj.weight": [16, 8],
        "model.layers.0.mlp.experts.gate_up_proj": [4, 32, 8],
        "model.layers.0.mlp.gate.weight": [4, 8],
        "model.layers.0.mamba.A_log": [16, 8],
    }
    card = read_model_card(write_model(tmp_path / "m", shapes=shapes))
    assert set(card.linear_shapes) == set(SHAPES) - {"model.embed_tokens.weight", "model.norm.weight"}
    assert len(card.expert_shapes) == 3


def test_the_list_holds_usable_models_only(tmp_path: Path) -> None:
    write_model(tmp_path / "b")
    write_model(tmp_path / "a")
    write_model(tmp_path / ".incoming")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert [card.name for card in list_models(tmp_path)] == ["a", "b"]
    assert list_models(tmp_path / "none") == []


def test_a_number_that_is_no_size_is_not_taken(tmp_path: Path) -> None:
    config = CONFIG | {"head_dim": None, "intermediate_size": None, "num_attention_heads": 1}
    card = read_model_card(write_model(tmp_path / "m", config | {"num_key_value_heads": None}))
    assert (card.head_dim, card.intermediate_size) == (8, 32)
    assert (card.num_heads, card.num_kv_heads) == (1, 1)


def test_heads_are_64_wide_where_nobody_says_how_many(tmp_path: Path) -> None:
    shapes = {"rwkv.blocks.0.attention.key.weight": [192, 192]}
    card = read_model_card(write_model(tmp_path / "m", {"model_type": "rwkv", "hidden_size": 192}, shapes))
    assert (card.num_heads, card.head_dim) == (3, 64)


def test_layers_are_counted_by_the_names_of_tensors_and_experts_are_none(tmp_path: Path) -> None:
    places = [(0, 0), *((1, number) for number in range(8))]
    shapes = {f"model.layers.{layer}.mlp.experts.{number}.up_proj.weight": [16, 8] for layer, number in places}
    assert read_model_card(write_model(tmp_path / "m", {"model_type": "rwkv"}, shapes)).num_layers == 2


def test_a_model_without_matrices_has_the_smallest_sizes(tmp_path: Path) -> None:
    card = read_model_card(write_model(tmp_path / "m", {"model_type": "rwkv"}, {"norm.weight": [8]}))
    assert (card.vocab_size, card.hidden_size, card.num_layers, card.num_heads, card.head_dim) == (1, 1, 1, 1, 1)
