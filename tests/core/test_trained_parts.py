"""Full fine-tuning as the program plans and keeps it: parts, problems, presets, memory, disk, checkpoints, results."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_checkpoint_manifest import rewrite, save
from tests.core.test_planner import CARD, CPU, LAYER, LAYERS, gpu
from tunesmith_core import exports, files, presets, trained_parts
from tunesmith_core.checkpoint_manifest import CONTENT, damage, read_manifest, sealed, shard_name, weight_files
from tunesmith_core.planner import plan
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec, has_effect, told_settings
from tunesmith_core.spec_changes import check_resumable, with_changes
from tunesmith_core.trained_parts import FULL, is_chosen, state_bytes

SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (128_256, 4096),
    **{f"model.layers.{layer}.{name}.weight": shape for layer in range(LAYERS) for name, shape in LAYER.items()},
    **{f"model.layers.{layer}.input_layernorm.weight": (4096,) for layer in range(LAYERS)},
    "model.layers.0.q_proj.bias": (4096,),
    "lm_head.weight": (128_256, 4096),
}
NUM_WEIGHTS = sum(map(math.prod, SHAPES.values()))
WHOLE = replace(CARD, shapes=SHAPES, num_parameters=NUM_WEIGHTS)


def full(**changes: Any) -> RunSpec:
    named = {path.replace("__", "."): value for path, value in changes.items()}
    spec = with_changes(RunSpec(), {"adapter.kind": FULL, **named})
    spec.model.path = spec.data.sources[0].path = "x"
    return spec


@pytest.mark.parametrize(
    ("parts", "chosen"),
    [
        ("all", set(SHAPES)),
        (["embeddings"], {"model.embed_tokens.weight", "lm_head.weight"}),
        (["norms"], {name for name in SHAPES if "norm" in name}),
        (["layers"], {name for name in SHAPES if "norm" not in name and "embed" not in name and "head" not in name}),
        (["31"], {name for name in SHAPES if ".31." in name}),
        (["0-1 ", "lm_head"], {name for name in SHAPES if ".0." in name or ".1." in name} | {"lm_head.weight"}),
        (["up_proj"], {name for name in SHAPES if "up_proj" in name}),
        (["1-"], set()),
        (["up"], set()),
    ],
)
def test_parts_are_named_by_kind_number_or_module(parts: Any, chosen: set[str]) -> None:
    assert {name for name, shape in SHAPES.items() if is_chosen(name, shape, parts)} == chosen


def test_each_optimizer_has_states_of_its_size() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "model.layers.0.up_proj.weight": (512, 256),
        "model.embed_tokens.weight": (100, 256),
        "norm.weight": (256,),
    }
    matrix, embedding, norm = (math.prod(shape) for shape in shapes.values())
    assert state_bytes("adamw", shapes) == 8 * (matrix + embedding + norm)
    assert state_bytes("adamw_8bit", shapes) == round((matrix + embedding + norm) * 2 * (1 + 4 / 256))
    assert state_bytes("adafactor", shapes) == 4 * (512 + 256 + 100 + 256 + norm)
    assert state_bytes("muon", shapes) == 4 * matrix + 8 * (embedding + norm)


# Settings


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"quantization.kind": "nf4"}, "quantization.kind", "weights in 4 bits can't be trained"),
        ({"objective.kind": "dpo"}, "adapter.kind", "must be LoRA for the objective Preferences (DPO)"),
        ({"adapter.parts": []}, "adapter.parts", "must name at least one part"),
        ({"adapter.parts": ["norms", " "]}, "adapter.parts", "must name at least one part"),
        ({"adapter.parts": "most"}, "adapter.parts", 'must be "all" or a list'),
        ({"adapter.weights": "bfloat16", "model.dtype": "float16"}, "adapter.weights", "not float16"),
        ({"adapter.kind": "lora", "optimizer.name": "muon"}, "optimizer.name", "Muon is for full fine-tuning"),
    ],
)
def test_what_does_not_go_together_is_named(changes: dict[str, Any], path: str, words: str) -> None:
    (problem,) = with_changes(full(), changes).problems()
    assert problem.path == path
    assert words in problem.problem


@pytest.mark.parametrize("objective", sorted(trained_parts.OBJECTIVES))
@pytest.mark.parametrize("optimizer", ["adamw", "adamw_8bit", "adafactor", "muon"])
def test_what_goes_together(objective: str, optimizer: str) -> None:
    spec = full(objective__kind=objective, optimizer__name=optimizer, adapter__parts=["norms"])
    assert spec.problems() == []


def test_only_an_adapter_without_biases_keeps_the_base_model() -> None:
    biases = with_changes(RunSpec(), {"adapter.bias": "all"})
    assert [spec.adapter.keeps_base for spec in (RunSpec(), biases, full())] == [True, False, False]


def test_a_spec_without_the_setting_trains_an_adapter() -> None:
    values = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d"}]}}
    assert RunSpec.from_dict(values).adapter.kind == "lora"


def test_the_learning_rate_suits_what_is_trained() -> None:
    values = {"version": 2, "model": {"path": "m"}, "data": {"sources": [{"path": "d"}]}, "adapter": {"kind": FULL}}
    assert RunSpec.from_dict(values).optimizer.learning_rate == pytest.approx(2e-5)
    rates = {name: presets.apply(full(), name).optimizer.learning_rate for name in presets.PRESETS}
    assert rates == {"balanced": 2e-5, "fast-try": 3e-5, "best-quality": 1e-5}
    assert presets.matching(presets.apply(full(), "best-quality")) == "best-quality"


def test_only_what_matters_is_told() -> None:
    def told(spec: RunSpec) -> set[str]:
        return {setting.path for setting in told_settings(spec)}

    assert {"adapter.kind", "adapter.parts", "adapter.weights", "optimizer.beta1"} <= told(full())
    assert not {"adapter.rank", "adapter.dropout", "quantization.kind"} & told(full())
    assert {"adapter.kind", "adapter.rank", "quantization.kind"} <= told(RunSpec())
    assert not {"adapter.parts", "adapter.weights"} & told(RunSpec())
    assert not {"optimizer.beta1", "optimizer.beta2", "optimizer.epsilon"} & told(full(optimizer__name="adafactor"))
    assert not has_effect(full(), "hardware.kernels")
    assert has_effect(RunSpec(), "hardware.kernels")


@pytest.mark.parametrize("path", ["adapter.kind", "adapter.parts", "adapter.weights"])
def test_a_checkpoint_belongs_to_what_was_trained(path: str) -> None:
    other = {"adapter.kind": "lora", "adapter.parts": ["norms"], "adapter.weights": "bfloat16"}[path]
    with pytest.raises(Exception, match=path.replace(".", r"\.")):
        check_resumable(full(), with_changes(full(), {path: other}))


# The plan


def test_the_plan_counts_weights_gradients_states_and_what_they_need_on_the_way() -> None:
    parts = plan(full(hardware__kernels=False), gpu(140), card=WHOLE).parts
    assert list(parts) == ["weights", "training", "activations", "logits", "runtime"]
    # On the plain path 32-bit weights, and the 16-bit copies that a step computes with.
    assert parts["weights"] == NUM_WEIGHTS * 6
    transient = 4 * trained_parts.TRANSIENT_NUMBERS * trained_parts.TRANSIENT_WEIGHTS
    assert parts["training"] == NUM_WEIGHTS * (4 + 8) + transient
    for kernels in (False, True):
        lean = full(adapter__weights="bfloat16", optimizer__name="adamw_8bit", hardware__kernels=kernels)
        parts = plan(lean, gpu(140), card=WHOLE).parts
        assert parts["weights"] == NUM_WEIGHTS * 2
        # The kernels compute in registers.
        beside = 0 if kernels else transient
        assert parts["training"] == NUM_WEIGHTS * 2 + state_bytes("adamw_8bit", SHAPES) + beside
    assert plan(full(), CPU, card=WHOLE).parts["weights"] == NUM_WEIGHTS * 4


def test_an_optimizer_of_whole_matrices_needs_room_for_the_largest() -> None:
    parts = plan(full(optimizer__name="adafactor", hardware__kernels=False), gpu(140), card=WHOLE).parts
    largest = 128_256 * 4096
    states = state_bytes("adafactor", SHAPES)
    assert parts["training"] == NUM_WEIGHTS * 4 + states + 4 * trained_parts.TRANSIENT_NUMBERS * largest


def test_chosen_parts_need_less() -> None:
    some = plan(full(adapter__parts=["norms"]), gpu(140), card=WHOLE)
    # Two products at a time are rounded to 16 bits.
    assert some.parts["weights"] < NUM_WEIGHTS * 4.2
    assert some.parts["training"] < 1 << 26
    none = plan(full(adapter__parts=["nothing"], optimizer__name="muon"), gpu(140), card=WHOLE)
    assert none.parts["training"] == 0


def test_a_model_that_can_not_fit_says_what_helps() -> None:
    planned = plan(full(), gpu(24), card=WHOLE)
    assert planned.verdict == "exceeds"
    names = [dict(fix.changes) for fix in planned.fixes]
    assert {"optimizer.name": "adamw_8bit"} in names
    assert {"adapter.weights": "bfloat16"} in names
    assert any(fix.get("adapter.kind") == "lora" for fix in names)
    assert not any("quantization.kind" in fix for fix in names)


def test_whole_checkpoints_and_the_result_are_in_the_disk_space() -> None:
    planned = plan(full(), gpu(140), card=WHOLE)
    assert planned.disk_bytes == NUM_WEIGHTS * 12 * 3 + WHOLE.size_bytes
    assert planned.adapter_is_exact


@pytest.mark.parametrize("free_gib", [600, 100, 40, 1])
def test_the_settings_that_suit_a_device_keep_full_fine_tuning_possible(free_gib: float) -> None:
    changes = presets.suggest(WHOLE, gpu(free_gib), full())
    assert changes in presets.FULL_LADDER
    assert with_changes(full(), changes).problems() == []
    if free_gib > 500:
        assert changes == presets.FULL_LADDER[0]
    if free_gib == 1:
        assert changes == presets.FULL_LADDER[-1]


# Checkpoints in shards


def sharded(parent: Path, count: int = 3) -> Path:
    folder = save(parent)
    (folder / "adapter.safetensors").unlink()
    names = [name for name in CONTENT if name != "adapter.safetensors"]
    names += [shard_name("adapter", number, count) for number in range(1, count + 1)]
    for name in names:
        (folder / name).write_text(name)
    listed = {name: {"bytes": len(name), "sha256": files.sha256_file(folder / name)} for name in names}
    values = files.read_json(folder / "MANIFEST.json")
    files.atomic_write_json(folder / "MANIFEST.json", sealed(values | {"files": listed}))
    return folder


def test_a_checkpoint_in_shards_is_whole_with_all_of_them(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    assert damage(folder) == ""
    assert [path.name for path in weight_files(folder)] == [shard_name("adapter", each, 3) for each in (1, 2, 3)]
    assert set(map(str, read_manifest(folder).entries)) >= {path.name for path in weight_files(folder)}
    weight_files(folder)[1].write_text("other")
    assert "adapter-00002-of-00003.safetensors was changed" in damage(folder)
    weight_files(folder)[1].unlink()
    assert "adapter-00002-of-00003.safetensors is missing" in damage(folder)


def test_a_manifest_that_names_too_few_shards_or_odd_ones_is_damage(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    values = files.read_json(folder / "MANIFEST.json")
    del values["files"]["adapter-00003-of-00003.safetensors"], values["sha256"]
    files.atomic_write_json(folder / "MANIFEST.json", sealed(values))
    assert "adapter-00003-of-00003.safetensors is missing" in damage(folder)
    entry = values["files"]["state.json"]
    odd = dict.fromkeys(CONTENT, entry)
    odd |= {"../adapter-00001-of-00002.safetensors": entry, "adapter-x.safetensors": entry}
    files.atomic_write_json(folder / "MANIFEST.json", sealed(values | {"files": odd}))
    assert set(read_manifest(folder).entries) == set(CONTENT)
    rewrite(folder, files={})
    assert "changed" in damage(folder)


# What a run has made


@pytest.fixture
def run(home: Path) -> Run:
    assert home.is_dir()
    run = create_run(full())
    journal = JournalWriter(run.journal_path)
    journal.write("result", status="finished", step=30, artifacts={"adapter": "model"})
    journal.close()
    return run


def test_the_whole_model_is_what_a_run_has_made(run: Run) -> None:
    assert run.adapter_path.name == "adapter"
    run.model_path.mkdir()
    assert run.adapter_path == run.model_path
    problem = run.adapter_problem(run.status())
    assert problem
    assert "model.safetensors" in problem.message
    (run.model_path / "model-00001-of-00002.safetensors").write_bytes(b"1")
    problem = run.adapter_problem(run.status())
    assert problem
    assert "config.json" in problem.message
    (run.model_path / "config.json").write_text("{}")
    (run.model_path / "model-00002-of-00002.safetensors").write_bytes(b"22")
    assert run.adapter_problem(run.status()) is None
    (saved,) = exports.saved_weights(run)
    assert (saved.checkpoint, saved.step, saved.num_bytes) == (0, 30, 3)


@pytest.mark.parametrize("name", ["adapter", "model"])
def test_a_switch_that_a_kill_cut_short_is_taken_back(run: Run, name: str) -> None:
    (run.tmp_path / f"earlier-{name}").mkdir(parents=True)
    run.sweep()
    assert (run.path / name).is_dir()
    assert not run.tmp_path.exists()
