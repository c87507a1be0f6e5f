"""Every type of causal language model trains as transformers and PEFT train it by themselves, or is refused by name."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import get_peft_model
from torch.nn import functional
from transformers import AutoModelForCausalLM

from tests.engine import causal_types
from tunesmith_core import kernel_words
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.model_folder import known_tokens
from tunesmith_core.position_limits import num_positions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import Example, PreparedData
from tunesmith_engine.data.collate import collate
from tunesmith_engine.data.prepare import DataStats
from tunesmith_engine.device import choose_compute
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.folder import model_folder, num_rows
from tunesmith_engine.model.load import check_row_lengths, check_weights, load_config
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.model.patches import know_language_model
from tunesmith_engine.train.assembly import Assembly, Parts
from tunesmith_engine.train.loss import make_batch, num_trained_tokens

NUM_STEPS = 3
ROWS_PER_STEP = 4
LENGTHS = (11, 5, 7, 9, 3, 12, 6, 4, 10, 8, 5, 12)
LEARNING_RATE = 1e-2
EPSILON = 1e-5
"""AdamW moves a weight whose gradient is rounding alone as far as any other, either way: with its usual 1e-8 even a
float32 loop of Gemma 3n ended 1.3e-5 off the same loop in float64."""
TOLERANCE = 1e-5

QUICK = (
    "bamba bloom deepseek_v4 falcon falcon_h1 gemma3n_text gpt2 gpt_oss llama4_text longcat_flash mamba mixtral phimoe "
    "prophetnet qwen3_next qwen3_vl rwkv xglm".split()
)
"""One of each sort: state spaces, convolutions, several routers, stacked experts, experts that pass a token on, old
positions, ALiBi, images."""

LOOKS_AHEAD = (
    "bert bert-generation big_bird camembert cpmant data2vec-text electra ernie megatron-bert rembert roberta "
    "roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xlnet".split()
)
NOT_MADE_SMALL = (
    "blt cohere_compass_text dots3_note gemma4_assistant gemma4_unified_assistant musicgen musicgen_melody".split()
)
"""Types that this file has no small config for."""

NO_LANGUAGE_MODEL_ALONE = ["emu3", "mllama"]
"""What their language part is saved as is no type that transformers loads as a causal language model."""

BALANCED = "mixtral flex_olmo gpt_oss granitemoe jamba jetmoe minimax olmoe phimoe qwen2_moe qwen3_moe".split()
"""Types whose loss holds a share for an even use of experts where output_router_logits is set."""

AGREE = [
    kind
    for kind in causal_types.TYPES
    if kind not in {*LOOKS_AHEAD, *NOT_MADE_SMALL, *NO_LANGUAGE_MODEL_ALONE, "reformer", "xmod"}
]


def rows(lengths: tuple[int, ...] = LENGTHS) -> list[Example]:
    """Rows of random tokens that stand for nothing special; the first two tokens of each are not trained."""
    generator = np.random.default_rng(0)
    examples = []
    for length in lengths:
        input_ids = generator.integers(20, 150, size=length).astype(np.int32)
        labels = input_ids.copy()
        labels[:2] = -100
        examples.append(Example(input_ids, labels))
    return examples


def spec_of(folder: Path, **sections: dict[str, Any]) -> RunSpec:
    values: dict[str, Any] = {
        "version": 1,
        "model": {"path": str(folder)},
        "data": {"path": "rows.jsonl", "context_length": 64},
        "method": {"rank": 4, "alpha": 8.0},
        "optimizer": {"learning_rate": LEARNING_RATE, "epsilon": EPSILON},
        "schedule": {"max_steps": NUM_STEPS, "micro_batch_size": 2, "gradient_accumulation_steps": 2},
        "evaluation": {"percent": 0},
        "hardware": {"device": "cpu", "cpu_threads": 1},
    }
    for name, changes in sections.items():
        values[name] = {**values[name], **changes}
    return RunSpec.from_dict(values)


class Trained:
    """Three steps by our own path: their losses, the path, the model, and its adapter before the first step."""

    def __init__(self, spec: RunSpec, data: list[Example]) -> None:
        compute, method = choose_compute(spec), method_of("sft")
        folder = model_folder(spec.model)
        parts = Parts(
            spec,
            compute,
            method,
            folder,
            None,
            PreparedData(data, [], DataStats(*[0] * 10)),
            method.load(folder, spec, compute),
        )
        self.model = parts.model
        self.model.train()
        self.start = {name: value.detach().clone() for name, value in trainable(self.model).items()}
        self.warnings: list[str] = []
        self.path = parts.open_path(spec.schedule.micro_batch_size, lambda _, message: self.warnings.append(message))
        assembly = Assembly(parts, self.path)
        self.losses = [float(assembly.update(examples, LEARNING_RATE)[0]) for examples in _steps(data)]


def by_transformers(spec: RunSpec, ours: Trained, data: list[Example], with_labels: bool = False) -> list[float]:
    """Return the losses of a plain loop over rows alone, from the same adapter; with labels the model's own loss."""
    base = AutoModelForCausalLM.from_pretrained(spec.model.path, dtype=torch.float32)
    model = get_peft_model(base, copy.deepcopy(ours.model.peft_config["default"]))
    model.train()
    parameters = trainable(model)
    assert parameters.keys() == ours.start.keys()
    for name, parameter in parameters.items():
        parameter.data.copy_(ours.start[name])
    settings = spec.optimizer
    optimizer = torch.optim.AdamW(
        parameters.values(),
        lr=LEARNING_RATE,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
    )
    losses = []
    for examples in _steps(data):
        num_trained = sum(example.num_trained_tokens for example in examples)
        total = 0.0
        for example in examples:
            input_ids, labels = (torch.from_numpy(part).long()[None] for part in (example.input_ids, example.labels))
            if with_labels:
                share = model(input_ids=input_ids, labels=labels, use_cache=False).loss * example.num_trained_tokens
            else:
                logits = model(input_ids=input_ids, use_cache=False).logits[0, :-1].float()
                share = functional.cross_entropy(logits, labels[0, 1:], ignore_index=-100, reduction="sum")
            (share / num_trained).backward()
            total += float(share) / num_trained
        torch.nn.utils.clip_grad_norm_(parameters.values(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


def _steps(data: list[Example]) -> list[list[Example]]:
    return [data[start : start + ROWS_PER_STEP] for start in range(0, len(data), ROWS_PER_STEP)]


@pytest.fixture
def write(tiny_model: Path, tmp_path: Path) -> Any:
    """Write a model of a type; the folder is removed afterwards."""
    folder = tmp_path / "model"
    yield lambda kind, **overrides: causal_types.write_model(kind, folder, tiny_model, **overrides)
    shutil.rmtree(folder, ignore_errors=True)


def _check_agreement(folder: Path, **method: Any) -> None:
    check_weights(folder)
    data = rows()
    spec = spec_of(folder, method=method, hardware={"kernels": False})
    plain = Trained(spec, data)
    theirs = by_transformers(spec, plain, data)
    assert plain.losses == pytest.approx(theirs, rel=TOLERANCE)
    assert Trained(spec_of(folder, method=method), data).losses == pytest.approx(theirs, rel=TOLERANCE)


@pytest.mark.parametrize("kind", QUICK)
def test_losses_are_those_of_transformers_and_peft(kind: str, write: Any) -> None:
    _check_agreement(write(kind))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [kind for kind in AGREE if kind not in QUICK])
def test_losses_of_every_other_type_are_those_of_transformers_and_peft(kind: str, write: Any) -> None:
    _check_agreement(write(kind))


def test_what_is_evaluated_is_what_was_trained(write: Any) -> None:
    """RWKV halves its numbers after every few layers where it is not trained, and the adapters' shares count double."""
    folder = write("rwkv", rescale_every=1)
    ours = Trained(spec_of(folder), rows())
    input_ids = torch.from_numpy(rows()[0].input_ids).long()[None]
    with torch.no_grad():
        trained = ours.model(input_ids=input_ids, use_cache=False).logits
        evaluated = ours.model.eval()(input_ids=input_ids, use_cache=False).logits
        merged = ours.model.merge_and_unload()(input_ids=input_ids, use_cache=False).logits
    torch.testing.assert_close(evaluated, trained)
    torch.testing.assert_close(merged, trained, rtol=1e-4, atol=1e-5)


def test_experts_beside_an_mlp_train_as_transformers_and_peft_train_them(write: Any) -> None:
    folder = write("gemma4_text", **causal_types.BESIDE_MLP)
    _check_agreement(folder)
    names = ["q_proj", "gate_proj", "down_proj", "gate_up_proj"]
    _check_agreement(folder, target_modules=names)
    ours = Trained(spec_of(folder, method={"target_modules": names}), rows())
    assert any("experts" in name for name in ours.start)
    assert [str(sentence) for sentence in ours.path.report][:1] == ["2 of 2 layers run on Tunesmith's own path."]


BY_SHAPE = (
    "gpt2 arcee apertus biogpt codegen falcon gpt_bigcode gpt_neox gptj nemotron opt persimmon phi stablelm "
    "starcoder2".split()
)
"""Types that nothing in the fused path names."""

METHODS: list[dict[str, Any]] = [{"kind": "qlora"}, {"kind": "lora", "dora": True}, {"kind": "lora", "dropout": 0.1}]


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS, ids=["qlora", "dora", "dropout"])
@pytest.mark.parametrize("kind", BY_SHAPE)
def test_types_of_other_shapes_run_fused_with_every_method(kind: str, method: dict[str, Any], write: Any) -> None:
    folder, data = write(kind), rows()
    ours = Trained(spec_of(folder, method=method), data)
    assert ours.path.name == "fused"
    assert str(ours.path.report[0]) == "2 of 2 layers run on Tunesmith's own path."
    assert all(np.isfinite(ours.losses))
    if "dropout" not in method:
        plain = Trained(spec_of(folder, method=method, hardware={"kernels": False}), data)
        assert ours.losses == pytest.approx(plain.losses, rel=TOLERANCE)


