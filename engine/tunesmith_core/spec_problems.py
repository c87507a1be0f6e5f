"""What is wrong between settings of a run that are right alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.adapter_problems import adapter_problems
from tunesmith_core.datafmt.formats import LABELED, PROMPT_ONLY, STEPS
from tunesmith_core.declared import FieldProblem
from tunesmith_core.language_names import LANGUAGES
from tunesmith_core.messages import Message
from tunesmith_core.objectives import (
    DISTILLATION,
    FROM_LABELS,
    FROM_STEPS,
    HEADS,
    LABELS,
    PREFERENCES,
    REINFORCEMENT,
    WITHOUT_EFFECT,
)
from tunesmith_core.spec_objective import SMOOTHED
from tunesmith_core.spec_rollouts import (
    LANGUAGE,
    LENGTH,
    MODEL,
    MOST_REWARDS,
    NEED_ANSWERS,
    PATTERN,
    PYTHON,
    SCHEMA,
    RewardSpec,
)
from tunesmith_core.spec_sections import ALL_LINEAR, CHOICE_WORDS, MOST_SOURCES, SourceSpec
from tunesmith_core.spec_training import MOST_PROMPTS
from tunesmith_core.spec_words import word_problems
from tunesmith_core.trained_parts import ALL, FULL, LORA, OBJECTIVES

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec


MOST_REPLAY = 90
"""Percent of an epoch."""


def cross_problems(spec: RunSpec) -> list[FieldProblem]:
    """Return what is wrong between fields that are right alone."""
    problems = []
    if not spec.model.path.strip():
        problems.append(FieldProblem("model.path", "is missing. Choose a base model"))
    problems += [
        FieldProblem(f"data.sources[{number}].path", "is missing. Choose a data file")
        for number, source in enumerate(spec.data.sources)
        if not source.path.strip()
    ]
    problems += _mixing_problems(spec.data.sources)
    if len(spec.data.sources) > MOST_SOURCES:
        problems.append(
            FieldProblem("data.sources", Message("must be at most {most} files. Join some of them", most=MOST_SOURCES))
        )
    if len(spec.evaluation.sample_prompts) > MOST_PROMPTS:
        problems.append(
            FieldProblem("evaluation.sample_prompts", Message("must be at most {most} prompts", most=MOST_PROMPTS))
        )
    if not spec.hardware.devices:
        problems.append(FieldProblem("hardware.devices", "must name a device"))
    if len(spec.hardware.devices) > 1:
        problems.append(FieldProblem("hardware.devices", "must name one device. Several are not supported yet"))
    targets = spec.adapter.target_modules
    if not targets or (isinstance(targets, list) and not all(name.strip() for name in targets)):
        problems.append(FieldProblem("adapter.target_modules", "must name at least one module"))
    if isinstance(targets, str) and targets != ALL_LINEAR:
        problems.append(
            FieldProblem(
                "adapter.target_modules",
                Message('must be "{all_linear}" or a list of module names', all_linear=ALL_LINEAR),
            )
        )
    problems += _full_problems(spec) if spec.adapter.kind == FULL else list(adapter_problems(spec))
    if spec.adapter.start_from and (spec.adapter.kind != LORA or spec.objective.kind in HEADS):
        words = Message("can't be continued by this kind of run. Leave it empty")
        problems.append(FieldProblem("adapter.start_from", words))
    if spec.objective.kind == "dpo" and spec.objective.label_smoothing and spec.objective.dpo_loss not in SMOOTHED:
        loss = Message(CHOICE_WORDS[spec.objective.dpo_loss])
        words = Message("has no effect with the loss {loss}. Set it to 0", loss=loss)
        problems.append(FieldProblem("objective.label_smoothing", words))
    if spec.objective.kind == "dpo" and spec.objective.dpo_loss == "exo_pair" and not spec.objective.label_smoothing:
        problems.append(FieldProblem("objective.label_smoothing", "must be above 0 for the loss EXO"))
    if spec.objective.kind in PREFERENCES | LABELS and spec.objective.beta == 0:
        problems.append(FieldProblem("objective.beta", "must be above 0, or empty for the usual value"))
    if spec.quantization.kind == "int8" and spec.hardware.fp8_weights:
        words = Message("has no effect with 8-bit frozen weights. Switch it off")
        problems.append(FieldProblem("hardware.fp8_weights", words))
    problems += _label_problems(spec) + _class_problems(spec) + _step_problems(spec)
    if spec.objective.kind not in HEADS:
        problems += word_problems(spec)
    if spec.objective.kind in REINFORCEMENT:
        problems += _reward_problems(spec)
    if spec.objective.kind in DISTILLATION:
        problems += _teacher_problems(spec)
    if spec.evaluation.early_stopping and not (spec.evaluation.path or spec.evaluation.percent):
        problems.append(FieldProblem("evaluation.early_stopping", "needs evaluation data"))
    return problems


def _teacher_problems(spec: RunSpec) -> list[FieldProblem]:
    """Return what is wrong where a bigger model is learned from."""
    teacher = spec.teacher.path.strip()
    if not teacher:
        return [FieldProblem("teacher.path", Message("is missing. Choose a bigger model"))]
    if teacher == spec.model.path.strip():
        return [FieldProblem("teacher.path", Message("must be another model than the base model"))]
    return []


def _label_problems(spec: RunSpec) -> list[FieldProblem]:
    """Return what is wrong where an objective learns from answers that are good or bad."""
    if spec.objective.kind not in LABELS:
        return []
    problems = []
    if spec.data.train_on == "all":
        words = Message("must be {wanted} for KTO, which rates answers", wanted=Message(CHOICE_WORDS["assistant"]))
        problems.append(FieldProblem("data.train_on", words))
    schedule = spec.schedule
    compares = spec.objective.kto_loss == "kto"
    if compares and schedule.micro_batch_size * schedule.gradient_accumulation_steps < 2:
        words = Message("KTO compares the answers of a step with each other. Use at least 2 examples per step")
        problems.append(FieldProblem("schedule.micro_batch_size", words))
    if not spec.objective.good_weight and not spec.objective.bad_weight:
        problems.append(FieldProblem("objective.good_weight", "must be above 0 where bad answers count for nothing"))
    return problems


def _class_problems(spec: RunSpec) -> list[FieldProblem]:
    """Return what is wrong between the objective and how rows are read, and with the names of classes."""
    words = Message("holds prompts without answers. Only runs that learn from rewards write the answers themselves")
    problems = [
        FieldProblem(f"data.sources[{number}].format", words)
        for number, source in enumerate(spec.data.sources)
        if source.format == PROMPT_ONLY and spec.objective.kind not in REINFORCEMENT
    ]
    learns_labels = spec.objective.kind in FROM_LABELS
    words = Message("must be Text with label for this objective")
    if not learns_labels:
        words = Message("holds labels, which only the objective Classes or numbers learns from")
    problems += [
        FieldProblem(f"data.sources[{number}].format", words)
        for number, source in enumerate(spec.data.sources)
        if (source.format == LABELED) is not learns_labels and source.format != PROMPT_ONLY
    ]
    classes = spec.objective.classes
    if learns_labels and classes and (len(classes) < 2 or len(set(classes)) < len(classes)):
        problems.append(FieldProblem("objective.classes", "must be at least two different names, or none"))
    if learns_labels and classes and spec.objective.regression:
        problems.append(FieldProblem("objective.classes", "must be empty where labels are numbers"))
    return problems


def _step_problems(spec: RunSpec) -> list[FieldProblem]:
    """Return what is wrong between the objective and how rows are read where steps have labels."""
    learns_steps = spec.objective.kind in FROM_STEPS
    words = Message("holds labels of steps, which only a process reward model learns from")
    if learns_steps:
        words = Message("must be Solution steps with labels for this objective")
    return [
        FieldProblem(f"data.sources[{number}].format", words)
        for number, source in enumerate(spec.data.sources)
        if (source.format == STEPS) is not learns_steps
    ]


def _full_problems(spec: RunSpec) -> list[FieldProblem]:
    problems = []
    if spec.objective.kind not in OBJECTIVES:
        words = Message(
            "must be LoRA for the objective {objective}",
            objective=Message(CHOICE_WORDS.get(spec.objective.kind, spec.objective.kind)),
        )
        problems.append(FieldProblem("adapter.kind", words))
    if spec.quantization.kind != "none":
        words = Message("weights in 4 bits can't be trained themselves. Set it to none, or use LoRA")
        problems.append(FieldProblem("quantization.kind", words))
    parts = spec.adapter.parts
    if not parts or (isinstance(parts, list) and not all(name.strip() for name in parts)):
        problems.append(FieldProblem("adapter.parts", "must name at least one part"))
    elif isinstance(parts, str) and parts != ALL:
        problems.append(FieldProblem("adapter.parts", Message('must be "{all}" or a list of parts', all=ALL)))
    if spec.adapter.weights == "bfloat16" and spec.model.dtype not in ("auto", "bfloat16"):
        words = Message("needs the number format bfloat16 for the calculations, not {format}", format=spec.model.dtype)
        problems.append(FieldProblem("adapter.weights", words))
    return problems


def _mixing_problems(sources: list[SourceSpec]) -> list[FieldProblem]:
    """Return what is wrong with weights and caps, with the names of the files."""
    problems = [
        FieldProblem(
            f"data.sources[{number}].most_rows",
            Message("must be at least 1, or empty for all rows of {path}", path=source.path),
        )
        for number, source in enumerate(sources)
        if source.most_rows is not None and source.most_rows < 1
    ]
    problems += _replay_problems(sources)
    weighted = [number for number, source in enumerate(sources) if source.weight]
    if len(weighted) == 1:
        words = Message(
            "has no effect: {path} is the only file with a weight. Give another file one too, or set it to 0",
            path=sources[weighted[0]].path,
        )
        problems.append(FieldProblem(f"data.sources[{weighted[0]}].weight", words))
    return problems


def _replay_problems(sources: list[SourceSpec]) -> list[FieldProblem]:
    """Return what is wrong with files that are mixed in as a share of an epoch."""
    shared = [number for number, source in enumerate(sources) if source.replay]
    if not shared:
        return []
    path = f"data.sources[{shared[-1]}].replay"
    if len(shared) == len(sources):
        return [FieldProblem(path, Message("needs a file without a share, which sets the length of an epoch"))]
    if sum(sources[number].replay for number in shared) > MOST_REPLAY:
        return [FieldProblem(path, Message("must be at most {most} % for all files together", most=MOST_REPLAY))]
    both = next((number for number in shared if sources[number].weight), None)
    if both is not None:
        words = Message("must be 0 beside a weight. {path} can have one of both", path=sources[both].path)
        return [FieldProblem(f"data.sources[{both}].replay", words)]
    return []


def _reward_problems(spec: RunSpec) -> list[FieldProblem]:
    """Return what is missing in rewards, and settings that don't go together."""
    problems = []
    if len(spec.rollouts.rewards) > MOST_REWARDS:
        words = Message("must be at most {most} rewards", most=MOST_REWARDS)
        problems.append(FieldProblem("rollouts.rewards", words))
    without_answers = all(source.format == PROMPT_ONLY for source in spec.data.sources)
    for number, reward in enumerate(spec.rollouts.rewards):
        if without_answers and reward.kind in NEED_ANSWERS:
            words = Message("compares with answers, and the data has none. Choose another reward")
            problems.append(FieldProblem(f"rollouts.rewards[{number}].kind", words))
        if problem := _reward_problem(reward):
            name, words = problem
            problems.append(FieldProblem(f"rollouts.rewards[{number}].{name}", words))
    if spec.objective.kind == "rloo" and spec.objective.reward_scale == "group":
        words = Message("must not be by group for RLOO, whose baseline leaves one answer out. Choose another")
        problems.append(FieldProblem("objective.reward_scale", words))
    if spec.objective.kind == "grpo" and spec.objective.policy_loss == "luspo" and spec.objective.ratio_of == "token":
        problems.append(FieldProblem("objective.ratio_of", Message('must be "answer" for the loss LUSPO')))
    clip = spec.objective
    least = 1 + (clip.clip_high or clip.clip)
    if clip.kind == "grpo" and clip.policy_loss not in WITHOUT_EFFECT and 0 < clip.clip_most <= least:
        words = Message("must be above 1 plus Clipping upward, or 0 for no bound")
        problems.append(FieldProblem("objective.clip_most", words))
    return problems


def _reward_problem(reward: RewardSpec) -> tuple[str, Message] | None:
    """Return the name of a setting that a reward needs and what is wrong with it, None where nothing is."""
    if not reward.weight:
        return "weight", Message("must not be 0. Remove the reward instead")
    if reward.kind == PATTERN and not reward.pattern:
        return "pattern", Message("must be a regular expression. Enter one")
    if reward.kind == PYTHON and not reward.path:
        return "path", Message("must be a file. Choose one")
    if reward.kind == SCHEMA and not reward.schema:
        return "schema", Message("must be a file with a JSON schema. Choose one")
    if reward.kind == MODEL and not reward.model:
        return "model", Message("must be the folder of a reward model. Choose one")
    if reward.kind == LANGUAGE and not reward.language:
        return "language", Message("must be a language. Choose one")
    if reward.kind == LANGUAGE and reward.language not in LANGUAGES:
        return "language", Message("must be one of {choices}", choices=", ".join(LANGUAGES))
    if reward.kind == LENGTH and reward.shortest > reward.longest:
        return "shortest", Message("must not be above the longest answer")
    return None
