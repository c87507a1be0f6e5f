"""What the tests of exports share: a run with trained weights in a checkpoint, and how much memory tensors take."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.disk_faults import FaultyDisk, install
from tests.engine import causal_types
from tests.engine.test_causal_types import spec_of
from tests.engine.tokenizers_made import write_tokenizer
from tunesmith_core import paths
from tunesmith_core.base_model import BaseModel
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath, RunFolder
from tunesmith_core.operations.kinds.export import ExportFormat, ExportSpec, GgufType
from tunesmith_core.protocol import JournalWriter
from tunesmith_core.runs import Run, create_run
from tunesmith_engine.device import choose_compute
from tunesmith_engine.export.export_run import export_run
from tunesmith_engine.export.staging import staging_folder
from tunesmith_engine.export.trained import load_base
from tunesmith_engine.failures import translate
from tunesmith_engine.methods import method_of
from tunesmith_engine.model.lora import trainable
from tunesmith_engine.train.checkpoint import Checkpoints, Snapshot

STEP = 6
NUM_ROWS = 480
"""Of the vocabulary of a small model for llama.cpp."""


def trained_run(model_folder: Path, **method: Any) -> tuple[Run, PeftModel]:
    """Return a run with one checkpoint of random trained weights, and the model that they are of, in float32."""
    spec = spec_of(model_folder, method=method)
    model: PeftModel = method_of("sft").load(model_folder, spec, choose_compute(spec))
    generator = torch.Generator().manual_seed(1)
    for parameter in trainable(model).values():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.1
    run = create_run(spec)
    save(run, model, STEP)
    return run, model.eval()


OF_IMAGES = {"gemma3": "gemma3_text", "mistral3": "ministral3", "llava": "llama", "internvl": "qwen2"}
"""Types of models for images and texts, and that of the decoder of a small one."""


def overrides_for_llama_cpp(kind: str) -> dict[str, Any]:
    """Return what the small config of a type needs to be like its real models."""
    if kind in OF_IMAGES:
        inner = OF_IMAGES[kind]
        return {"text_config": {**causal_types.make_config(inner).to_dict(), **overrides_for_llama_cpp(inner)}}
    config = causal_types.make_config(kind)
    if kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"):
        inner = config.text_config.to_dict()
        sections = {"mrope_section": causal_types.SECTIONS.get(kind, [4, 2, 2])}
        inner["rope_parameters"] = {**inner["rope_parameters"], **sections}
        # Qwen3-VL adds what it sees to the first three layers, and llama.cpp ends where these are all.
        deeper = {"num_hidden_layers": 4} if kind.startswith("qwen3") else {}
        return {"text_config": {**inner, "vocab_size": NUM_ROWS, "max_position_embeddings": 512, **deeper}}
    layers = range(config.num_hidden_layers)
    windowed = {"gemma2": 2, "gemma3_text": 6}
    changes: dict[str, Any] = {"vocab_size": NUM_ROWS, "max_position_embeddings": 512}
    if kind in windowed:
        names = ["sliding_attention", "full_attention"]
        changes |= {"layer_types": [names[(layer + 1) % windowed[kind] == 0] for layer in layers]}
        changes |= {"query_pre_attn_scalar": config.head_dim, "sliding_window": 8}
    if kind in ("mistral", "phi3"):
        changes["sliding_window"] = None
    if kind in ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"):
        rotary = {"rope_theta": 1e4, "partial_rotary_factor": 0.5, "rope_type": "default", "mrope_section": [2, 1, 1]}
        changes |= {"num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention"] * 2}
        changes["rope_parameters"] = rotary
    if kind == "gemma4_text":
        changes |= {"vocab_size_per_layer_input": NUM_ROWS, "num_hidden_layers": 6, "num_kv_shared_layers": 3}
        changes |= {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2}
        changes |= {"global_head_dim": 32, "final_logit_softcapping": 30.0}
    if kind == "exaone4":
        changes |= {"sliding_window": None, "layer_types": ["full_attention" for _ in layers]}
    if kind == "qwen3_moe":
        changes["norm_topk_prob"] = True
    if kind == "granitemoehybrid":
        changes |= {"layer_types": ["linear_attention", "full_attention"], "mamba_n_heads": 8}
        changes["shared_intermediate_size"] = 64
        changes |= {"attention_multiplier": 0.1, "residual_multiplier": 0.7, "logits_scaling": 4.0}
    if kind == "mistral4":
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "mscale": 1.0}
        beta = {"rope_theta": 1e4, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "partial_rotary_factor": 0.5}
        changes["rope_parameters"] = {**yarn, **beta}
    if kind == "llama4_text":
        changes |= {"num_hidden_layers": 5, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 128}
    if kind == "afmoe":
        names = ["sliding_attention", "full_attention"]
        changes |= {"num_hidden_layers": 5, "layer_types": [names[layer % 4 == 3] for layer in range(5)]}
        changes |= {"mup_enabled": True, "route_scale": 2.5, "num_shared_experts": 2}
    if kind in ("glm4_moe", "deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
        changes["routed_scaling_factor"] = 2.5
    if kind in ("olmoe", "dots1"):
        changes["num_key_value_heads"] = config.num_attention_heads
    if kind == "smollm3":
        changes["no_rope_layers"] = [int((layer + 1) % 4 != 0) for layer in layers]
    return changes


def run_for_llama_cpp(folder: Path, kind: str = "llama", words: str = "qwen-2", **changes: Any) -> Run:
    """Return a run on a model of `model_for_llama_cpp`."""
    return trained_run(model_for_llama_cpp(folder, kind, words, **changes))[0]


def model_for_llama_cpp(
    folder: Path, kind: str = "llama", words: str = "qwen-2", begins: bool = False, **changes: Any
) -> Path:
    """Return a small model of a type that llama.cpp has, with a tokenizer of a kind of `KINDS`."""
    write_tokenizer(words, folder / "tokenizer", begins=begins)
    changes = overrides_for_llama_cpp(kind) | changes
    return causal_types.write_model(kind, folder / "model", folder / "tokenizer", **changes)


def finished_run(model_folder: Path, settings: LoraConfig) -> tuple[Run, PeftModel]:
    """Return a finished run with an adapter of random trained weights that PEFT saved, and the model with it."""
    spec = spec_of(model_folder)
    run = create_run(spec)
    model = get_peft_model(load_base(model_folder), settings)
    generator = torch.Generator().manual_seed(1)
    for parameter in trainable(model).values():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.1
    model.save_pretrained(run.adapter_path, save_embedding_layers=False)
    finish(run)
    return run, model.eval()


def finish(run: Run) -> None:
    """Let a run say that it finished with its adapter."""
    journal = JournalWriter(run.journal_path)
    journal.write("result", status="finished", step=STEP, artifacts={"adapter": "adapter"})
    journal.close()


def save(run: Run, model: PeftModel, step: int) -> None:
    """Save what a model has trained as a checkpoint of a run."""
    spec = run.load_spec()
    checkpoints = Checkpoints(run.checkpoints_path, 2, spec, run.created_at)
    checkpoints.base_model = BaseModel(Path(spec.model.path), None)
    weights = {name: value.detach().clone() for name, value in trainable(model).items()}
    checkpoints.save(Snapshot(step, weights, {"a": torch.ones(1)}, {"cpu": torch.get_rng_state()}, {}), {"data": "0f"})


def export(
    run: Run,
    to: Path,
    kind: ExportFormat = "merged",
    checkpoint: int = 0,
    type_name: GgufType = "f32",
    ollama: str = "",
    lm_studio: bool = False,
) -> dict[str, Any]:
    """Export a run in this process, as the operation does."""
    folder = paths.tmp_dir() / f"operation-{to.name}"
    folder.mkdir(parents=True, exist_ok=True)
    with Host(Run(folder)) as host:
        place, folder_of = AbsolutePath(str(to)), RunFolder(str(run.path))
        return export_run(host, ExportSpec(folder_of, checkpoint, kind, type_name, place, ollama, lm_studio))


class _FullDisk(FaultyDisk):
    """Takes nothing more, but lets go of what it has, as real ones do."""

    def refuses(self, call: str) -> bool:
        return super().refuses(call) and call not in ("unlink", "rmdir")


def fill_disk(run: Run, target: Path, choose: Callable[[int], list[int]], **options: Any) -> int:
    """Export to a disk that is full from some write on, and check that this is told and nothing is left.

    Args:
        run: what is exported.
        target: a folder of its folder is written each time.
        choose: returns the numbers of the writes, of how many there are.
        options: of `export`.

    Returns:
        How many writes there are.
    """
    disk = FaultyDisk(target.parent)
    with pytest.MonkeyPatch.context() as patches:
        install(disk, patches)
        export(run, target, **options)
    for number in choose(len(disk.calls)):
        place = target.with_name(f"{target.name}-{number}")
        full = _FullDisk(target.parent, first=number, count=10**6, torn=number % 2 == 0)
        with pytest.MonkeyPatch.context() as patches:
            install(full, patches)
            with pytest.raises((OSError, TunesmithError)) as failure:
                export(run, place, **options)
        assert translate(failure.value).code == "disk-full", f"call {number}: {failure.value!r}"
        assert not staging_folder(place).exists(), f"call {number}"
        # The last one makes the name durable that a whole folder has by then.
        is_last = number == len(disk.calls)
        assert place.exists() is is_last, f"call {number}"
        assert not is_last or export(run, place, **options)["existed"]
    return len(disk.calls)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors on the CPU that operations made and that are still there.

    Attributes:
        most: the largest count so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._sizes: dict[int, int] = {}
        self._holders: Counter[int] = Counter()

    def __torch_dispatch__(
        self, function: Callable[..., Any], _types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        result = function(*arguments, **(named or {}))
        for value in (*tree_leaves(arguments), *tree_leaves(result)):
            if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                self._hold(value)
        self.most = max(self.most, sum(self._sizes.values()))
        return result

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        self._sizes[key] = storage.nbytes()
        self._holders[key] += 1
        weakref.finalize(tensor, self._drop, key)

    def _drop(self, key: int) -> None:
        self._holders[key] -= 1
        if not self._holders[key]:
            self._sizes.pop(key, None)
