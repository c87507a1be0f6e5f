"""What is wrong between settings of a run that are right alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tunesmith_core.declared import FieldProblem
from tunesmith_core.messages import Message
from tunesmith_core.spec_sections import ALL_LINEAR, CHOICE_WORDS, MOST_SOURCES, SMOOTHED, SourceSpec
from tunesmith_core.spec_training import MOST_PROMPTS
from tunesmith_core.trained_parts import ALL, FULL, OBJECTIVES, OPTIMIZERS_OF_FULL

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec


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
    problems += _full_problems(spec) if spec.adapter.kind == FULL else _lora_problems(spec)
    if spec.objective.kind == "dpo" and spec.objective.label_smoothing and spec.objective.dpo_loss not in SMOOTHED:
        loss = Message(CHOICE_WORDS[spec.objective.dpo_loss])
        words = Message("has no effect with the loss {loss}. Set it to 0", loss=loss)
        problems.append(FieldProblem("objective.label_smoothing", words))
    if spec.objective.kind == "dpo" and spec.objective.dpo_loss == "exo_pair" and not spec.objective.label_smoothing:
        problems.append(FieldProblem("objective.label_smoothing", "must be above 0 for the loss EXO"))
    if spec.evaluation.early_stopping and not (spec.evaluation.path or spec.evaluation.percent):
        problems.append(FieldProblem("evaluation.early_stopping", "needs evaluation data"))
    return problems


def _full_problems(spec: RunSpec) -> list[FieldProblem]:
    problems = []
    if spec.objective.kind not in OBJECTIVES:
        words = Message(
            "{objective} compares with the base model, which full fine-tuning changes. Use LoRA",
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


def _lora_problems(spec: RunSpec) -> list[FieldProblem]:
    if spec.optimizer.name not in OPTIMIZERS_OF_FULL:
        return []
    words = Message(
        "{optimizer} is for full fine-tuning. Choose AdamW for LoRA",
        optimizer=Message(CHOICE_WORDS[spec.optimizer.name]),
    )
    return [FieldProblem("optimizer.name", words)]


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
    weighted = [number for number, source in enumerate(sources) if source.weight]
    if len(weighted) == 1:
        words = Message(
            "has no effect: {path} is the only file with a weight. Give another file one too, or set it to 0",
            path=sources[weighted[0]].path,
        )
        problems.append(FieldProblem(f"data.sources[{weighted[0]}].weight", words))
    return problems
