"""The examples: one for each way to teach, in each language.

Short chats about the Okvarel, an invented herb garden whose facts no model can know: 20 facts in ten wordings each,
eight for training, two held out. `facts.json` names the words that an answer must contain, so that "did it learn?" is a
count.

Preference pairs: 40 everyday questions, each with a short and polite answer that is better than a long-winded one. A
model can learn to write like the better ones, or to score answers.

Labeled answers: the answers of these pairs one by one, the short ones labeled good and the long-winded ones bad.

Questions: these prompts with their better answers, for learning from a bigger model.

Solutions: 48 small calculations in three steps each, some of them wrong from a step on.

Messages of customers, 14 each about payment, delivery and the product, to be sorted.

Sums: 120 prompts with one right number each, for learning from rewards.

Documents: 12 short texts about Quellmar, an invented town, and five others that tell of some of it in other words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunesmith_assets import assets_folder

LANGUAGES = ("en", "zh")
NUM_SAMPLE_PROMPTS = 3


@dataclass(frozen=True, slots=True)
class Fact:
    """One invented fact.

    Attributes:
        id: short name, the same in every language.
        key_phrase: an answer that contains these words is right; case does not matter.
        question: a wording that is not in the training file.
    """

    id: str
    key_phrase: str
    question: str

    def is_answered_by(self, answer: str) -> bool:
        """Say whether a model's answer contains the key phrase."""
        return self.key_phrase.casefold() in answer.casefold()


def sample_folder(language: str) -> Path:
    """Return the folder with the files of a language: `train.jsonl`, `pairs.jsonl` and others, see above.

    Raises:
        KeyError: there is no example in this language.
    """
    if language not in LANGUAGES:
        raise KeyError(language)
    return assets_folder() / "samples" / language


def facts(language: str) -> list[Fact]:
    """Return the 20 facts of a language.

    Raises:
        KeyError: there is no example in this language.
    """
    entries = json.loads((sample_folder(language) / "facts.json").read_text(encoding="utf-8"))
    return [Fact(**entry) for entry in entries]


def example_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example as JSON values, for `tunesmith_core.spec.RunSpec.from_dict`.

    60 steps of 4 chats teach a 135 M model nearly all facts.

    Raises:
        KeyError: there is no example in this language.
    """
    folder = sample_folder(language)
    return {
        "version": 2,
        "name": f"Okvarel example ({language})",
        "model": {"path": model_path},
        "data": {"sources": [{"path": str(folder / "train.jsonl"), "format": "messages"}], "context_length": 256},
        "adapter": {"rank": 8, "alpha": 32.0},
        "optimizer": {"learning_rate": 1e-3},
        "schedule": {
            "max_steps": 60,
            "micro_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "warmup_steps": 0,
        },
        "evaluation": {
            "path": str(folder / "heldout.jsonl"),
            "every_steps": 20,
            "sample_prompts": [fact.question for fact in facts(language)[:NUM_SAMPLE_PROMPTS]],
            "sample_max_tokens": 64,
        },
    }


def full_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example for the whole model as JSON values: its rate is a tenth of an adapter's.

    Raises:
        KeyError: there is no example in this language.
    """
    spec = example_spec(language, model_path)
    return spec | {"adapter": {"kind": "full"}, "optimizer": {"learning_rate": 1e-4}}


def preference_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of preference pairs as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    pairs = sample_folder(language) / "pairs.jsonl"
    prompts = [json.loads(row)["prompt"] for row in pairs.read_text(encoding="utf-8").splitlines()]
    return {
        "version": 2,
        "name": f"Short answers example ({language})",
        "model": {"path": model_path},
        "data": {"sources": [{"path": str(pairs), "format": "preference"}], "context_length": 256},
        "objective": {"kind": "dpo"},
        "adapter": {"rank": 8, "alpha": 32.0},
        "optimizer": {"learning_rate": 5e-5},
        "schedule": {
            "max_steps": 40,
            "micro_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "warmup_steps": 0,
        },
        "evaluation": {
            "percent": 20.0,
            "every_steps": 10,
            "sample_prompts": prompts[:NUM_SAMPLE_PROMPTS],
            "sample_max_tokens": 64,
        },
    }