@pytest.mark.parametrize(
    "kind",
    [kind if kind in ("roberta", "xlnet") else pytest.param(kind, marks=pytest.mark.long) for kind in LOOKS_AHEAD],
)
def test_a_model_that_looks_ahead_is_refused(kind: str, write: Any) -> None:
    with pytest.raises(UserError, match="is not a causal model") as caught:
        Trained(spec_of(write(kind)), rows())
    assert caught.value.code == "model-kind-unsupported"


def test_rows_of_one_repeated_token_hide_no_model_that_looks_ahead(write: Any) -> None:
    same = np.full(20, 30, np.int32)
    with pytest.raises(UserError, match="is not a causal model"):
        Trained(spec_of(write("roberta")), [Example(same, same), *rows()[1:]])


def test_an_encoder_that_was_made_a_decoder_trains(write: Any) -> None:
    _check_agreement(write("bert", is_decoder=True))


@pytest.mark.parametrize("kind", ["llava", "qwen3_vl", "smolvlm"])
def test_positions_in_an_image_limit_no_text(kind: str, write: Any) -> None:
    folder = write(kind)
    check_row_lengths(100_000, Trained(spec_of(folder), rows()).model.get_base_model(), folder)


def test_rows_before_a_table_of_positions_are_not_counted(write: Any) -> None:
    folder = write("opt", max_position_embeddings=48)
    model = Trained(spec_of(folder), rows()).model.get_base_model()
    check_row_lengths(48, model, folder)
    with pytest.raises(TunesmithError, match="supports only 48") as caught:
        check_row_lengths(49, model, folder)
    assert caught.value.code == "spec-invalid"


