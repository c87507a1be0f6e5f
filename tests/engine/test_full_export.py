"""What full fine-tuning has made goes everywhere that an adapter goes: a folder, GGUF, chat and evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.engine import causal_types
from tests.engine.exports import STEP, export, overrides_for_llama_cpp, save
from tests.engine.test_causal_types import spec_of
from tests.engine.tokenizers_made import write_tokenizer
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import BASE, TUNED
from tunesmith_core.runs import Run, create_run
from tunesmith_core.sampling import Sampling
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.chat.prompting import Prompt
from tunesmith_engine.chat.session import Session
from tunesmith_engine.device import choose_compute
from tunesmith_engine.export.full_model import save_full_model
from tunesmith_engine.export.trained import find_trained
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.full import FullModel
from tunesmith_engine.model.lora import trainable

pytestmark = pytest.mark.usefixtures("home", "whole_vocabulary", "few_prompts")

KINDS = ["deepseek_v3", "gemma3_text", "gpt2", "lfm2_moe", "llama", "mixtral", "olmoe", "phi3", "qwen3", "qwen3_moe"]


def full_run(model_folder: Path, parts: Any = "all") -> tuple[Run, FullModel]:
    """Return a run with one checkpoint of weights that were moved at random, and the model that they are of."""
    spec = spec_of(model_folder)
    spec.adapter.kind, spec.adapter.parts = FULL, parts
    model = method_of("sft").load(model_folder, spec, choose_compute(spec))
    generator = torch.Generator().manual_seed(1)
    for parameter in trainable(model).values():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.02
    run = create_run(spec)
    save(run, model, STEP)
    return run, model.eval()


def check(folder: Path, model: FullModel, dtype: torch.dtype) -> None:
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert loaded.dtype == dtype
    expected = model.get_base_model().state_dict()
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, expected[name].to(dtype).to(value.dtype)), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_and_its_export_hold_what_was_trained(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    base = causal_types.write_model(kind, tmp_path / "model", tiny_model)
    run, model = full_run(base)
    trained = find_trained(run, STEP)
    save_full_model(model, trained.spec, base, trained.tokenizer(base), "# Card", run.model_path, run.tmp_path)
    check(run.model_path, model, torch.float32)
    assert not list(run.tmp_path.iterdir())
    answer = export(run, tmp_path / "merged")
    assert answer["proof"]["passed"] is True
    check(tmp_path / "merged", model, torch.float32)
    assert "own weights fine-tuned" in (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")


def test_tied_weights_stay_tied(tiny_model: Path, tmp_path: Path) -> None:
    base = causal_types.write_model("gemma3_text", tmp_path / "model", tiny_model)
    run, model = full_run(base)
    save_full_model(model, run.load_spec(), base, None, "", run.model_path, run.tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(run.model_path)
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert loaded.config.tie_word_embeddings


def test_files_that_hold_weights_in_another_form_are_refused_before_the_first_step(
    tiny_model: Path, tmp_path: Path
) -> None:
    base = causal_types.write_model("deepseek_v4", tmp_path / "model", tiny_model)
    with pytest.raises(TunesmithError, match=r"fully fine-tuned: Training changes model\.norm") as refusal:
        full_run(base)
    assert refusal.value.code == "spec-invalid"
    run, model = full_run(base, ["kv_proj"])
    save_full_model(model, run.load_spec(), base, None, "", run.model_path, run.tmp_path)
    check(run.model_path, model, torch.float32)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_llama_cpp_answers_as_the_trained_model(kind: str, tmp_path: Path) -> None:
    write_tokenizer("qwen-2", tmp_path / "tokenizer")
    changes = overrides_for_llama_cpp(kind)
    run, _ = full_run(causal_types.write_model(kind, tmp_path / "model", tmp_path / "tokenizer", **changes))
    answer = export(run, tmp_path / "gguf", "gguf")
    assert answer["proof"]["passed"] is True


@pytest.mark.parametrize("form", ["adapter", "gguf-adapter"])
def test_there_is_no_adapter_to_export(form: Any, tiny_model: Path, tmp_path: Path) -> None:
    run, _ = full_run(tiny_model)
    with pytest.raises(TunesmithError, match="no adapter") as refusal:
        export(run, tmp_path / "adapter", form)
    assert refusal.value.code == "export-unsupported"


def test_both_answer_in_a_chat(tiny_model: Path) -> None:
    run, model = full_run(tiny_model)
    session = Session(run, run.load_spec(), tiny_model, 0)
    prompt = Prompt([3, 5, 7], thinks=False)
    said = {
        side: [session.answer(prompt, side, Sampling(8), lambda *_: None, lambda: False).answer.text for _ in range(2)]
        for side in (TUNED, BASE, TUNED)
    }
    given = torch.tensor([prompt.tokens])
    for side, whole in ((TUNED, model.get_base_model()), (BASE, AutoModelForCausalLM.from_pretrained(tiny_model))):
        tokens = whole.generate(given, max_new_tokens=8, do_sample=False)[0, 3:]
        text = session._tokenizer.decode(tokens, skip_special_tokens=True).strip()
        assert said[side] == [text, text]
    session.hurry()
    assert session._decoder.name == "fused"
