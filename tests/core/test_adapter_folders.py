"""Adapters that a run begins and compares with: what fits, what is named before the run, and what a run keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import write_safetensors
from tunesmith_core import adapter_folders, cli_sources, planner, preflight, start_choices
from tunesmith_core.adapter_folders import check_adapters, read_adapter, take_settings
from tunesmith_core.base_model import BaseModel
from tunesmith_core.errors import TunesmithError
from tunesmith_core.runs import Run, create_run
from tunesmith_core.spec import RunSpec, compares, continues, has_effect, told_settings
from tunesmith_core.wsl import relay

MakeSpec = Callable[..., RunSpec]
SHAPES = {
    "model.embed_tokens.weight": (16, 8),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.mlp.up_proj.weight": (12, 8),
}


def write_adapter(
    folder: Path, modules: dict[str, tuple[int, int]] | None = None, rank: int = 3, **config: Any
) -> Path:
    """Write an adapter with factors of modules, by their outputs and inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "base_model_name_or_path": "org/tiny", **config}
    (folder / adapter_folders.CONFIG).write_text(json.dumps(values), encoding="utf-8")
    shapes: dict[str, list[int]] = {}
    for module, (outputs, inputs) in (modules or {"layers.0.self_attn.q_proj": (8, 8)}).items():
        name = f"base_model.model.model.{module}"
        shapes |= {f"{name}.lora_A.weight": [rank, inputs], f"{name}.lora_B.weight": [outputs, rank]}
    write_safetensors(folder / adapter_folders.WEIGHTS, shapes)
    return folder


@pytest.fixture
def started(make_spec: MakeSpec, tmp_path: Path) -> Callable[[Path], RunSpec]:
    def make(folder: Path) -> RunSpec:
        spec = make_spec()
        spec.adapter.start_from = str(folder)
        take_settings(spec)
        return spec

    return make


def test_an_adapter_decides_its_own_settings(started: Callable[[Path], RunSpec], tmp_path: Path) -> None:
    modules = {"layers.0.self_attn.q_proj": (8, 8), "layers.0.mlp.up_proj": (12, 8), "embed_tokens": (16, 8)}
    folder = write_adapter(tmp_path / "one", modules, use_rslora=True, bias="all")
    spec = started(folder)
    adapter = spec.adapter
    assert (adapter.rank, adapter.alpha, adapter.rslora, adapter.dora, adapter.bias) == (3, 6.0, True, False, "all")
    assert adapter.target_modules == ["embed_tokens", "q_proj", "up_proj"]
    assert adapter.keeps_base
    check_adapters(spec, SHAPES)
    adapter.target_modules = ["up_proj", "q_proj", "embed_tokens"]
    check_adapters(spec, SHAPES)
    adapter.rank = 8
    with pytest.raises(TunesmithError, match="rank is 8, but the adapter to start from has 3") as raised:
        check_adapters(spec, SHAPES)
    assert raised.value.code == "spec-invalid"
    adapter.rank, adapter.target_modules = 3, ["q_proj"]
    with pytest.raises(TunesmithError, match=r"target_modules is q_proj, but .* has embed_tokens, q_proj, up_proj"):
        check_adapters(spec, SHAPES)
    assert not has_effect(spec, "adapter.initial_values")
    assert not any(each.path == "adapter.start_from" for each in told_settings(spec))


def test_an_adapter_decides_layers_and_patterns(started: Callable[[Path], RunSpec], tmp_path: Path) -> None:
    folder = write_adapter(
        tmp_path / "one",
        layers_to_transform=[0],
        rank_pattern={r"q_proj": 8, r"layers\.1\..*\.up_proj": 2},
        alpha_pattern={r"layers\.0\.up\-proj": 2**0.5},
    )
    spec = started(folder)
    assert spec.adapter.layers == ["0"]
    assert spec.adapter.rank_pattern == ["layers.1.*.up_proj = 2", "q_proj = 8"]
    assert spec.adapter.alpha_pattern == ["layers.0.up-proj = 1.414213562"]
    assert RunSpec.from_dict(spec.to_dict()) == spec
    check_adapters(spec, SHAPES)
    spec.adapter.rank_pattern = ["q_proj = 4"]
    with pytest.raises(TunesmithError, match=r"adapter\.rank_pattern is q_proj = 4, but the adapter to start from has"):
        check_adapters(spec, SHAPES)
    assert started(write_adapter(tmp_path / "two", layers_to_transform=1)).adapter.layers == ["1"]


