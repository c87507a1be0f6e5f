"""Types of the fields of events, by name: whoever folds, lists or draws a journal never meets another type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tunesmith_core.json_values import MOST, is_count, is_number, is_text

_TEXTS = """expected name path code kind title message hint link context text prompt level mode status unit dtype device
    device_name version torch python protocol command row_format system_prompt"""
_COUNTS = """step resumed_from_step last_checkpoint_step total_steps steps_per_epoch num_train_rows num_eval_rows
    num_skipped_rows num_truncated_rows num_open_rows num_leaked_rows num_distinct_rows
    num_trained_tokens num_parameters num_trainable_parameters num_tokens
    micro_batch_size gradient_accumulation_steps cut_at_tokens"""
_BYTES = """bytes planned_bytes tried_bytes vram_peak_bytes allocated_bytes reserved_bytes used_by_others_bytes
    total_bytes done_bytes process_bytes host_used_bytes host_total_bytes"""
_NUMBERS = """done total epoch loss lr grad_norm tokens tokens_per_s step_s seconds bytes_per_s remaining_s
    utilization_percent temperature_c power_w cpu_percent cpu_machine_percent eval_loss_before eval_loss_after
    reward_chosen reward_rejected reward_margin reward_accuracy logp_chosen logp_rejected
    reward reward_spread equal_groups answer_tokens cut_answers kl entropy clip_share
    reward_lowest reward_mean reward_highest
    agreement
    step_accuracy accuracy macro_f1 calibration_error rmse correlation"""


SOURCE_COUNTS = ("num_train_rows", "num_eval_rows", "num_epoch_rows")
"""What a run says of each of its data files."""


def _are_bytes(value: object) -> bool:
    """Larger whole numbers can't be written as a size."""
    return is_number(value, MOST)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(map(is_count, value))


def _are_answers(value: object) -> bool:
    """Return whether a JSON value lists questions and answers as texts, with or without a word on what is right."""
    return isinstance(value, list) and all(isinstance(each, dict) and _is_answer(**each) for each in value)


def _is_answer(right: object = False, **texts: object) -> bool:
    return isinstance(right, bool) and are_named_texts(texts)


def _are_sources(value: object) -> bool:
    """Return whether a JSON value lists files with their numbers of rows."""
    return isinstance(value, list) and all(
        isinstance(each, dict) and is_text(each.get("path")) and all(is_count(each.get(name)) for name in SOURCE_COUNTS)
        for each in value
    )


def _are_source_losses(value: object) -> bool:
    """Return whether a JSON value lists files, each with its loss, or null if that is not finite."""
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and is_text(each.get("path"))
        and is_count(each.get("num_tokens"))
        and (each.get("loss") is None or is_number(each["loss"]))
        for each in value
    )


def _is_interval(value: object) -> bool:
    """Return whether a JSON value is a mean with its bounds and the number of rows that they come from."""
    names = {"mean", "low", "high", "rows"}
    return isinstance(value, dict) and value.keys() == names and all(map(is_number, value.values()))


def _is_group(value: object) -> bool:
    """Return whether a JSON value lists answers to one prompt, each with its text and its reward."""
    return isinstance(value, list) and all(
        isinstance(each, dict) and is_text(each.get("text")) and is_number(each.get("reward")) for each in value
    )


def are_named_texts(value: object) -> bool:
    """Return whether a JSON value gives texts by name."""
    return isinstance(value, dict) and all(map(is_text, value.values()))


CHECKS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(_TEXTS.split(), is_text),
    **dict.fromkeys(_COUNTS.split(), is_count),
    **dict.fromkeys(_BYTES.split(), _are_bytes),
    **dict.fromkeys(_NUMBERS.split(), is_number),
    "kernels": _are_texts,
    "actions": _are_texts,
    "classes": _are_texts,
    "kept": _are_counts,
    "cuts": _are_counts,
    "artifacts": are_named_texts,
    "answers": _are_answers,
    "sources": _are_sources,
    "source_losses": _are_source_losses,
    "group": _is_group,
    "improvement": _is_interval,
    "dependence": _is_interval,
}


def sound(data: dict[str, Any]) -> dict[str, Any]:  # Any: JSON values
    """Return the fields of an event without those of a wrong type; null stands for what is unknown."""
    return {
        name: value
        for name, value in data.items()
        if value is None or (check := CHECKS.get(name)) is None or check(value)
    }
