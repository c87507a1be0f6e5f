"""What gets an adapter: every linear layer that can have one, experts at the rank that was asked, names of any time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora.layer import LoraLayer
from transformers import AutoModelForCausalLM

from tests.engine import causal_types
from tests.engine.test_causal_types import AGREE, Trained, rows, spec_of
from tunesmith_core.adapter_shapes import ABOUT
from tunesmith_core.errors import UserError
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.planner import num_adapter_parameters
from tunesmith_engine.device import choose_compute
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.load import load_model, num_parameters
from tunesmith_engine.model.lora import attach_adapter, trainable
from tunesmith_engine.model.targets import described


@pytest.fixture(scope="module")
def mixtral(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return causal_types.write_model("mixtral", tmp_path_factory.mktemp("mixtral"), tiny_model)


def _adapted(folder: Path, **method: Any) -> PeftModel:
    spec = spec_of(folder, method=method)
    return attach_adapter(load_model(folder, choose_compute(spec), False), spec)


def test_experts_have_the_rank_that_was_asked(mixtral: Path) -> None:
    model = _adapted(mixtral)
    assert method_of("sft").left_out(model, spec_of(mixtral)) == []
    assert {module.r["default"] for module in model.modules() if isinstance(module, LoraLayer)} == {4}
    assert described(model) == [
        "Adapters of rank 4: experts.down_proj, experts.gate_up_proj, gate.weight, self_attn.k_proj, self_attn.o_proj, "
        "self_attn.q_proj, self_attn.v_proj."
    ]


@pytest.mark.parametrize(
    "names", [["q_proj", "gate_up_proj"], ["q_proj", "experts.down_proj"], ["q_proj", "w1", "w3"], ["w2"]], ids=str
)
def test_experts_can_be_named(names: list[str], mixtral: Path) -> None:
    assert "experts." in described(_adapted(mixtral, target_modules=names))[0]


UNFIT = "No adapter fits here: self_attn, mlp. Only linear layers, convolutions and embeddings can have one."


@pytest.mark.parametrize(
    ("names", "words"),
    [(["w1"], "w1 without also targeting w3"), (["no_proj"], "gate_up_proj"), (["self_attn", "mlp"], UNFIT)],
)
def test_names_that_fit_nothing_are_refused(names: list[str], words: str, mixtral: Path) -> None:
    with pytest.raises(UserError, match=words) as caught:
        _adapted(mixtral, target_modules=names)
    assert caught.value.code == "lora-target-modules-missing"


def test_a_layer_that_peft_forbids_is_refused_by_name(tiny_model: Path, tmp_path: Path) -> None:
    """Mamba's own code reads the output projection's weight, so PEFT would end in an error of its own."""
    folder = causal_types.write_model("mamba2", tmp_path / "m", tiny_model)
    with pytest.raises(UserError, match=r"No adapter fits here: out_proj\. In this type") as caught:
        _adapted(folder, target_modules=["in_proj", "out_proj"])
    assert caught.value.code == "lora-target-modules-missing"


@pytest.mark.parametrize(
    ("kind", "name", "beside"),
    [
        ("falcon_mamba", "dt_proj", "x_proj"),
        ("gemma3n_text", "correction_coefs", "q_proj"),
        ("jamba", "dt_proj", "q_proj"),
        ("longcat_flash", "classifier", "o_proj"),
        ("mamba", "dt_proj", "x_proj"),
    ],
)
def test_a_layer_that_training_passes_by_gets_no_adapter(
    kind: str, name: str, beside: str, tiny_model: Path, tmp_path: Path
) -> None:
    """The model's own code multiplies with the layer's weight: an adapter would never learn."""
    folder = causal_types.write_model(kind, tmp_path / "m", tiny_model)
    (left_out,) = [words for words in described(_adapted(folder)) if words.startswith("Without adapters")]
    assert name in left_out
    with pytest.raises(UserError, match=rf"No adapter fits here: {name}\."):
        _adapted(folder, target_modules=[beside, name])


def test_layers_beside_experts_are_not_taken_for_them(tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("deepseek_v3", tmp_path / "m", tiny_model)
    names = [f"shared_experts.{name}_proj" for name in ("down", "gate", "up")]
    with pytest.raises(UserError, match="PEFT takes these names for those of the experts") as caught:
        _adapted(folder, target_modules=["o_proj", *names])
    assert caught.value.code == "lora-target-modules-missing"
    assert ", ".join(names) in caught.value.message


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"dora": True}, "turn DoRA off"),
        ({"dropout": 0.1}, "set Dropout to 0"),
        ({"initial_values": "orthogonal"}, "choose default or gaussian ones"),
    ],
    ids=str,
)
def test_experts_stay_as_they_are_where_peft_cannot_adapt_them(
    change: dict[str, Any], remedy: str, mixtral: Path
) -> None:
    ours = Trained(spec_of(mixtral, method=change), rows())
    assert len(ours.losses) == 3
    assert described(ours.model)[-1] == "Without adapters: experts.down_proj, experts.gate_up_proj."
    ((code, told),) = method_of("sft").left_out(ours.model, spec_of(mixtral, method=change))
    assert code == "experts-without-adapter"
    assert told.startswith("The model's experts are not trained. With ")
    assert told.endswith(f"{remedy} to train them too.")
    named = spec_of(mixtral, method={**change, "target_modules": ["q_proj"]})
    assert method_of("sft").left_out(ours.model, named) == []
    with pytest.raises(UserError, match="experts") as caught:
        _adapted(mixtral, target_modules=["q_proj", "gate_up_proj"], **change)
    assert caught.value.code == "spec-invalid"


def test_plain_peft_opens_an_adapter_of_experts(mixtral: Path, tmp_path: Path) -> None:
    ours = Trained(spec_of(mixtral, hardware={"kernels": False}), rows()).model.eval()
    ours.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(mixtral), tmp_path).eval()
    input_ids = torch.arange(20, 32)[None]
    with torch.no_grad():
        assert torch.allclose(again(input_ids=input_ids).logits, ours(input_ids=input_ids).logits, atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        *("bamba", "deepseek_v3", "gpt_oss", "granitemoe", "llama4_text", "mixtral", "phimoe", "qwen3_moe", "xglm"),
        *(pytest.param(kind, marks=pytest.mark.long) for kind in AGREE if kind not in ABOUT),
    ],
)
def test_the_plan_counts_the_adapter_that_the_engine_makes(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model(kind, tmp_path / kind, tiny_model)
    made = sum(value.numel() for value in trainable(_adapted(folder)).values())
    assert num_adapter_parameters(spec_of(folder), read_model_card(folder)) == made


@pytest.mark.parametrize(
    "names", [["gate_up_proj", "down_proj"], ["down_proj"], ["experts.gate_up_proj", "experts.down_proj"]], ids=str
)
@pytest.mark.parametrize("kind", ["gemma4_text", "qwen2_moe", "qwen3_moe", "mixtral"])
def test_the_plan_counts_experts_that_are_named(kind: str, names: list[str], tiny_model: Path, tmp_path: Path) -> None:
    """Where another layer has the name of a weight of experts as well, it is that layer's."""
    changes = causal_types.BESIDE_MLP if kind == "gemma4_text" else {}
    folder = causal_types.write_model(kind, tmp_path / kind, tiny_model, **changes)
    targets = ["q_proj", *names]
    made = sum(value.numel() for value in trainable(_adapted(folder, target_modules=targets)).values())
    assert num_adapter_parameters(spec_of(folder, method={"target_modules": targets}), read_model_card(folder)) == made


def test_the_number_of_parameters_leaves_the_adapter_out(mixtral: Path) -> None:
    spec = spec_of(mixtral)
    base = load_model(mixtral, choose_compute(spec), False)
    alone = num_parameters(base)
    assert num_parameters(attach_adapter(base, spec).get_base_model()) == alone