@pytest.mark.parametrize("kind", AGREE)
def test_the_files_tell_the_same_limit_as_the_model(kind: str, tmp_path: Path) -> None:
    config = causal_types.make_config(kind)
    know_language_model(kind)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    found = num_positions(config.to_dict(), {name: tuple(each.shape) for name, each in model.state_dict().items()})
    (tmp_path / "config.json").write_text(config.to_json_string())
    assert known_tokens(tmp_path) in (0, num_rows(config))
    check_row_lengths(found or 10**9, model, tmp_path)
    if found:
        with pytest.raises(TunesmithError, match=f"supports only {found}"):
            check_row_lengths(found + 1, model, tmp_path)


@pytest.mark.parametrize("kind", ["reformer", "xmod"])
def test_types_of_another_sort_are_refused_by_name(kind: str, write: Any) -> None:
    with pytest.raises(UserError, match=f"{kind} (splits texts|has separate weights)") as caught:
        Trained(spec_of(write(kind)), rows())
    assert caught.value.code == "model-kind-unsupported"


def test_an_encoder_decoder_is_refused_by_the_engine_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(UserError, match="type t5 is an encoder-decoder") as caught:
        load_config(tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("model-kind-unsupported", 2)


@pytest.mark.parametrize("kind", NO_LANGUAGE_MODEL_ALONE)
def test_a_part_of_a_larger_model_is_refused_by_name(kind: str, write: Any) -> None:
    with pytest.raises(TunesmithError, match=f"{kind}_text_model is not a language model on its own") as caught:
        Trained(spec_of(write(kind)), rows())
    assert (caught.value.code, caught.value.exit_code) == ("model-kind-unsupported", 2)


def test_a_model_without_activation_checkpointing_trains_and_says_so(write: Any) -> None:
    changes = {"activation_checkpointing": True, "kernels": False}
    ours = Trained(spec_of(write("openai-gpt"), hardware=changes), rows())
    assert len(ours.losses) == NUM_STEPS
    assert any("Activation checkpointing is off" in sentence for sentence in ours.path.report)
    assert ours.path.keep_less() is None


@pytest.mark.parametrize("kind", ["git", "gpt2"])
def test_activation_checkpointing_changes_no_loss(kind: str, write: Any) -> None:
    folder, data = write(kind), rows()
    plain = Trained(spec_of(folder, hardware={"kernels": False}), data)
    ours = Trained(spec_of(folder, hardware={"kernels": False, "activation_checkpointing": True}), data)
    assert ours.losses == pytest.approx(plain.losses, rel=TOLERANCE)
    assert not any("Activation checkpointing is off" in sentence for sentence in ours.path.report)


@pytest.mark.parametrize("kind", ["gemma3n_text", "mamba"])
def test_layers_whose_weight_others_read_are_not_packed_in_4_bits(kind: str, write: Any) -> None:
    folder = write(kind)
    ours = Trained(spec_of(folder, method={"kind": "qlora"}), rows())
    plain = Trained(spec_of(folder, method={"kind": "qlora"}, hardware={"kernels": False}), rows())
    assert ours.losses == pytest.approx(plain.losses, rel=TOLERANCE)
    packed = [name for name, value in ours.model.named_parameters() if hasattr(value, "quant_state")]
    assert packed
    assert not any(part in name for name in packed for part in ("coefs", "dt_proj", "lm_head"))


# The share of the loss for an even use of experts


@pytest.mark.parametrize(
    "kind", ["mixtral", *(pytest.param(kind, marks=pytest.mark.long) for kind in BALANCED if kind != "mixtral")]
)
def test_the_balance_of_experts_counts_as_transformers_counts_it(kind: str, write: Any) -> None:
    spec = spec_of(
        write(kind, output_router_logits=True), schedule={"micro_batch_size": 1, "gradient_accumulation_steps": 4}
    )
    data = rows()
    ours = Trained(spec, data)
    assert ours.losses == pytest.approx(by_transformers(spec, ours, data, with_labels=True), rel=TOLERANCE)
    # It is there: without it, the loss is another one.
    assert ours.losses != pytest.approx(by_transformers(spec, ours, data), rel=10 * TOLERANCE)


def test_padding_has_no_share_in_the_balance_of_experts(write: Any) -> None:
    data = rows()[:2]
    model = Trained(spec_of(write("mixtral", output_router_logits=True)), data).model.eval()
    batch = make_batch(data, 9, torch.device("cpu"))
    tensors = collate(data, 3)
    with torch.no_grad():
        theirs = model(**tensors, use_cache=False).loss * num_trained_tokens(data)
        assert float(method_of("sft").summed_loss(model, batch, True)) == pytest.approx(float(theirs), rel=1e-6)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_fused_path_counts_it_for_the_same_rows_as_plain_pytorch(size: int, write: Any) -> None:
    folder, data = write("mixtral", output_router_logits=True), rows()
    schedule = {"micro_batch_size": size, "gradient_accumulation_steps": 4 // size}
    ours, plain = (
        Trained(spec_of(folder, schedule=schedule, hardware={"kernels": kernels}), data) for kernels in (True, False)
    )
    assert (ours.path.name, plain.path.name) == ("fused", "plain")
    assert kernel_words.BALANCED in ours.path.report
    assert kernel_words.BALANCED in plain.path.report
    assert ours.losses == pytest.approx(plain.losses, rel=TOLERANCE)


# Rotary tables that change with the length of the text

SWITCHING = {
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0, 1.1, 1.3, 1.5, 1.7, 2.0, 2.2, 2.5],
        "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        "original_max_position_embeddings": 8,
    },
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
}


def _switching(rope: str) -> dict[str, Any]:
    if rope == "dynamic":
        return {"rope_parameters": SWITCHING[rope], "max_position_embeddings": 8}
    return {
        "rope_parameters": SWITCHING[rope],
        "max_position_embeddings": 64,
        "original_max_position_embeddings": 8,
    }


@pytest.mark.parametrize("rope", SWITCHING)
def test_each_row_takes_the_rotary_table_of_its_own_length(rope: str, write: Any) -> None:
    folder = write("phi3" if rope == "longrope" else "llama", **_switching(rope))
    _check_agreement(folder)
    ours = Trained(spec_of(folder), rows())
    assert ours.path.name == "plain"
    assert any("table" in warning for warning in ours.warnings)


@pytest.mark.parametrize("lengths", [(8, 5, 7, 4) * 3, (9, 12, 10, 11) * 3], ids=["short", "long"])
def test_rows_that_share_a_rotary_table_are_packed(lengths: tuple[int, ...], write: Any) -> None:
    spec, data = spec_of(write("phi3", **_switching("longrope"))), rows(lengths)
    ours = Trained(spec, data)
    assert ours.path.name == "fused"
    assert ours.losses == pytest.approx(by_transformers(spec, ours, data), rel=TOLERANCE)