def label_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of labeled answers as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    values = preference_spec(language, model_path)
    labels = sample_folder(language) / "labels.jsonl"
    return {
        **values,
        "name": f"Good and bad answers example ({language})",
        "data": {"sources": [{"path": str(labels), "format": "prompt-completion"}], "context_length": 256},
        "objective": {"kind": "kto"},
        "schedule": values["schedule"] | {"micro_batch_size": 8},
        "evaluation": values["evaluation"] | {"percent": 25.0},
    }


def score_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of a reward model as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    spec = preference_spec(language, model_path)
    evaluation = {name: value for name, value in spec["evaluation"].items() if not name.startswith("sample_")}
    return spec | {
        "name": f"Scores example ({language})",
        "objective": {"kind": "reward"},
        "optimizer": {"learning_rate": 1e-4},
        "evaluation": evaluation,
    }


def class_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of texts with labels as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    spec = score_spec(language, model_path)
    classes = sample_folder(language) / "classes.jsonl"
    return spec | {
        "name": f"Classes example ({language})",
        "data": {"sources": [{"path": str(classes), "format": "labeled"}], "context_length": 256},
        "objective": {"kind": "classify"},
        "optimizer": {"learning_rate": 2e-4},
        "schedule": spec["schedule"] | {"max_steps": 60},
    }


def step_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of solutions whose steps are right or wrong as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    spec = score_spec(language, model_path)
    steps = sample_folder(language) / "steps.jsonl"
    return spec | {
        "name": f"Steps example ({language})",
        "data": {"sources": [{"path": str(steps), "format": "steps"}], "context_length": 256},
        "objective": {"kind": "prm"},
        "evaluation": spec["evaluation"] | {"percent": 25.0},
        "schedule": spec["schedule"] | {"max_steps": 60},
    }


def reward_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of rewards as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    return {
        "version": 2,
        "name": f"Sums example ({language})",
        "model": {"path": model_path},
        "data": {
            "sources": [{"path": str(sample_folder(language) / "sums.jsonl"), "format": "prompt-completion"}],
            "context_length": 256,
        },
        "objective": {"kind": "grpo"},
        "rollouts": {"group_size": 8, "max_tokens": 24},
        "adapter": {"rank": 8, "alpha": 32.0},
        "optimizer": {"learning_rate": 1e-4},
        "schedule": {
            "max_steps": 40,
            "micro_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "warmup_steps": 0,
        },
        "evaluation": {"percent": 20.0, "every_steps": 10},
    }


def teacher_spec(language: str, model_path: str, teacher_path: str = "TEACHER") -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of learning from a bigger model as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    spec = preference_spec(language, model_path)
    questions = sample_folder(language) / "questions.jsonl"
    return {
        **spec,
        "name": f"Bigger model example ({language})",
        "data": {"sources": [{"path": str(questions), "format": "prompt-completion"}], "context_length": 256},
        "objective": {"kind": "gkd"},
        "teacher": {"path": teacher_path, "own_answers": 0.5, "max_tokens": 48},
        "optimizer": {"learning_rate": 2e-4},
    }


def document_spec(language: str, model_path: str) -> dict[str, Any]:  # Any: JSON values
    """Return the run spec of the example of documents as JSON values.

    Raises:
        KeyError: there is no example in this language.
    """
    folder = sample_folder(language)
    return {
        "version": 2,
        "name": f"Town of Quellmar example ({language})",
        "model": {"path": model_path},
        "data": {
            "sources": [{"path": str(folder / "documents.jsonl"), "format": "text"}],
            "context_length": 256,
            "train_on": "all",
            "overlong": "split",
        },
        "adapter": {"rank": 8, "alpha": 32.0},
        "optimizer": {"learning_rate": 1e-3},
        "schedule": {
            "max_steps": 40,
            "micro_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "warmup_steps": 0,
        },
        "evaluation": {"path": str(folder / "more-documents.jsonl"), "every_steps": 10},
    }
