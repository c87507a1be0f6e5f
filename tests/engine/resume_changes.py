"""Everything that can change between a stop and a resume, each thing once, with the word that must be told of it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tests.tiny_model import build_tiny_model, write_chats
from tunesmith_core import files
from tunesmith_core.checkpoint_manifest import CONTENT
from tunesmith_core.runs import CHECKPOINT_MANIFEST, Run
from tunesmith_core.spec import RunSpec, Setting, iter_settings

MANIFEST_KEYS = ("version", "step", "created_at", "run", "base_model", "spec", "fingerprint", "files", "sha256")


@dataclass(frozen=True)
class Place:
    """A stopped run with its model and data, and strangers to mix them up with."""

    folder: Path

    @property
    def run(self) -> Run:
        """The run, stopped at step 4 of 8, with checkpoints of steps 2 and 4 and an adapter."""
        return Run(self.folder / "runs" / "r-01")

    @property
    def newest(self) -> Path:
        """Its newest checkpoint."""
        return self.run.checkpoints_path / "step-000004"

    @property
    def model(self) -> Path:
        """Its base model."""
        return self.folder / "tiny"

    @property
    def data(self) -> Path:
        """Its data."""
        return self.folder / "rows.jsonl"


@dataclass(frozen=True)
class Change:
    """One change; `words` must be told, one of them at least."""

    name: str
    make: Callable[[Place], object]
    words: tuple[str, ...]


def spec_of(folder: Path) -> RunSpec:
    """Return the settings of the run."""
    return RunSpec.from_dict(
        {
            "version": 2,
            "name": "r",
            "model": {"path": str(folder / "tiny")},
            "data": {"sources": [{"path": str(folder / "rows.jsonl")}], "context_length": 128},
            "adapter": {"rank": 4, "alpha": 8.0},
            "optimizer": {"learning_rate": 1e-2},
            "schedule": {
                "max_steps": 8,
                "micro_batch_size": 2,
                "gradient_accumulation_steps": 2,
                "warmup_steps": 2,
            },
            "evaluation": {"percent": 20.0, "every_steps": 4},
            "saving": {"every_steps": 2},
            "hardware": {"devices": ["cpu"], "cpu_threads": 1},
        }
    )


# Settings

OTHERS: dict[str, Callable[[Place], object]] = {
    "model.path": lambda place: str(build_tiny_model(place.folder / "other", seed=5)),
    "model.revision": lambda _: "main",
    "data.sources[0].path": lambda place: str(write_chats(place.folder / "others.jsonl", 12)),
    "data.sources[0].columns": lambda _: {"messages": "messages"},
    "data.sources[0].most_rows": lambda _: 5,
    "data.sources[0].sheet": lambda _: "Sheet2",
    "data.system_prompt": lambda _: "Be kind.",
    "adapter.target_modules": lambda _: ["q_proj"],
    "evaluation.path": lambda place: str(write_chats(place.folder / "held.jsonl", 5)),
    "evaluation.group_column": lambda _: "messages",
    "evaluation.sample_prompts": lambda _: ["Hi"],
    "hardware.devices": lambda _: ["auto"],
    "optimizer.learning_rate": lambda _: 1.0,
    "optimizer.lora_plus_ratio": lambda _: 4.0,
    "model.new_tokens": lambda _: ["glowmill"],
    "adapter.embeddings": lambda _: "all",
    "adapter.modules_to_save": lambda _: ["norm"],
    "data.sources[0].replay": lambda _: 5.0,
    "optimizer.weight_decay": lambda _: 0.5,
    "optimizer.beta1": lambda _: 0.5,
    "optimizer.beta2": lambda _: 0.9,
    "optimizer.epsilon": lambda _: 1e-3,
    "adapter.dropout": lambda _: 0.5,
    "adapter.parts": lambda _: ["norms"],
    "adapter.start_from": lambda place: str(place.run.adapter_path),
    "adapter.layers": lambda _: ["0"],
    "adapter.rank_pattern": lambda _: ["q_proj=2"],
    "adapter.alpha_pattern": lambda _: ["q_proj=2"],
    "objective.label_smoothing": lambda _: 0.2,
    "objective.classes": lambda _: ["good", "bad"],
    "teacher.beta": lambda _: 0.75,
    **{f"rollouts.rewards[0].{name}": lambda _: "de" for name in ("pattern", "path", "schema", "model", "language")},
    **{
        name: lambda place: str(place.folder / "other")
        for name in ("teacher.path", "objective.reference_adapter")
    },
}
"""Values where a larger number, or another choice, would not do."""


def _other_value(setting: Setting, place: Place, old: Any) -> Any:  # Any: values of settings
    if setting.path in OTHERS:
        return OTHERS[setting.path](place)
    if setting.declaration.choices:
        return next(choice for choice in setting.declaration.choices if choice != old)
    return not old if isinstance(old, bool) else (old or 0) + 1


def _change_setting(setting: Setting) -> Callable[[Place], None]:
    def make(place: Place) -> None:
        spec = place.run.load_spec()
        setting.set(spec, _other_value(setting, place, setting.get(spec)))
        files.atomic_write_json(place.run.spec_path, spec.to_dict())

    return make


def _settings() -> Iterator[Change]:
    for setting in iter_settings():
        if len(setting.declaration.choices) != 1:
            yield Change(setting.path, _change_setting(setting), (setting.path.partition("[")[0],))


# Files


def _keep_date(path: Path, change: Callable[[], object]) -> None:
    before = path.stat()
    change()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _flip_signs(place: Place) -> None:
    path = place.model / "model.safetensors"
    weights = {name: -tensor for name, tensor in load_file(path).items()}
    _keep_date(path, lambda: save_file(weights, path, {"format": "pt"}))


def _alter_one_weight(place: Place) -> None:
    path = place.model / "model.safetensors"
    weights = load_file(path)
    weights["model.layers.1.mlp.up_proj.weight"][3, 3] += 1
    save_file(weights, path, {"format": "pt"})


def _other_weights(place: Place) -> None:
    other = build_tiny_model(place.folder / "other", seed=5)
    shutil.copyfile(other / "model.safetensors", place.model / "model.safetensors")


def _edit_json(name: str, **changes: object) -> Callable[[Place], None]:
    def make(place: Place) -> None:
        path = place.model / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return make


def _swap_tokens(place: Place) -> None:
    path = place.model / "tokenizer.json"
    values = json.loads(path.read_text())
    vocabulary = values["model"]["vocab"]
    vocabulary["a"], vocabulary["e"] = vocabulary["e"], vocabulary["a"]
    path.write_text(json.dumps(values))


def _replace(name: str, old: str, new: str) -> Callable[[Place], None]:
    def make(place: Place) -> None:
        path = place.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return make


def _delete(name: str) -> Callable[[Place], None]:
    return lambda place: (place.folder / name).unlink()


def _files() -> Iterator[Change]:
    weights = ("model.safetensors",)
    yield Change("signs of the weights, date kept", _flip_signs, weights)
    yield Change("one weight", _alter_one_weight, weights)
    yield Change("weights of another seed", _other_weights, weights)
    yield Change("weights deleted", _delete("tiny/model.safetensors"), weights)
    for name, value in (
        ("rope_theta", 77.0),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 77.0}),
        ("rms_norm_eps", 0.1),
        ("hidden_size", 32),
        ("num_hidden_layers", 1),
        ("vocab_size", 12),
        ("model_type", "mistral"),
        ("torch_dtype", "bfloat16"),
    ):
        yield Change(f"config.json: {name}", _edit_json("config.json", **{name: value}), ("config.json",))
    yield Change("config.json deleted", _delete("tiny/config.json"), ("config.json",))
    yield Change("two tokens swapped", _swap_tokens, ("tokenizer.json",))
    yield Change("tokenizer.json deleted", _delete("tiny/tokenizer.json"), ("tokenizer.json",))
    config = ("tokenizer_config.json",)
    yield Change("tokenizer_config.json: eos", _edit_json(config[0], eos_token="<|endoftext|>"), config)
    yield Change("tokenizer_config.json: pad", _edit_json(config[0], pad_token="<|im_end|>"), config)
    template = ("template",)
    yield Change("template", _replace("tiny/chat_template.jinja", "<|im_start|>{{", "<|im_start|>the {{"), template)
    yield Change("template, for answers only", _replace("tiny/chat_template.jinja", "assistant\n", "bot\n"), template)
    yield Change("template deleted", _delete("tiny/chat_template.jinja"), template)
    generation = ("generation_config.json",)
    yield Change("generation_config.json", _edit_json(generation[0], eos_token_id=0), generation)
    yield Change("generation_config.json deleted", _delete("tiny/generation_config.json"), generation)
    yield Change(
        "added tokens", lambda place: (place.model / "added_tokens.json").write_text("{}"), ("added_tokens.json",)
    )
    yield Change("a row", _replace("rows.jsonl", "It is 3", "It is 9"), ("The data changed",))
    yield Change("row appended", _append_row, ("rows:",))
    yield Change("rows deleted", lambda place: write_chats(place.data, 10), ("rows:",))
    yield Change("data deleted", _delete("rows.jsonl"), ("rows.jsonl",))


def _append_row(place: Place) -> None:
    rows = place.data.read_text().splitlines(keepends=True)
    place.data.write_text("".join([*rows, rows[0]]))


# Checkpoints


def _spoil(name: str, how: str) -> Callable[[Place], None]:
    def make(place: Place) -> None:
        path = place.newest / name
        content = bytearray(path.read_bytes())
        path.unlink()
        if how == "a folder":
            path.mkdir()
        elif how == "emptied":
            path.write_bytes(b"")
        elif how == "cut":
            path.write_bytes(content[:-9])
        elif how == "flipped":
            content[len(content) // 2] ^= 1
            path.write_bytes(content)

    return make


def _edit_manifest(key: str, *value: object) -> Callable[[Place], None]:
    def make(place: Place) -> None:
        path = place.newest / CHECKPOINT_MANIFEST
        values = files.read_json(path)
        del values[key]
        path.write_text(json.dumps(values | dict.fromkeys([key] * len(value), *value)))

    return make


def _foreign(name: str) -> Callable[[Place], None]:
    def make(place: Place) -> None:
        shutil.rmtree(place.newest)
        shutil.copytree(place.folder / name / "checkpoints" / "step-000004", place.newest)

    return make


def _all_spoiled(place: Place) -> None:
    for path in place.run.checkpoints_path.glob("step-*/optimizer.safetensors"):
        path.write_bytes(b"")


EARLIER = ("earlier version", "don't fit", "optimizer.name", "spec.json", "row has no column", "this objective learns")


def _of_earlier_version(change: Change) -> Change:
    """Return a change of a run whose checkpoints note neither settings nor files, as those of early releases."""

    def make(place: Place) -> None:
        for path in place.run.checkpoints_path.glob(f"step-*/{CHECKPOINT_MANIFEST}"):
            values = files.read_json(path)
            files.atomic_write_json(path, {name: values[name] for name in ("version", "step", "fingerprint", "files")})
        change.make(place)

    return Change(f"earlier version: {change.name}", make, EARLIER)


def _checkpoints() -> Iterator[Change]:
    words = ("step-000004", "step-000009", "checkpoints")
    for name in (*CONTENT, CHECKPOINT_MANIFEST):
        for how in ("missing", "a folder", "emptied", "cut", "flipped"):
            yield Change(f"{name} {how}", _spoil(name, how), words)
    for key in MANIFEST_KEYS:
        yield Change(f"manifest without {key}", _edit_manifest(key), words)
        for value in (None, {}, [], "x", 1e300):
            yield Change(f"manifest with {key} {value!r}", _edit_manifest(key, value), words)
    yield Change("checkpoint of another run", _foreign("runs/twin-01"), words)
    yield Change("checkpoint of a run of another rank", _foreign("runs/wide-01"), words)
    yield Change(
        "checkpoint of a higher step", lambda place: place.newest.rename(place.newest.with_name("step-000009")), words
    )
    yield Change("all checkpoints spoiled", _all_spoiled, words)
    yield Change("no checkpoints", lambda place: shutil.rmtree(place.run.checkpoints_path), words)


CHANGES = [*_settings(), *_files(), *_checkpoints(), *map(_of_earlier_version, _settings())]

WORST = (
    "signs of the weights, date kept",
    "template, for answers only",
    "optimizer.learning_rate",
    "schedule.seed",
    "adapter.target_modules",
    "adapter.rank",
    "optimizer.name",
    "config.json: hidden_size",
    "manifest with files {}",
    "checkpoint of a run of another rank",
    "all checkpoints spoiled",
    "earlier version: optimizer.name",
)
"""What was silent, or ended as our mistake, when a tester first tried."""
