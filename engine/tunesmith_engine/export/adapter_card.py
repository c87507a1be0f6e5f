"""The card of an adapter: what it was made from, with which settings, and how well it did."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core.declared import Declaration
from tunesmith_core.evaluations import loss_help, shown
from tunesmith_core.exports import UNKNOWN_LICENCE
from tunesmith_core.objectives import ORIGINS
from tunesmith_core.preferences import Preferences
from tunesmith_core.spec import RunSpec, in_force, strength_of, told_settings


def base_model_license(folder: Path) -> str:
    """Return the licence that a model folder states, or UNKNOWN_LICENCE."""
    try:
        head = (folder / "README.md").read_text(encoding="utf-8", errors="replace")[:4000]
    except OSError:
        return UNKNOWN_LICENCE
    for line in head.splitlines():
        if line.startswith("license:"):
            return line.removeprefix("license:").strip() or UNKNOWN_LICENCE
    return UNKNOWN_LICENCE


def base_model_name(spec: RunSpec) -> str:
    """Return how a card calls the base model: by its id on the hub, or a folder by its name alone, since the card may
    go to others."""
    path = Path(spec.model.path)
    return path.name if path.is_absolute() else str(spec.model.path)


def adapter_card(
    spec: RunSpec,
    *,
    model_folder: Path,
    data_hash: str,
    num_train_rows: int,
    num_eval_rows: int,
    system_prompt: str,
    step: int,
    eval_loss_before: float | None,
    eval_loss_after: float | None,
    preferences: Preferences | None,
) -> str:
    """Return the card as Markdown with the front matter that model sites read."""
    names = ", ".join(Path(source.path).name for source in spec.data.sources)
    kind = "QLoRA" if spec.quantization.kind == "nf4" else "LoRA"
    return f"""---
base_model: {base_model_name(spec)}
library_name: peft
tags: [{kind.lower()}, tunesmith]
---

# {spec.name or "Adapter"}

A {kind} adapter, trained with Tunesmith for {step} steps.

- Base model: {base_model_name(spec)}{f" at {spec.model.revision}" if spec.model.revision else ""}
- License of the base model: {base_model_license(model_folder)}; it holds for the adapter too
- Data: {names} ({num_train_rows} rows, SHA-256 {data_hash}), {num_eval_rows} rows held out
- Context length: {spec.data.context_length} tokens; loss on: {spec.data.train_on}
{method_line(spec)}
{losses_line(spec, eval_loss_before, eval_loss_after)}{pairs_line(preferences)}
{system_prompt_part(system_prompt)}## Use

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
base = AutoModelForCausalLM.from_pretrained({base_model_name(spec)!r})
model = PeftModel.from_pretrained(base, "THIS_FOLDER")
```

## Settings

{settings_table(spec)}
"""


def system_prompt_part(text: str) -> str:
    """Return the part of a card about the system prompt of the training rows, "" where they have none in common."""
    if not text:
        return ""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"""## System prompt

The training rows begin with this system prompt. Without it the model is asked otherwise than it learned.

{fence}
{text}
{fence}

"""


def method_line(spec: RunSpec) -> str:
    """Return the line of a card about the method and its paper, "" for supervised training."""
    origin = ORIGINS.get(spec.objective.kind)
    if origin is None:
        return ""
    names = {"dpo": spec.objective.dpo_loss, "kto": spec.objective.kto_loss}
    loss = f", loss: {names[spec.objective.kind]}" if spec.objective.kind in names else ""
    return f"- Method: {origin}; beta: {strength_of(spec)[0]:g}{loss}\n"


def pairs_line(preferences: Preferences | None) -> str:
    """Return the line of a card about held-out pairs; None where none were measured."""
    if preferences is None:
        return ""
    found = filter(None, (preferences.told_apart, preferences.margin, preferences.displacement))
    return f"\n{' '.join(found)}\n"


def losses_line(spec: RunSpec, before: float | None, after: float | None) -> str:
    """Return the line of a card about the loss on held-out rows; None where it was not measured."""
    if before is None or after is None:
        return "No held-out loss was measured.\n"
    meaning = loss_help(spec.objective.kind)
    return f"Held-out loss: {shown('loss', before)} before, {shown('loss', after)} after. {meaning.template}\n"


def settings_table(spec: RunSpec) -> str:
    """Return the settings of a run that a card shows, as a table of Markdown."""
    rows = "\n".join(
        f"| {setting.declaration.label} | {_shown(setting.get(in_force(spec)), setting.declaration)} |"
        for setting in told_settings(spec)
    )
    return f"| setting | value |\n|---|---|\n{rows}"


def _shown(value: object, declaration: Declaration) -> str:
    if value is None:
        return declaration.unset
    if declaration.unit == "%":
        return f"{value:g}%"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