def test_what_a_new_adapter_would_begin_with_gives_way(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    spec.adapter.initial_values = "pissa"
    spec.adapter.start_from = str(write_adapter(tmp_path / "one"))
    take_settings(spec)
    assert spec.adapter.initial_values == "default"


def _spoiled(folder: Path, what: str) -> Path:
    config: Any = json.loads((folder / adapter_folders.CONFIG).read_text())
    match what:
        case "no config":
            (folder / adapter_folders.CONFIG).unlink()
            return folder
        case "torn config":
            (folder / adapter_folders.CONFIG).write_text("{")
            return folder
        case "no weights":
            (folder / adapter_folders.WEIGHTS).unlink()
        case "torn weights":
            content = (folder / adapter_folders.WEIGHTS).read_bytes()
            (folder / adapter_folders.WEIGHTS).write_bytes(content[:-3])
        case "other weights":
            write_safetensors(folder / adapter_folders.WEIGHTS, {"a.weight": [2, 2]})
        case "list":
            config = []
        case "kind":
            config["peft_type"] = "IA3"
        case "rank":
            config["r"] = 0
        case "head":
            config["task_type"] = "SEQ_CLS"
        case "pissa":
            config["init_lora_weights"] = "pissa_niter_4"
    (folder / adapter_folders.CONFIG).write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no config", "adapter_config.json is missing"),
        ("torn config", "adapter_config.json is not valid JSON"),
        ("no weights", "adapter_model.safetensors is missing, damaged"),
        ("torn weights", "adapter_model.safetensors is missing, damaged"),
        ("other weights", "holds no LoRA weights"),
        ("list", "of the kind ?"),
        ("kind", "of the kind IA3, and only LoRA"),
        ("rank", "has no rank or alpha"),
        ("head", "rates texts and writes none"),
        ("pissa", "began with pissa_niter_4"),
    ],
)
def test_what_cant_be_continued_is_named(
    what: str, words: str, started: Callable[[Path], RunSpec], tmp_path: Path
) -> None:
    folder = _spoiled(write_adapter(tmp_path / "one"), what)
    with pytest.raises(TunesmithError) as raised:
        read_adapter(folder)
    assert raised.value.code == "adapter-unfit"
    assert words in raised.value.message
    spec = started(folder)
    assert spec.adapter.rank == RunSpec().adapter.rank, "what can't be read decides nothing"
    assert adapter_folders.other_base(spec) is None
    with pytest.raises(TunesmithError):
        check_adapters(spec, SHAPES)


@pytest.mark.parametrize(
    ("modules", "words"),
    [
        ({"layers.0.self_attn.q_proj": (8, 9)}, "for another base model"),
        ({"layers.7.self_attn.q_proj": (8, 8)}, "a layer that the base model lacks"),
        ({"layers.0.self_attn.qkv": (8, 8), "layers.0.mlp.experts.gate": (3, 3), "odd": (2, 2)}, ""),
    ],
)
def test_another_base_model_is_named(
    modules: dict[str, tuple[int, int]], words: str, started: Callable[[Path], RunSpec], tmp_path: Path
) -> None:
    spec = started(write_adapter(tmp_path / "one", modules))
    if not words:
        # Names that the files may have otherwise than the model are left to it.
        check_adapters(spec, SHAPES)
        return
    with pytest.raises(TunesmithError, match=words):
        check_adapters(spec, SHAPES)


def test_another_name_of_the_base_is_a_note(started: Callable[[Path], RunSpec], tmp_path: Path) -> None:
    spec = started(write_adapter(tmp_path / "one"))
    spec.model.path = "/models/org--tiny"
    assert adapter_folders.other_base(spec) is None
    spec.model.path = "/models/large"
    assert "was trained on tiny, this run's base model is large" in str(adapter_folders.other_base(spec))
    assert adapter_folders.other_base(RunSpec()) is None


