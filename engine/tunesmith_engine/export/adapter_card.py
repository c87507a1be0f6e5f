"""The card of an adapter: what it was made from, with which settings, and how well it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tunesmith_core import rewards
from tunesmith_core.declared import Declaration
from tunesmith_core.evaluations import LOSS_HELP, PAIR_LOSS_HELP, shown
from tunesmith_core.exports import UNKNOWN_LICENCE
from tunesmith_core.objectives import ORIGINS, PREFERENCES, REINFORCEMENT
from tunesmith_core.preferences import Preferences
from tunesmith_core.spec import RunSpec, in_force, told_settings


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
    kind = "LoRA" if spec.quantization.kind == "none" else "QLoRA"
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
    loss = {"dpo": f", loss: {spec.objective.dpo_loss}", "grpo": f", loss: {spec.objective.policy_loss}"}
    line = f"- Method: {origin}; beta: {in_force(spec).objective.beta:g}{loss.get(spec.objective.kind, '')}\n"
    if spec.objective.kind not in REINFORCEMENT:
        return line
    # The card may go to others, whom the folders of this computer don't concern.
    rewarded = [replace(each, path=Path(each.path).name) for each in spec.rollouts.rewards]
    return f"{line}- Rewards: {rewards.described(rewarded)}\n"


def pairs_line(preferences: Preferences | None) -> str:
    """Return the line of a card about held-out pairs; None where none were measured."""
    if preferences is None:
        return ""
    found = filter(None, (preferences.told_apart, preferences.margin, preferences.displacement))
    return f"\n{' '.join(found)}\n"


def losses_line(spec: RunSpec, before: float | None, after: float | None) -> str:
    """Return the line of a card about the loss on held-out rows; None where it was not measured."""
    if spec.objective.kind in REINFORCEMENT:
        return rewards_line(before, after)
    if before is None or after is None:
        return "No held-out loss was measured.\n"
    meaning = PAIR_LOSS_HELP if spec.objective.kind in PREFERENCES else LOSS_HELP
    return f"Held-out loss: {shown('loss', before)} before, {shown('loss', after)} after. {meaning.template}\n"


def rewards_line(before: float | None, after: float | None) -> str:
    """Return the line of a card about the rewards of held-out prompts, of which their loss is the negative."""
    if before is None or after is None:
        return "No held-out reward was measured.\n"
    told = f"Held-out reward: {rewards.shown(-before)} before, {rewards.shown(-after)} after."
    return f"{told} {rewards.REWARD_HELP.template}\n"


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
