"""What a plan says of the base model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_safetensors
from tunesmith_core import cli
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.model_notes import notes
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_changes import with_changes

HEAD = "The model's experts are not trained. "
DROPOUT = "With dropout they can have no adapter: set Dropout to 0 to train them too."


def _mixture(folder: Path, kind: str = "mixtral", *experts: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": kind, "architectures": ["XForCausalLM"]}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    tensors = {
        "model.embed_tokens.weight": [16, 8],
        "model.layers.0.self_attn.q_proj.weight": [8, 8],
        "model.layers.0.block_sparse_moe.gate.weight": [2, 8],
    }
    for name in experts or ("block_sparse_moe.experts.0.w1",):
        tensors[f"model.layers.0.{name}.weight"] = [12, 8]
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def _noted(folder: Path, **changes: Any) -> list[str]:
    spec = with_changes(RunSpec(), {f"adapter.{path}": value for path, value in changes.items()})
    return [str(each) for each in notes(read_model_card(folder), spec)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dropout": 0.1}, DROPOUT),
        ({"dora": True}, "With DoRA they can have no adapter: turn DoRA off to train them too."),
        ({"layers": ["0"]}, "With chosen layers they can have no adapter: leave Layers empty to train them too."),
        ({"kind": "oft"}, "Only LoRA can adapt them: choose LoRA to train them too."),
        (
            {"initial_values": "olora"},
            "With these initial values they can have no adapter: choose default or gaussian ones to train them too.",
        ),
    ],
    ids=str,
)
def test_a_setting_that_keeps_experts_from_being_trained_is_named(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    assert _noted(_mixture(tmp_path / "model"), **changes) == [HEAD + words]


def test_every_such_setting_is_named(tmp_path: Path) -> None:
    (told,) = _noted(_mixture(tmp_path / "model"), dropout=0.1, dora=True)
    assert told.startswith(HEAD + DROPOUT)
    assert "turn DoRA off" in told


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"initial_values": "gaussian"},
        {"dropout": 0.1, "target_modules": ["q_proj"]},
        {"dropout": 0.1, "start_from": "/a"},
        {"dropout": 0.1, "kind": "full"},
    ],
    ids=str,
)
def test_nothing_is_said_where_experts_are_trained_or_were_not_meant(changes: dict[str, Any], tmp_path: Path) -> None:
    assert _noted(_mixture(tmp_path / "model"), **changes) == []


@pytest.mark.parametrize(
    ("kind", "experts"), [("lfm2_moe", "feed_forward.experts.0.w1"), ("mixtral", "mlp.up_proj")], ids=str
)
def test_nothing_is_said_of_experts_that_never_get_an_adapter(kind: str, experts: str, tmp_path: Path) -> None:
    assert _noted(_mixture(tmp_path / "model", kind, experts), dropout=0.1) == []


def test_experts_that_all_linear_does_not_mean_are_named(tmp_path: Path) -> None:
    left_out = 'The model\'s experts are not trained: for this type, "all-linear" doesn\'t include them.'
    names = "q_proj, experts.down_proj, experts.gate_up_proj"
    known = {f"feed_forward.experts.0.{name}" for name in ("w1", "w2", "w3")}
    folder = _mixture(tmp_path / "known", "lfm2_moe", *known)
    assert _noted(folder) == [f"{left_out} To train them too, name the layers: {names}."]
    assert _noted(folder, target_modules=["q_proj"]) == []
    # A mixture that has other layers.
    assert _noted(_mixture(tmp_path / "other", "nemotron_h", "mixer.experts.0.up_proj")) == [left_out]
    assert _noted(_mixture(tmp_path / "one", "granitemoe", "block_sparse_moe.input_linear")) == [left_out]
    assert _noted(_mixture(tmp_path / "dense", "lfm2_moe", "mlp.up_proj")) == []


def test_layers_beside_experts_that_have_their_names_are_named(tmp_path: Path) -> None:
    layers = ("mlp.experts.0.up_proj", "mlp.shared_experts.up_proj")
    folder = _mixture(tmp_path / "model", "deepseek_v3", *layers)
    assert _noted(folder) == [
        'Of layers called up_proj only those of the experts get an adapter: of this type "all-linear" leaves out '
        "shared experts and layers without experts."
    ]
    assert _noted(folder, target_modules=["q_proj"]) == []


def test_the_plan_on_the_command_line_says_it(
    make_spec: Callable[..., RunSpec], model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _mixture(model_folder)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(with_changes(make_spec(), {"adapter.dropout": 0.1}).to_dict()))
    assert cli.main(["plan", str(path)]) == 0
    assert HEAD + DROPOUT in capsys.readouterr().err.replace("\n", " ")
