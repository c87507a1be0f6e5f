"""Quantized checkpoints: what is loaded is what an independent writer packed, and what their libraries unpack."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.engine.conftest import events, train
from tests.engine.exports import export
from tests.engine.fused.test_model import compute
from tests.packed_models import FORMATS, fp8, repack, with_experts_in_mxfp4
from tunesmith_core import unquantized
from tunesmith_core.errors import TunesmithError
from tunesmith_core.fused_memory import MXFP4_BYTES, NF4_BYTES, weight_bytes
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.model import packed
from tunesmith_engine.model.load import check_weights, load_model, num_parameters
from tunesmith_engine.model.stacked import packed_stack

Make = Callable[..., RunSpec]


@pytest.fixture(scope="session")
def packed_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Any]]:
    """Return a folder in a format, and its weights as what they stand for; each is made once."""
    root, made = tmp_path_factory.mktemp("packed"), dict[tuple[str, int], tuple[Path, Any]]()

    def make(name: str, parts: int = 1) -> tuple[Path, Any]:
        if (name, parts) not in made:
            folder = root / f"{name}-{parts}"
            made[name, parts] = folder, repack(tiny_model, folder, *FORMATS[name], parts=parts)
        return made[name, parts]

    return make


@pytest.mark.parametrize("name", FORMATS)
def test_headers_tell_that_packed_weights_are_whole(
    name: str, packed_model: Callable[..., tuple[Path, Any]]
) -> None:
    check_weights(packed_model(name)[0])


@pytest.mark.parametrize("name", FORMATS)
def test_weights_are_what_was_packed(name: str, packed_model: Callable[..., tuple[Path, Any]]) -> None:
    folder, meant = packed_model(name, parts=2 if name in ("gptq", "nf4") else 1)
    model = load_model(folder, compute(), False)
    found = dict(model.named_parameters())
    assert {name for name in meant if name in found} == set(found)
    for weight, value in found.items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, meant[weight], rtol=1e-6, atol=1e-9)
    assert model.name_or_path == str(folder)
    assert not hasattr(model.config, "quantization_config")


@pytest.mark.parametrize("name", ["fp8", "awq"])
@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_unpacked_weights_are_quantized_as_plain_ones_are(
    name: str, kind: str, tiny_model: Path, packed_model: Callable[..., tuple[Path, Any]], tmp_path: Path
) -> None:
    folder, meant = packed_model(name)
    shutil.copytree(tiny_model, tmp_path / "plain")
    save_file(meant, tmp_path / "plain" / "model.safetensors", {"format": "pt"})
    ours, plain = (
        load_model(each, compute(), kind == "nf4", eight_bit=kind == "int8") for each in (folder, tmp_path / "plain")
    )
    for (key, value), other in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(value, other), key
    assert num_parameters(ours) == num_parameters(plain)


def test_the_whole_model_is_never_unpacked_for_a_base_of_four_bits(
    packed_model: Callable[..., tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, most = [0], [0]

    class Counted(torch.Tensor):
        def __del__(self) -> None:
            alive[0] -= 1

    unpacked = packed.unpacked

    def counted(*given: Any) -> torch.Tensor:
        alive[0] += 1
        most[0] = max(most[0], alive[0])
        return unpacked(*given).as_subclass(Counted)

    monkeypatch.setattr(packed, "unpacked", counted)
    load_model(packed_model("gptq")[0], compute(), True)
    assert 1 <= most[0] <= 3


@pytest.mark.parametrize("name", ["nf4", "int8"])
def test_weights_of_bitsandbytes_are_kept_where_they_are_asked_for(
    name: str, packed_model: Callable[..., tuple[Path, Any]]
) -> None:
    folder, meant = packed_model(name)
    model = load_model(folder, compute(), name == "nf4", eight_bit=name == "int8")
    stored = load_file(folder / "model.safetensors")
    for key, weight in model.named_parameters():
        if key.endswith("_proj.weight"):
            assert torch.equal(weight.data.view_as(stored[key]), stored[key]), key
        else:
            assert weight.dtype == torch.float32
            assert torch.equal(weight, meant[key])
    plain = load_model(folder, compute(), False)
    ids = torch.arange(3, 20)[None]
    expected, found = plain(input_ids=ids).logits, model(input_ids=ids).logits
    assert found.dtype == torch.float32
    # Of 8 bits, activations are rounded too.
    assert float((found - expected).norm() / expected.norm()) < (0.02 if name == "int8" else 1e-5)


def test_fp8_is_unpacked_as_transformers_does(packed_model: Callable[..., tuple[Path, Any]]) -> None:
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    folder, _ = packed_model("fp8")
    settings = FineGrainedFP8Config(weight_block_size=(32, 32), dequantize=True)
    theirs = AutoModelForCausalLM.from_pretrained(folder, quantization_config=settings, dtype=torch.float32)
    ours = load_model(folder, compute(), False).state_dict()
    assert all(torch.equal(ours[name], value) for name, value in theirs.state_dict().items())


def test_four_bits_are_unpacked_as_bitsandbytes_does(packed_model: Callable[..., tuple[Path, Any]]) -> None:
    from bitsandbytes.functional import dequantize_4bit
    from transformers import AutoModelForCausalLM

    folder, meant = packed_model("nf4")
    theirs = AutoModelForCausalLM.from_pretrained(folder, device_map={"": "cpu"})
    for name, weight in theirs.named_parameters():
        if hasattr(weight, "quant_state"):
            weight.quant_state.dtype = torch.float32
            found = dequantize_4bit(weight.data, weight.quant_state)
            torch.testing.assert_close(found, meant[name], rtol=1e-5, atol=1e-7)


def test_experts_in_mxfp4_are_unpacked_as_transformers_does(tiny_model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, Mxfp4Config

    folder = tmp_path / "oss"
    meant = _gpt_oss(folder, tiny_model)
    ours = load_model(folder, compute(), False)
    state = ours.state_dict()
    assert len(meant) == 2
    assert all(torch.equal(state[name], value) for name, value in meant.items())
    settings = Mxfp4Config(modules_to_not_convert=["lm_head"], dequantize=True)
    theirs = AutoModelForCausalLM.from_pretrained(folder, quantization_config=settings, dtype=torch.bfloat16)
    for name, value in theirs.state_dict().items():
        assert torch.equal(state[name].bfloat16(), value), name
    assert read_model_card(folder).num_parameters == num_parameters(ours)


def _gpt_oss(folder: Path, tiny_model: Path) -> dict[str, torch.Tensor]:
    """Write a small gpt-oss with experts in MXFP4; return what these stand for."""
    from transformers import GptOssConfig
    from transformers.models.gpt_oss import GptOssForCausalLM

    config = GptOssConfig(
        vocab_size=300, hidden_size=64, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_local_experts=2, num_experts_per_tok=1,
    )  # fmt: skip
    GptOssForCausalLM(config).bfloat16().save_pretrained(folder)
    for path in tiny_model.glob("tokenizer*"):
        shutil.copy(path, folder)
    return with_experts_in_mxfp4(folder)


def test_a_four_bit_base_keeps_experts_in_mxfp4(tiny_model: Path, tiny_spec: Make, tmp_path: Path) -> None:
    """Their numbers and packed size, as the plan and the run's words say."""
    folder = tmp_path / "Oss"
    meant = _gpt_oss(folder, tiny_model)
    model = load_model(folder, compute(), True)
    for name, value in meant.items():
        module, _, role = name.rpartition(".")
        experts = model.get_submodule(module)
        assert torch.equal(getattr(experts, role), value), name
        kept = packed_stack(experts, role)
        assert kept.numel() + kept.quant_state.absmax.numel() == value.numel() * MXFP4_BYTES
    spec = tiny_spec(
        model={"path": str(folder)},
        quantization={"kind": "nf4"},
    )
    card = read_model_card(folder)
    as_nf4 = replace(card, packed_format=None)
    more = sum(map(torch.numel, meant.values())) * (MXFP4_BYTES - NF4_BYTES)
    assert weight_bytes(spec, card, 4, False) - weight_bytes(spec, as_nf4, 4, False) == pytest.approx(more, abs=1)
    said = "The base model comes quantized (MXFP4). Its experts are used as they are."
    assert str(unquantized.note(folder, spec)).startswith(said)


