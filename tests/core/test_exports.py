"""What of a run can be exported, how large that becomes, where it goes, and what is said of its proof."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import write_safetensors
from tests.run_adapter import make_adapter
from tunesmith_core import exports, gguf_types, other_programs
from tunesmith_core.errors import UserError
from tunesmith_core.exports import Saved, Size
from tunesmith_core.gguf_types import FILE_TYPES, HEADER_BYTES, about_bytes, recommended_type
from tunesmith_core.operations.command import command_of
from tunesmith_core.operations.kind import AbsolutePath, RunFolder
from tunesmith_core.operations.kinds.export import EXPORT, ExportSpec
from tunesmith_core.packed_weights import Layout, Packed
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run, create_run
from tunesmith_core.safetensors_header import Tensor
from tunesmith_core.spec import RunSpec

Make = Callable[..., RunSpec]
FOLDER = RunFolder("/r")

SHAPES = {
    "model.embed_tokens.weight": (320, 256),
    "model.norm.weight": (256,),
    "model.layers.0.self_attn.q_proj.weight": (256, 256),
    "model.layers.0.self_attn.v_proj.weight": (256, 256),
    "model.layers.0.self_attn.qkv_proj.weight": (256, 256),
    "model.layers.0.mlp.up_proj.weight": (32, 288),
    "model.layers.0.mlp.gate_proj.weight": (32, 300),
}


@pytest.fixture
def run(make_spec: Make) -> Run:
    return create_run(make_spec("Support Bot"))


def end(run: Run, *steps: int, status: str = "finished", losses: dict[int, float | None] | None = None) -> None:
    """Give a run checkpoints, losses, an adapter and an end."""
    for step in steps:
        folder = run.checkpoints_path / f"step-{step:06d}"
        folder.mkdir(parents=True)
        (folder / exports.CHECKPOINT_WEIGHTS).write_bytes(b"x" * step)
    make_adapter(run.adapter_path)
    journal = JournalWriter(run.journal_path)
    for step, loss in (losses or {}).items():
        journal.write("eval", step=step, loss=loss)
    journal.write("result", status=status, step=30, artifacts={"adapter": "adapter"})
    journal.close()


def test_the_adapter_comes_first_and_the_lowest_loss_is_marked(run: Run) -> None:
    (run.checkpoints_path / "step-x").mkdir(parents=True)
    end(run, 10, 20, losses={10: 1.0, 20: None, 30: 2.0})
    assert exports.saved_weights(run) == [
        Saved(0, 30, 2.0, False, 2),
        Saved(20, 20, None, False, 20),
        Saved(10, 10, 1.0, True, 10),
    ]


def test_what_is_equally_good_or_alone_is_not_the_best(run: Run) -> None:
    end(run, 10, losses={10: 1.0, 30: 1.0})
    assert [each.is_best for each in exports.saved_weights(run)] == [False, False]


def test_a_run_without_its_adapter_has_its_checkpoints(run: Run) -> None:
    end(run, 10, status="failed")
    (run.checkpoints_path / "step-000010" / exports.CHECKPOINT_WEIGHTS).unlink()
    assert exports.saved_weights(run) == [Saved(10, 10, None, False, 0)]


def test_weights_are_chosen_by_their_step(run: Run, make_spec: Make) -> None:
    end(run, 10, 20)
    saved = exports.saved_steps(run)
    assert exports.chosen_weights(run, 0) == (30, run.adapter_path)
    assert exports.chosen_weights(run, 10) == (10, saved[10])
    with pytest.raises(UserError, match=r"no checkpoint of step 77. It has: 10, 20\."):
        exports.chosen_weights(run, 77)
    (run.adapter_path / "adapter_model.safetensors").unlink()
    assert exports.chosen_weights(run, 0) == (20, saved[20])
    with pytest.raises(UserError, match="no adapter and no checkpoint"):
        exports.chosen_weights(create_run(make_spec("empty")), 0)


def test_a_run_without_anything_trained_has_nothing(run: Run) -> None:
    assert exports.saved_weights(run) == []


def test_weights_of_the_base_model_are_read_from_its_folder(make_spec: Make, model_folder: Path) -> None:
    spec = make_spec("a")
    spec.model.path = str(model_folder)
    layout = exports.base_layout(create_run(spec))
    assert layout.weights["embed_tokens.weight"] == Tensor("F32", (16, 8))
    spec.model.path = "org/name"
    assert exports.base_layout(create_run(spec)).weights == {}


def test_bytes_follow_the_number_formats_of_the_file() -> None:
    q4, q5, q6, q8 = (256 * each // 256 for each in (144, 176, 210, 272))
    rows = 320 * q6 + 256 * q4 + 256 * (q4 + q6) / 2 + 256 * q5
    narrow = 32 * 288 // 32 * 22 + 32 * 300 * 2
    assert about_bytes("q4_k_m", SHAPES) == rows + narrow + 256 * 4
    numbers = 320 * 256 + 3 * 256 * 256 + 32 * (288 + 300)
    assert about_bytes("f16", SHAPES) == 2 * numbers + 256 * 4
    assert about_bytes("q8_0", {"model.embed_tokens.weight": (2, 256)}) == 2 * q8
    with_head = {"lm_head.weight": (320, 256), "model.embed_tokens.weight": (320, 256)}
    assert about_bytes("q5_k_m", with_head) == 320 * (q5 + q6)


def test_types_are_sorted_by_size_and_small_models_keep_more_bits() -> None:
    sizes = [about_bytes(name, {"a.q_proj.weight": (256, 256)}) for name in FILE_TYPES]
    assert sizes == sorted(sizes)
    assert (recommended_type(135_000_000), recommended_type(8_000_000_000)) == ("q8_0", "q4_k_m")


def test_every_number_format_of_a_file_has_its_size() -> None:
    named = {each for mix in FILE_TYPES.values() for each in (mix.matrices, mix.head, mix.finer, mix.fused) if each}
    assert named | set(gguf_types.FALLBACKS.values()) | {"MXFP4"} == set(gguf_types.BLOCKS)


def test_what_is_published_in_few_bits_is_announced_in_them() -> None:
    experts = {"model.layers.0.mlp.experts.down_proj": Tensor("BF16", (4, 96, 64))}
    packed = {name: Packed("mxfp4", {}, {}) for name in experts}
    sizes = exports.whole_sizes(Layout({"a": experts}, packed))
    assert sizes["gguf-q8_0"] == sizes["gguf-q4_k_m"] == 4 * 96 * 64 // 32 * 17
    assert sizes["gguf-f16"] == 4 * 96 * 64 * 2


def test_an_export_needs_more_room_than_it_keeps() -> None:
    sizes = exports.whole_sizes(
        Layout({"a": {"a.q_proj.weight": Tensor("F32", (1024, 1024)), "ids": Tensor("I32", (2,))}})
    )
    spare, base = exports.SPARE_BYTES, 4 << 20
    assert sizes["merged"] == base + 8
    merged = exports.size_of(ExportSpec(FOLDER), sizes, 7)
    assert merged == Size(base + 8, base + 8 + spare)
    gguf = exports.size_of(ExportSpec(FOLDER, format="gguf", type="f32"), sizes, 7)
    assert gguf is not None
    assert gguf.needed_bytes == gguf.num_bytes + HEADER_BYTES + spare > 4 << 20
    assert exports.size_of(ExportSpec(FOLDER, format="adapter"), sizes, 7) == Size(7, 14 + spare)
    beside = exports.size_of(ExportSpec(FOLDER, format="gguf-adapter"), sizes, 7)
    assert beside == Size(7, 7 + sizes["gguf-f16"] + HEADER_BYTES + spare)


def test_numbers_of_16_bits_stay_what_they_are() -> None:
    mixed = {"a": Tensor("F32", (8,)), "b": Tensor("BF16", (8,))}
    assert exports.whole_sizes(Layout({"a": mixed}))["merged"] == 8 * 4 + 8 * 2


def test_without_the_base_model_the_adapter_alone_has_a_size() -> None:
    assert exports.whole_sizes(Layout({})) == {}
    assert exports.size_of(ExportSpec(FOLDER, format="gguf"), {}, 7) is None
    assert exports.size_of(ExportSpec(FOLDER, format="adapter"), {}, 7) is not None


def test_only_the_finished_adapter_needs_no_base_model() -> None:
    assert not exports.needs_base("adapter", is_finished=True)
    assert exports.needs_base("adapter", is_finished=False)
    assert exports.needs_base("gguf", is_finished=True)


def test_an_export_lies_beside_its_run_or_has_its_name(run: Run) -> None:
    label = ExportSpec(FOLDER, format="gguf").label
    assert exports.export_folder(run, 30, label) == run.path / "exports" / "step-000030-gguf-q8_0"
    final, early = Saved(0, 30, None, False, 2), Saved(10, 10, None, False, 2)
    assert exports.folder_name(run, final, label) == "support-bot-gguf-q8_0"
    assert exports.folder_name(run, early, ExportSpec(FOLDER).label) == "support-bot-step-10-merged"


def test_programs_are_found_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_programs.Path, "home", lambda: tmp_path)
    monkeypatch.setattr(other_programs.shutil, "which", {"ollama": "/bin/ollama"}.get)
    assert other_programs.find_ollama() == "/bin/ollama"
    assert other_programs.find_lm_studio() is None
    for name in (".cache/lm-studio/models", ".lmstudio/models"):
        (tmp_path / name).mkdir(parents=True)
        assert other_programs.find_lm_studio() == tmp_path / name
    monkeypatch.setattr(other_programs.shutil, "which", {}.get)
    assert other_programs.find_ollama() == ""


@pytest.mark.parametrize(("name", "told"), [("Support Bot", "support-bot"), ("客服 bot", "bot"), ("客服", "tunesmith")])
def test_ollama_gets_plain_letters(name: str, told: str, make_spec: Make) -> None:
    assert other_programs.ollama_name(create_run(make_spec(name)), "q8_0") == f"{told}:q8_0"


def test_the_command_names_what_was_chosen(run: Run) -> None:
    assert command_of(EXPORT, ExportSpec(RunFolder(str(run.path)))) == ["tunesmith", "export", run.id]
    spec = ExportSpec(FOLDER, 10, "gguf", "q6_k", AbsolutePath("/x y"), "mine", lm_studio=True)
    words = command_of(EXPORT, spec)
    options = "--checkpoint 10 --format gguf --type q6_k --to | --ollama mine --lm-studio".split()
    assert words[2:] == ["/r", *("/x y" if each == "|" else each for each in options)]


def test_only_models_that_write_become_gguf() -> None:
    assert exports.formats_of("sft") == ("gguf", "merged", "adapter", "gguf-adapter")
    assert exports.formats_of("reward") == ("merged", "adapter")


@pytest.mark.parametrize(
    ("config", "without"),
    [
        ({"model_type": "llama"}, ""),
        ({"model_type": "zamba2"}, "zamba2"),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, ""),
        ({"model_type": "qwen2_vl"}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_the_types_that_never_become_gguf_are_known_from_the_config(
    config: dict[str, object], without: str, make_spec: Make, model_folder: Path
) -> None:
    (model_folder / "config.json").write_text(json.dumps(config))
    spec = make_spec("a")
    spec.model.path = str(model_folder)
    assert exports.base_without_gguf(create_run(spec)) == without


NAME = "base_model.model.model.layers.{}.{}.lora_A.weight"


@pytest.mark.parametrize(
    ("config", "layers", "part", "without"),
    [
        ({"model_type": "zamba2"}, (2, 5), "shared_transformer.self_attn.q_proj", "zamba2"),
        ({"model_type": "zamba2", "num_mem_blocks": 2}, (2, 5, 8), "shared_transformer.self_attn.q_proj", "zamba2"),
        ({"model_type": "zamba2", "num_mem_blocks": 2}, (2, 5), "shared_transformer.self_attn.q_proj", ""),
        ({"model_type": "zamba2"}, (2, 5), "mamba.in_proj", ""),
        ({"model_type": "zamba"}, (2, 5), "shared_transf.self_attn.q_proj", "zamba"),
        ({"model_type": "llama"}, (2, 5), "shared_transf.self_attn.q_proj", ""),
    ],
)
def test_an_adapter_of_shared_layers_is_known_to_have_no_merged_model(
    config: dict[str, object],
    layers: tuple[int, ...],
    part: str,
    without: str,
    make_spec: Make,
    model_folder: Path,
) -> None:
    (model_folder / "config.json").write_text(json.dumps(config))
    spec = make_spec("a")
    spec.model.path = str(model_folder)
    run = create_run(spec)
    assert exports.base_without_merged(run) == "", "nothing is trained"
    end(run)
    assert exports.base_without_merged(run) == "", "the adapter can't be read"
    write_safetensors(run.adapter_path / "adapter_model.safetensors", {NAME.format(n, part): [2, 4] for n in layers})
    assert exports.base_without_merged(run) == without
    spec.adapter.kind = "full"
    assert exports.base_without_merged(create_run(spec)) == ""


def test_the_newest_checkpoint_tells_where_no_adapter_is_finished(make_spec: Make, model_folder: Path) -> None:
    (model_folder / "config.json").write_text(json.dumps({"model_type": "zamba"}))
    spec = make_spec("a")
    spec.model.path = str(model_folder)
    run = create_run(spec)
    end(run, 10, status="failed")
    shapes = {NAME.format(layer, "shared_transf.self_attn.q_proj"): [2, 4] for layer in (2, 5)}
    write_safetensors(exports.saved_steps(run)[10] / exports.CHECKPOINT_WEIGHTS, shapes)
    assert exports.base_without_merged(run) == "zamba"
    spec.model.path = "org/name"
    assert exports.base_without_merged(create_run(spec)) == ""


def test_of_a_model_that_is_not_here_no_type_is_known(make_spec: Make) -> None:
    spec = make_spec("a")
    spec.model.path = "org/name"
    assert exports.base_without_gguf(create_run(spec)) == ""


def test_an_export_of_a_run_on_few_bits_says_that_it_has_more() -> None:
    answer = {"existed": False, "licence": "mit", "warnings": []}
    few = exports.facts({**answer, "trained_on_bits": 4})
    assert [each for each in few if each not in exports.facts(answer)] == [exports.trained_on(4)]
    assert "The run trained on 4-bit weights." in str(exports.trained_on(4))