def test_embeddings_and_words_come_with_the_adapter(
    started: Callable[[Path], RunSpec], make_spec: MakeSpec, tmp_path: Path
) -> None:
    saved = ["model.norm", "model.embed_tokens", "lm_head"]
    spec = started(write_adapter(tmp_path / "whole", modules_to_save=saved))
    assert (spec.adapter.embeddings, spec.adapter.modules_to_save) == ("all", ["model.norm"])
    check_adapters(spec, SHAPES)
    spec = make_spec()
    spec.model.new_tokens, spec.adapter.embeddings = ["glow"], "new"
    run = create_run(spec)
    write_adapter(run.adapter_path, trainable_token_indices={"embed_tokens": [16]})
    spec = started(run.path)
    assert (spec.adapter.embeddings, spec.model.new_tokens) == ("new", ["glow"])
    check_adapters(spec, SHAPES)
    spec.model.new_tokens = ["hum"]
    with pytest.raises(TunesmithError, match="the adapter to start from knows other new words: glow"):
        check_adapters(spec, SHAPES)
    spec.model.new_tokens, spec.adapter.embeddings = ["glow"], "all"
    with pytest.raises(TunesmithError, match="embeddings is all, but the adapter to start from has new"):
        check_adapters(spec, SHAPES)


@pytest.mark.parametrize("embeddings", ["frozen", "all"])
def test_no_reference_beside_what_is_trained_whole(embeddings: str, make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    spec.objective.kind, spec.adapter.embeddings = "dpo", embeddings
    config = {"modules_to_save": ["lm_head"]} if embeddings == "frozen" else {}
    spec.objective.reference_adapter = str(write_adapter(tmp_path / "other", **config))
    with pytest.raises(TunesmithError, match="one of the two adapters has embeddings or other modules"):
        check_adapters(spec, SHAPES)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, ""),
        ({"rank": 32}, "its rank 32 is above that of the trained adapter, 16"),
        ({"rank": 32, "own": {"initial_values": "pissa"}}, ""),
        ({"own": {"rank_pattern": ["q_proj = 2"]}}, "its rank 3 is above that of the trained adapter, 2"),
        ({"own": {"layers": ["1-3"]}}, "it has weights for model.layers.0.self_attn.q_proj"),
        ({"use_dora": True}, "DoRA is set otherwise"),
        ({"bias": "all"}, "Bias is set otherwise"),
        ({"targets": ["up_proj"]}, "it has weights for q_proj"),
    ],
)
def test_a_reference_needs_room(config: dict[str, Any], words: str, make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    spec.objective.kind = "dpo"
    config = dict(config)
    spec.adapter.target_modules = config.pop("targets", "all-linear")
    for name, value in config.pop("own", {}).items():
        setattr(spec.adapter, name, value)
    spec.objective.reference_adapter = str(write_adapter(tmp_path / "other", **config))
    if not words:
        check_adapters(spec, SHAPES)
        assert planner.reference_bytes(spec) == 4
        spec.objective.reference = "once"
        assert planner.reference_bytes(spec) == 0
        return
    with pytest.raises(TunesmithError, match=words):
        check_adapters(spec, SHAPES)


def test_who_compares_and_continues(tmp_path: Path) -> None:
    spec = RunSpec()
    spec.adapter.start_from = str(tmp_path)
    compared = {}
    for kind in ("sft", "dpo", "kto", "grpo", "rloo", "simpo", "reward"):
        spec.objective.kind = kind
        compared[kind] = compares(spec), continues(spec)
        assert has_effect(spec, "objective.reference_adapter") == compares(spec)
    assert [kind for kind, (found, _) in compared.items() if found] == ["dpo", "kto", "rloo"]
    assert [kind for kind, (_, found) in compared.items() if not found] == ["reward"]
    assert any(problem.path == "adapter.start_from" for problem in spec.problems())
    spec.objective.kind, spec.adapter.kind = "sft", "full"
    assert any(problem.path == "adapter.start_from" for problem in spec.problems())


def test_a_run_keeps_both_and_knows_where_they_come_from(
    make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_spec("First")
    first.adapter.start_from = str(write_adapter(tmp_path / "given"))
    take_settings(first)
    run = create_run(first)
    for folder in (tmp_path / "given").iterdir():
        folder.unlink()
    kept = run.load_spec()
    assert kept.adapter.start_from == str(run.path / "start")
    assert adapter_folders.lineage(kept) == "given"
    write_adapter(run.adapter_path)
    second = make_spec("Second")
    second.objective.kind = "dpo"
    second.adapter.start_from = second.objective.reference_adapter = str(run.path)
    take_settings(second)
    other = create_run(second)
    loaded = other.load_spec()
    assert adapter_folders.lineage(loaded) == "given → First"
    assert adapter_folders.reference_name(loaded) == "First"
    assert adapter_folders.lineage(RunSpec()) == adapter_folders.reference_name(RunSpec()) == ""
    # Going on from the kept copy tells the same, and so does its twin inside WSL.
    monkeypatch.setattr(relay, "guest_path", lambda path: path)
    twin = create_run(relay.guest_spec(loaded, tmp_path / "models"), tmp_path / "twins")
    assert adapter_folders.lineage(twin.load_spec()) == "given → First"
    (other.path / "start" / adapter_folders.ORIGIN).write_text("{")
    assert adapter_folders.lineage(loaded) == "start"
    alone = make_spec()
    alone.adapter.start_from = str(write_adapter(tmp_path / "else" / "adapter"))
    assert adapter_folders.lineage(alone) == "adapter"
    alone.adapter.start_from = str(tmp_path / "else")
    assert adapter_folders.lineage(alone) == "adapter"
    alone.adapter.start_from = str(other.path)
    write_adapter(other.adapter_path)
    assert adapter_folders.lineage(alone) == "start → Second"


def test_other_files_of_the_base_are_named(
    make_spec: MakeSpec, tmp_path: Path, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec()
    spec.adapter.start_from = str(write_adapter(tmp_path / "one", {"layers.0.q_proj": (4, 8)}))
    take_settings(spec)
    model = preflight.check_model(spec)
    noted = SimpleNamespace(base_model=BaseModel(model_folder, None).notes)
    monkeypatch.setattr(preflight, "newest_noted", lambda _folder: noted)
    preflight._check_base_of_start(spec, model)
    (model_folder / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(TunesmithError, match="whose files differ from those of"):
        preflight._check_base_of_start(spec, model)
    preflight._check_base_of_start(make_spec(), model)


def test_a_reference_alone_is_kept(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    spec.objective.kind, spec.objective.reference_adapter = "dpo", str(write_adapter(tmp_path / "other"))
    take_settings(spec)
    assert spec.adapter.rank == RunSpec().adapter.rank
    run = create_run(spec)
    assert run.load_spec().objective.reference_adapter == str(run.path / "reference")
    assert not (run.path / "start").exists()


def test_the_adapters_of_runs_are_offered(make_spec: MakeSpec, tmp_path: Path, model_folder: Path) -> None:
    runs = [create_run(make_spec(name)) for name in ("One", "Two", "Three", "Four")]
    for run in runs[:3]:
        write_adapter(run.adapter_path)
    runs[1].spec_path.write_text("{")
    rating = json.loads(runs[2].spec_path.read_text())
    rating["objective"]["kind"] = "reward"
    runs[2].spec_path.write_text(json.dumps(rating))
    (found,) = start_choices.adapters_of_runs()
    assert (found.name, found.path) == ("One", str(runs[0].adapter_path))
    assert found.is_on(str(model_folder))
    assert found.is_on(f"{model_folder}/.")
    assert not found.is_on(str(tmp_path / "gone"))
    assert not start_choices.StartChoice("", "", "org/name").is_on(str(model_folder))


def test_a_spec_file_says_only_what_it_has_to(make_spec: MakeSpec, tmp_path: Path, model_folder: Path) -> None:
    values = make_spec().to_dict()
    write_adapter(tmp_path / "one")
    values["adapter"] = {"start_from": "one", "rank": 5}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(values))
    spec = cli_sources.read_spec(path)
    assert spec.adapter.start_from == str(tmp_path / "one")
    assert (spec.adapter.rank, spec.adapter.alpha) == (5, 6.0)
    with pytest.raises(TunesmithError, match="rank is 5, but"):
        preflight.adapter_folders.check_adapters(spec, {})
    assert Run(tmp_path).path == tmp_path
    assert model_folder.is_dir()
