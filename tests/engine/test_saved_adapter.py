"""A saved adapter is what was trained: plain PEFT restores every weight of it, or the run says which it would lose."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.engine import causal_types
from tests.engine.conftest import events, result_of, train
from tests.engine.test_causal_types import AGREE, spec_of
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run
from tunesmith_core.spec import RunSpec
from tunesmith_engine.device import choose_compute
from tunesmith_engine.export import whole_model
from tunesmith_engine.export.adapter import export_adapter
from tunesmith_engine.export.adapter_card import adapter_card
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.lora import trainable

QUICK = ["laguna", "gpt2", "mixtral", "qwen3_next"]


class _Tokenizer:
    def save_pretrained(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text("{}")


def _trained(folder: Path, **method: Any) -> PeftModel:
    spec = spec_of(folder, method=method)
    model: PeftModel = method_of("sft").load(folder, spec, choose_compute(spec))
    generator = torch.Generator().manual_seed(1)
    for parameter in trainable(model).values():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.1
    return model.eval()


def _logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = model(input_ids=torch.arange(20, 29)[None], use_cache=False).logits
    return logits


def _restored(base: Any, adapter: Path, **options: Any) -> torch.Tensor:
    return _logits(PeftModel.from_pretrained(base, adapter, **options).eval())


def _check_restored(folder: Path, tmp_path: Path, **method: Any) -> None:
    model = _trained(folder, **method)
    export_adapter(model, _Tokenizer(), "", tmp_path / "adapter", tmp_path / "tmp")
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert not torch.equal(_logits(base), _logits(model))
    torch.testing.assert_close(_restored(base, tmp_path / "adapter"), _logits(model), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", QUICK)
def test_plain_peft_computes_what_was_trained(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    _check_restored(causal_types.write_model(kind, tmp_path / "model", tiny_model), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in AGREE if kind not in QUICK])
def test_plain_peft_computes_what_was_trained_of_every_other_type(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    _check_restored(causal_types.write_model(kind, tmp_path / "model", tiny_model), tmp_path)


def test_the_card_tells_how_an_rwkv_is_not_halved_beside_its_adapter(tiny_model: Path, tmp_path: Path) -> None:
    folder = causal_types.write_model("rwkv", tmp_path / "model", tiny_model, rescale_every=1)
    model = _trained(folder)
    export_adapter(model, _Tokenizer(), "", tmp_path / "adapter", tmp_path / "tmp")
    whole, halved = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
        for options in ({"rescale_every": 0}, {})
    )
    torch.testing.assert_close(_restored(whole, tmp_path / "adapter"), _logits(model), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(_restored(halved, tmp_path / "adapter"), _logits(model), rtol=1e-2, atol=1e-2)
    nothing: dict[str, Any] = dict.fromkeys(("eval_loss_before", "eval_loss_after", "preferences"))
    counts = {"num_train_rows": 1, "num_eval_rows": 0, "step": 3}
    for base, is_told in ((folder, True), (tiny_model, False)):
        card = adapter_card(spec_of(base), model_folder=base, data_hash="", system_prompt="", **counts, **nothing)
        assert ("model', rescale_every=0)" in card) is is_told


@pytest.mark.parametrize(
    "method", [{"dora": True}, {"bias": "lora_only"}, {"rslora": True}, {"initial_values": "orthogonal"}]
)
def test_every_way_of_adapting_is_restored(method: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    _check_restored(causal_types.write_model("gpt2", tmp_path / "model", tiny_model), tmp_path, **method)


def _whole(kind: str, name: str, folder: Path) -> Any:
    torch.manual_seed(0)
    whole = getattr(transformers, name)(causal_types.make_config(kind)).eval()
    whole.save_pretrained(folder)
    return whole


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama4", "Llama4ForConditionalGeneration"),
        ("qwen3_5", "Qwen3_5ForConditionalGeneration"),
        ("qwen4_exp", "Qwen4ExpForConditionalGeneration"),
        pytest.param("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", marks=pytest.mark.long),
    ],
)
def test_a_part_of_a_larger_model_is_restored_in_the_class_of_the_whole(kind: str, name: str, tmp_path: Path) -> None:
    whole = _whole(kind, name, tmp_path / "model")
    model = _trained(tmp_path / "model")
    assert type(model.get_base_model()) is not type(whole)
    assert not export_adapter(model, _Tokenizer(), "card", tmp_path / "adapter", tmp_path / "tmp")
    card = (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8")
    names = ast.literal_eval(card.partition("key_mapping=")[2].partition(")\n")[0])
    assert name in card
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(_restored(base, tmp_path / "adapter"), _logits(model))
    torch.testing.assert_close(_restored(whole, tmp_path / "adapter", key_mapping=names), _logits(model))


@pytest.mark.parametrize("restores", [False, True])
def test_a_whole_model_that_peft_cannot_restore_is_named(
    restores: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _whole("qwen3_5", "Qwen3_5ForConditionalGeneration", tmp_path / "model")
    model = _trained(tmp_path / "model")

    def fail(*_: Any) -> dict[str, str]:
        raise ImportError("no library for pictures")

    # Either the larger class can't be built here, or the place that was found is a wrong one.
    found = (lambda *_: {"model": "model.visual"}) if restores else fail
    monkeypatch.setattr(whole_model, "_places", found)
    notes = export_adapter(model, _Tokenizer(), "card", tmp_path / "adapter", tmp_path / "tmp")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert not any("visual" in target for target in config["target_modules"])
    assert "Qwen3_5ForConditionalGeneration" in notes["adapter-class-differs"]
    assert "AutoModelForCausalLM" in (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8")


def test_a_checkpoint_of_the_same_parts_needs_no_other_names(tiny_model: Path, tmp_path: Path) -> None:
    for name in ("LlamaModel", "LlamaForSequenceClassification", "NobodyKnowsIt"):
        folder = tmp_path / name
        shutil.copytree(tiny_model, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "architectures": [name]}))
        assert not export_adapter(_trained(folder), _Tokenizer(), "card", tmp_path / "adapter", tmp_path / "tmp")
        assert (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8") == "card"


def test_a_model_that_is_no_part_needs_no_such_names(tiny_model: Path, tmp_path: Path) -> None:
    export_adapter(_trained(tiny_model), _Tokenizer(), "card", tmp_path / "adapter", tmp_path / "tmp")
    assert (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8") == "card"


def _spoil(change: Callable[[dict[str, torch.Tensor]], None], monkeypatch: pytest.MonkeyPatch) -> None:
    save = PeftModel.save_pretrained

    def spoiled(self: PeftModel, folder: Path, **options: Any) -> None:
        save(self, folder, **options)
        file = folder / "adapter_model.safetensors"
        weights = load_file(file)
        change(weights)
        save_file(weights, file)

    monkeypatch.setattr(PeftModel, "save_pretrained", spoiled)


def _lose(weights: dict[str, torch.Tensor]) -> None:
    for name in list(weights):
        if "q_proj" in name:
            weights[name.replace("q_proj", "query")] = weights.pop(name)


def _alter(weights: dict[str, torch.Tensor]) -> None:
    name = next(name for name in weights if "q_proj.lora_B" in name)
    weights[name][0, 0] += 1e-6


@pytest.mark.parametrize("change", [_lose, _alter])
def test_an_adapter_that_is_not_what_was_trained_is_not_published(
    change: Callable[[dict[str, torch.Tensor]], None],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = _trained(tiny_model)
    _spoil(change, monkeypatch)
    with pytest.raises(TunesmithError, match="q_proj") as caught:
        export_adapter(model, _Tokenizer(), "", tmp_path / "adapter", tmp_path / "tmp")
    assert caught.value.code == "adapter-not-restored"
    assert not (tmp_path / "adapter").exists()
    assert not list((tmp_path / "tmp").iterdir())


def test_a_run_whose_adapter_would_be_incomplete_fails_and_keeps_its_checkpoint(
    tiny_spec: Callable[..., RunSpec], new_run: Callable[[RunSpec], Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tiny_spec())
    with monkeypatch.context() as patch:
        _spoil(_lose, patch)
        assert train(run) == 4
    assert result_of(run)["code"] == "adapter-not-restored"
    assert "These would be lost" in events(run, "error")[-1].data["message"]
    assert json.loads((run.checkpoints_path / "step-000006" / "MANIFEST.json").read_text())["step"] == 6
    assert train(run) == 0
    assert result_of(run)["artifacts"] == {"adapter": "adapter"}
