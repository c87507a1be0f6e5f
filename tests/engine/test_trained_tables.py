"""Embeddings, output layer and new words trained beside the adapter: learned, resumed, exported and chatted with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.engine import causal_types
from tests.engine.conftest import after_step, events, result_of, step_losses, train
from tests.engine.exports import STEP, export, overrides_for_llama_cpp, save
from tests.engine.test_causal_types import spec_of
from tests.engine.tokenizers_made import write_tokenizer
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.kinds.chat import BASE, TUNED
from tunesmith_core.runs import Run, create_run
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_training import OptimizerSpec
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.chat.prompting import Prompt
from tunesmith_engine.chat.session import Session
from tunesmith_engine.device import choose_compute
from tunesmith_engine.export.full_model import save_full_model
from tunesmith_engine.export.trained import find_trained, load_base
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.lora import attach_adapter, trainable
from tunesmith_engine.model.vocabulary import growth_of
from tunesmith_engine.train.lora_plus import rate_factor

NewRun = Callable[[RunSpec], Run]
MakeSpec = Callable[..., RunSpec]

WORDS = ["plus one", "<|sum|>"]


def rare(*values: Any) -> Any:  # Any: pytest.param has no public type
    return pytest.param(*values, marks=pytest.mark.long)


def changed(spec: RunSpec, embeddings: str, words: list[str]) -> RunSpec:
    spec.adapter.embeddings, spec.model.new_tokens = embeddings, words
    return spec


@pytest.mark.parametrize(
    ("embeddings", "words", "kernels"),
    [("all", WORDS, True), rare("all", [], False), rare("new", WORDS, True), rare("new", WORDS, False)],
)
def test_a_stopped_run_goes_on_to_the_same_bits(
    tiny_spec: MakeSpec, new_run: NewRun, embeddings: str, words: list[str], kernels: bool
) -> None:
    spec = changed(tiny_spec(evaluation={"percent": 40.0, "every_steps": 3}), embeddings, words)
    spec.hardware.kernels = kernels
    whole, stopped = (new_run(spec) for _ in range(2))
    assert train(whole) == 0
    assert not [event for event in events(whole, "warning") if event.data["code"] == "not-fused"]
    assert train(stopped, lambda host: after_step(host, 3, host.on_signal)) == 5
    torch.manual_seed(999)
    assert train(stopped) == 0
    assert step_losses(stopped) == step_losses(whole)
    assert result_of(whole)["eval_loss_after"] < result_of(whole)["eval_loss_before"]
    saved = [(run.adapter_path / "adapter_model.safetensors").read_bytes() for run in (whole, stopped)]
    assert saved[0] == saved[1]


@pytest.mark.long
def test_fused_and_plain_learn_the_same(tiny_spec: MakeSpec, new_run: NewRun) -> None:
    losses = []
    for kernels in (True, False):
        spec = changed(tiny_spec(), "all", WORDS)
        spec.hardware.kernels = kernels
        run = new_run(spec)
        assert train(run) == 0
        losses.append(step_losses(run))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def tables_run(folder: Path, embeddings: str, words: list[str], **full: Any) -> tuple[Run, Any]:
    """Return a run with one checkpoint of weights that were moved at random, and the model that they are of."""
    spec = changed(spec_of(folder), embeddings, words)
    for name, value in full.items():
        setattr(spec.adapter, name, value)
    model = method_of("sft").load(folder, spec, choose_compute(spec))
    generator = torch.Generator().manual_seed(1)
    for parameter in trainable(model).values():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.05
    run = create_run(spec)
    save(run, model, STEP)
    return run, model.eval()


@pytest.mark.usefixtures("home", "few_prompts")
class TestExports:
    """What a run has made, outside of it."""

    @pytest.mark.parametrize(
        ("kind", "embeddings"),
        [("llama", "all"), ("gemma3_text", "new"), rare("llama", "new"), rare("gemma3_text", "all")],
    )
    def test_adapter_and_merged_model_are_what_was_trained(
        self, kind: str, embeddings: str, tiny_model: Path, tmp_path: Path
    ) -> None:
        base = causal_types.write_model(kind, tmp_path / "model", tiny_model)
        run, model = tables_run(base, embeddings, WORDS)
        growth = growth_of(base, run.load_spec())
        assert growth is not None
        for form in ("adapter", "merged"):
            answer = export(run, tmp_path / form, form)
            assert answer["proof"]["passed"] is True
            assert bool(answer["commands"]) == (form == "merged")
        card = (tmp_path / "adapter" / "README.md").read_text(encoding="utf-8")
        assert f"base.resize_token_embeddings({growth.num_rows})" in card
        ids = torch.tensor([[1, 40, *growth.new_rows, 50]])
        # As the card says.
        theirs = AutoModelForCausalLM.from_pretrained(base)
        theirs.resize_token_embeddings(growth.num_rows)
        theirs = PeftModel.from_pretrained(theirs, str(tmp_path / "adapter"))
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
        assert merged.config.get_text_config().vocab_size == growth.num_rows
        assert (merged.lm_head.weight is merged.model.embed_tokens.weight) == (kind == "gemma3_text")
        with torch.no_grad():
            expected = model(input_ids=ids).logits
            assert torch.allclose(theirs.eval()(input_ids=ids).logits, expected, atol=1e-4)
            assert torch.allclose(merged.float().eval()(input_ids=ids).logits, expected, atol=0.1)
        for folder in ("adapter", "merged"):
            tokens = AutoTokenizer.from_pretrained(tmp_path / folder)("It is plus one <|sum|>.")["input_ids"]
            assert set(growth.pieces) <= set(tokens)

    @pytest.mark.long
    @pytest.mark.parametrize("embeddings", ["all", "new"])
    def test_llama_cpp_knows_the_words(self, embeddings: str, tmp_path: Path) -> None:
        write_tokenizer("qwen-2", tmp_path / "tokenizer")
        folder = causal_types.write_model(
            "llama", tmp_path / "model", tmp_path / "tokenizer", **overrides_for_llama_cpp("llama")
        )
        run, _ = tables_run(folder, embeddings, ["xylophony", "<|cite|>"])
        assert export(run, tmp_path / "gguf", "gguf")["proof"]["passed"] is True
        with pytest.raises(TunesmithError, match="more than two matrices") as refusal:
            export(run, tmp_path / "adapter", "gguf-adapter")
        assert refusal.value.code == "export-unsupported"

    @pytest.mark.parametrize("embeddings", [rare("all"), "new"])
    def test_both_answer_in_a_chat(self, embeddings: str, tiny_model: Path) -> None:
        run, model = tables_run(tiny_model, embeddings, WORDS)
        session = Session(run, run.load_spec(), tiny_model, 0)
        prompt = Prompt([3, 5, 260, 7], thinks=False)
        for name in ("plain", "fused"):
            if name == "fused":
                session.hurry()
            assert session._decoder.name == name
            for side in (TUNED, BASE, TUNED):
                said = session.answer(prompt, side, Sampling(8), lambda *_: None, lambda: False).answer.text
                with torch.no_grad():
                    if side == BASE:
                        with model.disable_adapter():
                            tokens = model.generate(input_ids=torch.tensor([prompt.tokens]), max_new_tokens=8)
                    else:
                        tokens = model.generate(input_ids=torch.tensor([prompt.tokens]), max_new_tokens=8)
                assert said == session._tokenizer.decode(tokens[0, 4:], skip_special_tokens=True).strip(), (name, side)

    def test_the_whole_model_has_the_words(self, tiny_model: Path, tmp_path: Path) -> None:
        run, model = tables_run(tiny_model, "frozen", WORDS, kind=FULL)
        trained = find_trained(run, STEP)
        tokenizer = trained.tokenizer(tiny_model)
        save_full_model(model, trained.spec, tiny_model, tokenizer, "# Card", run.model_path, run.tmp_path)
        loaded = AutoModelForCausalLM.from_pretrained(run.model_path)
        for name, value in loaded.state_dict().items():
            assert torch.equal(value, model.get_base_model().state_dict()[name]), name
        assert "plus one" in AutoTokenizer.from_pretrained(run.model_path).get_vocab()
        assert export(run, tmp_path / "merged")["proof"]["passed"] is True


def test_new_words_begin_as_the_mean_of_their_pieces(tiny_model: Path, tiny_spec: MakeSpec) -> None:
    spec = changed(tiny_spec(), "new", WORDS)
    growth = growth_of(tiny_model, spec)
    assert growth is not None
    pieces = load_tokenizer(tiny_model)("plus one", add_special_tokens=False)["input_ids"]
    tokenizer = load_tokenizer(tiny_model, words=WORDS)
    row = tokenizer.convert_tokens_to_ids("plus one")
    before, model = load_base(tiny_model), load_base(tiny_model, growth=growth)
    for table, old in (
        (model.get_input_embeddings(), before.get_input_embeddings()),
        (model.get_output_embeddings(), before.get_output_embeddings()),
    ):
        assert len(pieces) == 8
        assert torch.allclose(table.weight[row], old.weight[pieces].mean(0), atol=1e-6)
        assert torch.equal(table.weight[: len(old.weight)], old.weight)
        assert not table.weight.requires_grad
    assert tokenizer.decode([row]) == "plus one"
    # What the model knows already takes no part.
    assert tokenizer("It is")["input_ids"] == load_tokenizer(tiny_model)("It is")["input_ids"]


def test_rows_fill_up_where_that_helps(tiny_model: Path, tiny_spec: MakeSpec, tmp_path: Path) -> None:
    spec = changed(tiny_spec(), "new", ["plus"])
    present = load_base(tiny_model).config.vocab_size
    assert present % 8
    assert growth_of(tiny_model, spec).num_rows == present + 1  # type: ignore[union-attr]
    wide = causal_types.write_model("llama", tmp_path / "wide", tiny_model, vocab_size=256 + 8)
    growth = growth_of(wide, spec)
    # Rows that no token had are taken first.
    assert growth is not None
    assert growth.num_rows == 264
    assert len(growth.new_rows) == 1
    many = growth_of(wide, changed(tiny_spec(), "new", [f"word{number}x" for number in range(7)]))
    assert many is not None
    assert (many.num_rows, len(many.pieces), len(many.new_rows)) == (272, 7, 272 - present)


@pytest.mark.parametrize("word", ["<|im_end|>", "a"])
def test_a_word_that_is_a_token_is_named(word: str, tiny_model: Path) -> None:
    with pytest.raises(TunesmithError, match="one token each already") as refusal:
        load_tokenizer(tiny_model, words=["sum", word])
    assert refusal.value.code == "spec-invalid"


class TestModules:
    """Other modules that are trained whole."""

    def attach(self, spec: RunSpec, folder: Path) -> PeftModel:
        return attach_adapter(load_base(folder), spec)

    def test_they_are_trained_and_told(self, tiny_spec: MakeSpec, new_run: NewRun) -> None:
        spec = tiny_spec()
        spec.adapter.modules_to_save = ["norm", "v_proj"]
        run = new_run(spec)
        assert train(run) == 0
        assert "not-fused" in {event.data["code"] for event in events(run, "warning")}
        assert any("Trained whole: norm, v_proj" in line for line in events(run, "setup")[-1].data["kernels"])
        config = json.loads((run.adapter_path / "adapter_config.json").read_text(encoding="utf-8"))
        assert set(config["modules_to_save"]) >= {"model.norm", "model.layers.0.self_attn.v_proj"}

    @pytest.mark.parametrize(
        ("name", "words", "code"),
        [
            ("nrom", "no module named nrom. Its modules are .*input_layernorm", "trained-parts-missing"),
            ("mlp", "can't be trained whole", "spec-invalid"),
            ("embed_tokens", "is trained by the setting", "spec-invalid"),
        ],
    )
    def test_wrong_names_are_told(
        self, name: str, words: str, code: str, tiny_spec: MakeSpec, tiny_model: Path
    ) -> None:
        spec = tiny_spec()
        spec.adapter.modules_to_save = [name]
        with pytest.raises(TunesmithError, match=words) as refusal:
            self.attach(spec, tiny_model)
        assert refusal.value.code == code

    def test_nothing_has_both(self, tiny_spec: MakeSpec, tiny_model: Path) -> None:
        spec = changed(tiny_spec(), "all", [])
        spec.adapter.target_modules = ["q_proj", "lm_head"]
        with pytest.raises(TunesmithError, match="lm_head can't have an adapter"):
            self.attach(spec, tiny_model)

    def test_embeddings_have_a_rate_of_their_own(self, tiny_spec: MakeSpec, tiny_model: Path) -> None:
        spec = changed(tiny_spec(), "all", [])
        spec.adapter.modules_to_save = ["norm"]
        rates = {
            name: rate_factor(name, value.ndim, OptimizerSpec(embedding_rate=0.1))
            for name, value in trainable(self.attach(spec, tiny_model)).items()
        }
        assert {name for name, rate in rates.items() if rate != 1.0} == {
            f"base_model.model.{name}.modules_to_save.default.weight" for name in ("model.embed_tokens", "lm_head")
        }
        assert set(rates.values()) == {0.1, 1.0}
