"""Change a spec by path; say what changed between a stop and a resume, what that does, and what it rules out."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any

from tunesmith_core.declared import set_field
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message
from tunesmith_core.spec import SECTIONS, RunSpec

MAX_SHOWN_CHARS = 300
"""What is shown of a value; a system prompt can be many pages."""

FIXED = (
    "model.path",
    "model.revision",
    "model.chat_template",
    "model.new_tokens",
    "model.dtype",
    "objective.kind",
    "objective.reference_adapter",
    "adapter.kind",
    "adapter.parts",
    "adapter.weights",
    "adapter.rank",
    "adapter.alpha",
    "adapter.target_modules",
    "adapter.layers",
    "adapter.rank_pattern",
    "adapter.alpha_pattern",
    "adapter.rslora",
    "adapter.dora",
    "adapter.bias",
    "adapter.embeddings",
    "adapter.modules_to_save",
    "adapter.start_from",
    "quantization.kind",
    "optimizer.name",
)
"""What the saved weights and states of a checkpoint belong to."""

FOLDERS = frozenset({"model.path", "teacher.path", "adapter.start_from", "objective.reference_adapter"})
"""Settings that name a folder, which may have moved."""

NOTHING_NOTED = Message("The checkpoint is from an earlier version, so changed settings can't be detected.")
ROUNDING = Message("Rounding differs, so the losses can differ slightly.")
OTHER_ROWS = Message("The remaining steps train on other rows.")
OTHER_TOKENS = Message("From here on, rows become other tokens.")
_OTHER_HELD_OUT = Message("Evaluation losses are measured on other rows, so earlier ones can't be compared with them.")
_OTHER_ORDER = Message("The rows come in another order, so some may be seen twice in this epoch and others not at all.")
_OTHER_SPLIT = Message("The rows come in another order, and rows that were trained can now be held out for evaluation.")
_OTHER_LOSS = Message("The loss is another one from here on, so earlier losses can't be compared.")
_OTHER_REWARDS = Message("Answers are rewarded differently from here on, so earlier rewards can't be compared.")
_OTHER_ANSWERS = Message("From here on, the model writes more, fewer, longer or shorter answers.")
_OTHER_UPDATES = Message("The remaining updates are computed with the new value.")
_OTHER_LENGTH = Message("The run ends at another step, and the learning rate follows the new length.")
_OTHER_CURVE = Message("The learning rate follows another curve from here on.")
_OTHER_TIMES = Message("Only the steps at which this happens change.")
_OTHER_SAMPLES = Message("Only the samples change.")
_OTHER_SAVES = Message("Only the saving of checkpoints changes.")

EFFECTS = {
    "data.sources": OTHER_ROWS,
    "data.system_prompt": OTHER_TOKENS,
    "data.train_on": Message("From here on, other tokens count for the loss, so earlier losses can't be compared."),
    "data.context_length": Message("From here on, long rows are cut at another length or skipped."),
    "data.overlong": Message("From here on, long rows are cut or skipped differently."),
    "data.skip_bad_rows": OTHER_ROWS,
    "data.special_tokens": OTHER_TOKENS,
    "objective.dpo_loss": _OTHER_LOSS,
    "objective.beta": _OTHER_LOSS,
    "objective.kto_loss": _OTHER_LOSS,
    "objective.reference": ROUNDING,
    "objective.good_weight": _OTHER_LOSS,
    "objective.bad_weight": _OTHER_LOSS,
    "objective.label_smoothing": _OTHER_LOSS,
    "objective.margin": _OTHER_LOSS,
    "objective.sft_weight": _OTHER_LOSS,
    "objective.written_share": _OTHER_LOSS,
    "objective.regression": _OTHER_LOSS,
    "objective.classes": _OTHER_LOSS,
    "adapter.initial_values": Message("The adapter has started already, so this changes nothing."),
    "objective.policy_loss": _OTHER_LOSS,
    "objective.ratio_of": _OTHER_UPDATES,
    "objective.reward_scale": _OTHER_UPDATES,
    "objective.clip": _OTHER_UPDATES,
    "objective.clip_high": _OTHER_UPDATES,
    "objective.clip_most": _OTHER_UPDATES,
    "teacher.path": Message("The rest of the run learns from another bigger model."),
    "teacher.weights": ROUNDING,
    "teacher.beta": _OTHER_LOSS,
    "teacher.own_answers": _OTHER_ANSWERS,
    "teacher.max_tokens": _OTHER_ANSWERS,
    "rollouts.group_size": _OTHER_ANSWERS,
    "rollouts.max_tokens": _OTHER_ANSWERS,
    "rollouts.temperature": _OTHER_UPDATES,
    "rollouts.updates": _OTHER_UPDATES,
    "rollouts.skip_cut": _OTHER_UPDATES,
    "rollouts.rewards": _OTHER_REWARDS,
    "adapter.dropout": Message("From here on, another share of adapter inputs is ignored at random."),
    "optimizer.learning_rate": _OTHER_UPDATES,
    "optimizer.lora_plus_ratio": _OTHER_UPDATES,
    "optimizer.neftune_alpha": Message("From here on, training rows get another amount of noise."),
    "optimizer.embedding_rate": _OTHER_UPDATES,
    "optimizer.weight_decay": _OTHER_UPDATES,
    "optimizer.beta1": _OTHER_UPDATES,
    "optimizer.beta2": _OTHER_UPDATES,
    "optimizer.epsilon": _OTHER_UPDATES,
    "optimizer.max_grad_norm": _OTHER_UPDATES,
    "schedule.epochs": _OTHER_LENGTH,
    "schedule.max_steps": _OTHER_LENGTH,
    "schedule.micro_batch_size": _OTHER_ORDER,
    "schedule.gradient_accumulation_steps": _OTHER_ORDER,
    "schedule.scheduler": _OTHER_CURVE,
    "schedule.warmup_steps": _OTHER_CURVE,
    "schedule.seed": _OTHER_SPLIT,
    "schedule.shuffle": _OTHER_ORDER,
    "evaluation.path": _OTHER_HELD_OUT,
    "evaluation.percent": _OTHER_HELD_OUT,
    "evaluation.group_column": _OTHER_HELD_OUT,
    "evaluation.every_steps": _OTHER_TIMES,
    "evaluation.early_stopping": Message("The run can end earlier or later."),
    "evaluation.sample_prompts": _OTHER_SAMPLES,
    "evaluation.sample_every_steps": _OTHER_SAMPLES,
    "evaluation.sample_max_tokens": _OTHER_SAMPLES,
    "saving.every_minutes": _OTHER_SAVES,
    "saving.every_steps": _OTHER_SAVES,
    "saving.keep": _OTHER_SAVES,
    "hardware.devices": ROUNDING,
    "hardware.system": ROUNDING,
    "hardware.kernels": ROUNDING,
    "hardware.fp8_weights": Message("The frozen weights are multiplied in another precision from here on."),
    "hardware.activation_checkpointing": ROUNDING,
    "hardware.cpu_threads": ROUNDING,
}
"""Settings that may change, and what that does to the rest of the run."""


def with_changes(spec: RunSpec, changes: Mapping[str, Any]) -> RunSpec:  # Any: values of settings
    """Return a copy of a spec with settings changed, by paths such as "adapter.rank"."""
    changed = copy.deepcopy(spec)
    for path, value in changes.items():
        section, _, name = path.partition(".")
        set_field(getattr(changed, section), name, value)
    return changed


def check_resumable(before: RunSpec | None, now: RunSpec) -> list[Message]:
    """Return a sentence for every setting that was changed: old and new value, and what that does to the run.

    Args:
        before: what the checkpoint was saved with, None where an earlier version did not note it.
        now: the spec of the run.

    Raises:
        UserError: `resume-refused` when the checkpoint can't be continued with one of the changes.
    """
    if before is None:
        return [NOTHING_NOTED]
    changes = {
        f"{section}.{name}": (old, new)
        for section in SECTIONS
        for name, old, new in _pairs(before, now, section)
        if old != new and not (f"{section}.{name}" in FOLDERS and _same_folder(old, new))
    }
    refused = [f"{path}: {_shown(old)} -> {_shown(new)}" for path, (old, new) in changes.items() if path in FIXED]
    if refused:
        raise refusal("; ".join(refused))
    return [change(path, _shown(old), _shown(new), EFFECTS[path]) for path, (old, new) in changes.items()]


def refusal(names: str) -> TunesmithError:
    """Return the error for changed settings that rule out going on."""
    return TunesmithError(
        "resume-refused", "The checkpoint depends on settings that were changed. {names}.", names=names
    )


def change(name: str, old: object, new: object, effect: Message) -> Message:
    """Return the sentence of one thing that is not as it was."""
    return Message("{name}: {old} -> {new}. {effect}", name=name, old=old, new=new, effect=effect)


def _pairs(before: RunSpec, now: RunSpec, section: str) -> list[tuple[str, object, object]]:
    old, new = before.to_dict()[section], now.to_dict()[section]
    return [(name, value, new[name]) for name, value in old.items()]


def _same_folder(old: object, new: object) -> bool:
    """Say whether two paths may name the same model: a folder that was moved, or is called otherwise inside WSL."""
    return PureWindowsPath(str(old)).name == PureWindowsPath(str(new)).name


def _shown(value: object) -> str:
    """Return a value in one line; a text of several words in quotes, so that its end can be told."""
    is_word = isinstance(value, str) and len(value.split()) == 1
    shown = str(value) if is_word else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[: MAX_SHOWN_CHARS - 1]}…"
