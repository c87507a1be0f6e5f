"""What config.json says of a model's sizes and its weights contradict: layers, width, experts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import write_safetensors
from tests.core.test_foreign_model import edit, refusal
from tests.core.test_foreign_model import folder as folder
from tunesmith_core.model_folder import known_tokens, open_model_folder


def layers(*numbers: int, spare: str = "") -> dict[str, list[int]]:
    names = ("self_attn.q_proj.weight", "mlp.up_proj.weight")
    shapes = {f"model.layers.{number}.{name}": [4, 8] for number in numbers for name in names}
    return shapes | {"model.embed_tokens.weight": [16, 8]} | ({spare: [4, 8]} if spare else {})


def test_a_config_that_cuts_the_model_is_refused(folder: Path) -> None:
    write_safetensors(folder / "model.safetensors", layers(0, 1, 2))
    edit(folder / "config.json", num_hidden_layers=2)
    assert "config.json: names 2 layers, but the weights hold 3" in refusal(folder).message
    edit(folder / "config.json", num_hidden_layers=3)
    open_model_folder(folder)
    edit(folder / "config.json", num_hidden_layers=None)
    open_model_folder(folder)
    edit(folder / "config.json", num_hidden_layers=4)
    assert "config.json: names 4 layers, but the weights hold 3" in refusal(folder).message


def test_a_hidden_size_that_no_layer_has_is_refused(folder: Path) -> None:
    write_safetensors(folder / "model.safetensors", layers(0, 1))
    edit(folder / "config.json", num_hidden_layers=2, hidden_size=8)
    open_model_folder(folder)
    edit(folder / "config.json", hidden_size=4)
    assert "hidden_size is 4, but the layers in the weights read 8 numbers of a token" in refusal(folder).message
    # An embedding of another width, whose numbers a product makes as many as layers read.
    narrow = {**layers(0, 1), "model.embed_tokens.weight": [16, 4]}
    write_safetensors(folder / "model.safetensors", narrow)
    open_model_folder(folder)


def test_a_layer_of_another_kind_behind_the_last_is_a_layer(folder: Path) -> None:
    """As a hybrid has whose last layer alone has attention."""
    spare = "model.layers.2.linear_attn.in_proj.weight"
    write_safetensors(folder / "model.safetensors", layers(0, 1, spare=spare))
    edit(folder / "config.json", num_hidden_layers=2)
    assert "config.json: names 2 layers, but the weights hold 3" in refusal(folder).message
    edit(folder / "config.json", num_hidden_layers=3)
    open_model_folder(folder)


def test_an_embedding_may_be_narrower_than_the_layers(folder: Path) -> None:
    """As in OPT 350M."""
    edit(folder / "config.json", hidden_size=8, vocab_size=40, num_hidden_layers=2)
    write_safetensors(folder / "model.safetensors", layers(0, 1) | {"model.embed_tokens.weight": [40, 2]})
    assert "by vocab_size, the model would be larger than its weights" in refusal(folder).message
    edit(folder / "config.json", word_embed_proj_dim=2)
    open_model_folder(folder)


def test_experts_that_the_weights_do_not_hold_are_refused(folder: Path) -> None:
    experts = {f"model.layers.1.mlp.experts.{number}.up_proj.weight": [4, 8] for number in range(4)}
    write_safetensors(folder / "model.safetensors", layers(0, 1) | experts)
    edit(folder / "config.json", num_hidden_layers=2, num_local_experts=4)
    open_model_folder(folder)
    edit(folder / "config.json", num_local_experts=8)
    assert "config.json: names 8 experts, but the weights hold 4" in refusal(folder).message
    edit(folder / "config.json", num_local_experts=4, num_experts_per_tok=5)
    assert "config.json: names 5 experts of each token, but 4 in all" in refusal(folder).message
    # Layers without experts.
    write_safetensors(folder / "model.safetensors", layers(0, 1))
    open_model_folder(folder)


def test_experts_that_lack_what_others_have_are_refused(folder: Path) -> None:
    parts = ("up_proj.weight", "down_proj.weight")
    held = {f"model.layers.{layer}.mlp.experts.{number}.{part}": [4, 8]
            for layer in (0, 1) for number in range(4) for part in parts}  # fmt: skip
    edit(folder / "config.json", num_hidden_layers=2, num_local_experts=4)
    # What another part of the model lacks, nobody reads.
    odd = {"vision.layers.0.mlp.experts.1.up_proj.weight": [4, 8]}
    write_safetensors(folder / "model.safetensors", layers(0, 1) | held | odd)
    open_model_folder(folder)
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    del held[name]
    write_safetensors(folder / "model.safetensors", layers(0, 1) | held)
    assert refusal(folder).message == f"{folder}: the weight {name} is missing."
    edit(folder / "config.json", num_local_experts=None)
    write_safetensors(folder / "model.safetensors", layers(0, 1) | held | {name.replace(".2.", f".{10**15}."): [4, 8]})
    assert "weights of experts are missing, such as model.layers.1.mlp.experts.2." in refusal(folder).message


@pytest.mark.parametrize(("named", "is_whole"), [(2, True), (3, False)])
def test_experts_beyond_those_that_are_named_may_lack_some(folder: Path, named: int, is_whole: bool) -> None:
    # As LongCat's do, which pass a token on.
    held = {f"model.layers.0.mlp.experts.{number}.up_proj.weight": [4, 8] for number in range(4)}
    held |= {f"model.layers.0.mlp.experts.{number}.down_proj.weight": [8, 4] for number in range(2)}
    edit(folder / "config.json", num_hidden_layers=1, n_routed_experts=named)
    write_safetensors(folder / "model.safetensors", layers(0) | held)
    if is_whole:
        open_model_folder(folder)
    else:
        assert "model.layers.0.mlp.experts.2.down_proj.weight is missing" in refusal(folder).message


def test_for_how_many_tokens_there_is_an_embedding_is_what_the_language_model_says(folder: Path) -> None:
    edit(folder / "config.json", vocab_size=16)
    assert known_tokens(folder) == 16
    edit(folder / "config.json", text_config={"vocab_size": 12})
    assert known_tokens(folder) == 12
    edit(folder / "config.json", text_config={"hidden_size": 8})
    assert known_tokens(folder) == 0, "the class of the model knows it"


@pytest.mark.parametrize(
    "spare", ["model.layers.2.eh_proj.weight", "vision.layers.2.mlp.up_proj.weight", "other.weight"]
)
def test_a_head_for_further_tokens_is_no_layer(folder: Path, spare: str) -> None:
    write_safetensors(folder / "model.safetensors", layers(0, 1, spare=spare))
    edit(folder / "config.json", num_hidden_layers=2)
    open_model_folder(folder)