def test_experts_in_fp8_lie_together_or_apart() -> None:
    chance = torch.Generator().manual_seed(0)
    tensors, meant = zip(*(fp8((16, 8))("w", torch.zeros(24, 20), chance) for _ in range(3)), strict=True)
    found = packed.unpacked(
        packed.Packed("fp8", {}, {"block": [16, 8]}),
        {
            "weight": torch.stack([each["w"].view(torch.uint8) for each in tensors]).view(torch.float8_e4m3fn),
            "scale": torch.stack([each["w_scale_inv"] for each in tensors]),
        },
        torch.float32,
    )
    assert torch.equal(found, torch.stack(meant))


def test_a_run_learns_says_what_its_base_is_and_is_exported_whole(
    packed_model: Callable[..., tuple[Path, Any]], tiny_spec: Make, new_run: Callable[[RunSpec], Run], tmp_path: Path
) -> None:
    folder, meant = packed_model("awq")
    base = shutil.copytree(folder, tmp_path / "Tiny-1-AWQ")
    spec = tiny_spec(model={"path": str(base)}, schedule={"max_steps": 10}, evaluation={"percent": 20})
    run = new_run(spec)
    assert train(run) == 0
    losses = [event.data["loss"] for event in events(run, "eval")]
    assert losses[-1] < losses[0] - 0.1
    said = (
        "The base model comes quantized (AWQ). It is unpacked as it loads. The adapter fits this model better than "
        "Tiny-1, which it was made from."
    )
    (setup,) = events(run, "setup")
    assert setup.data["kernels"][0] == said
    assert said in (run.adapter_path / "README.md").read_text(encoding="utf-8")
    answer = export(run, tmp_path / "merged")
    target = Path(answer["path"])
    assert answer["proof"]["agreement"] == 1
    assert "The base model is quantized (AWQ). It was unpacked" in (target / "README.md").read_text(encoding="utf-8")
    assert "quantization_config" not in json.loads((target / "config.json").read_text())
    with safe_open(target / "model.safetensors", "pt") as merged:
        names = set(merged.keys())
        assert names == set(meant)
        changed = merged.get_tensor("model.layers.0.mlp.up_proj.weight")
        kept = merged.get_tensor("model.norm.weight")
    assert changed.dtype == torch.bfloat16
    assert torch.equal(kept.float(), meant["model.norm.weight"])
    # What was learned is small beside the weights.
    assert 0 < float((changed.float() - meant["model.layers.0.mlp.up_proj.weight"]).abs().max()) < 0.5


def test_a_weight_without_its_scale_is_named(
    packed_model: Callable[..., tuple[Path, Any]], tmp_path: Path
) -> None:
    folder = shutil.copytree(packed_model("fp8")[0], tmp_path / "model")
    stored = load_file(folder / "model.safetensors")
    del stored["model.layers.1.mlp.up_proj.weight_scale_inv"]
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(TunesmithError, match=r"model.layers.1.mlp.up_proj.weight has no .*_scale_inv"):
        load_model(folder, compute(), False)
