"""The card of an adapter: what it was made from, with which settings, and how well it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tunesmith_core import rewards, unquantized
from tunesmith_core.adapter_folders import lineage, reference_name
from tunesmith_core.adapter_kinds import KINDS, papers
from tunesmith_core.declared import Declaration
from tunesmith_core.errors import TunesmithError
from tunesmith_core.evaluations import loss_help, shown
from tunesmith_core.exports import UNKNOWN_LICENCE
from tunesmith_core.objectives import DISTILLATION, FROM_LABELS, FROM_STEPS, HEADS, ORIGINS, REINFORCEMENT
from tunesmith_core.preferences import Preferences
from tunesmith_core.spec import RunSpec, in_force, strength_of, told_settings
from tunesmith_core.trained_parts import FULL
from tunesmith_engine.model.load import HALVING, load_config
from tunesmith_engine.model.vocabulary import growth_of

SCORE = """chat = [{"role": "user", "content": "How are you?"}, {"role": "assistant", "content": "Fine, thanks."}]
text = tokenizer.apply_chat_template(chat, tokenize=False) if tokenizer.chat_template else "How are you? Fine, thanks."
tokens = tokenizer(text, return_tensors="pt", add_special_tokens=not tokenizer.chat_template)
with torch.no_grad():
    print(model(**tokens).logits)  # of two answers to a question, the better one has the higher score"""
"""How a card shows that a model scores an answer."""

RATE_STEPS = """tokens, ends = tokenizer("What is 2 + 2 * 3?")["input_ids"], []
for step in ["First, 2 * 3 = 6.", "Then 2 + 6 = 8."]:
    for part in (step, "\\n"):
        tokens += tokenizer(part, add_special_tokens=False)["input_ids"]
    ends.append(len(tokens) - 1)
with torch.no_grad():
    print(model(torch.tensor([tokens])).logits[0, ends].softmax(-1)[:, 1])  # how likely each step is right"""
"""How a card shows that a model rates the steps of a solution."""


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
    result = "this model" if spec.adapter.kind == FULL else "the adapter"
    licence = base_model_license(model_folder)
    return f"""---
{_front(spec, licence)}
---

# {spec.name or ("Fine-tuned model" if spec.adapter.kind == FULL else "Adapter")}

{_made(spec)}, trained with Tunesmith for {step} steps.

- Base model: {base_model_name(spec)}{f" at {spec.model.revision}" if spec.model.revision else ""}
{lineage_lines(spec)}{_packed_line(spec, model_folder)}- License of the base model: {licence}; it holds for {result} too
- Data: {names} ({num_train_rows} rows, SHA-256 {data_hash}), {num_eval_rows} rows held out
{length_line(spec)}
{method_line(spec)}{papers_line(spec)}{classes_line(spec)}
{losses_line(spec, eval_loss_before, eval_loss_after)}{pairs_line(preferences)}
{system_prompt_part(system_prompt)}## Use

```python
{_use(spec, model_folder)}
```

## Settings

{settings_table(spec)}
"""


def _packed_line(spec: RunSpec, folder: Path) -> str:
    note = unquantized.note(folder, spec)
    return f"- {note}\n" if note else ""


_USE_FULL = """from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER", dtype="auto")"""


def _use(spec: RunSpec, model_folder: Path) -> str:
    """Return how a card shows what can be done with what was made."""
    if spec.objective.kind in HEADS:
        return _use_head(spec)
    return _USE_FULL if spec.adapter.kind == FULL else _use_adapter(spec, model_folder)


def _use_adapter(spec: RunSpec, model_folder: Path) -> str:
    growth = growth_of(model_folder, spec)
    room = f"\nbase.resize_token_embeddings({growth.num_rows})  # room for the new words" if growth else ""
    whole = f", {HALVING}=0" if _halves(model_folder) else ""
    return f"""from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
base = AutoModelForCausalLM.from_pretrained({base_model_name(spec)!r}{whole}){room}
model = PeftModel.from_pretrained(base, "THIS_FOLDER")"""


def _halves(model_folder: Path) -> bool:
    """Return whether transformers halves weights of the base model's layers, and not the adapter beside them."""
    try:
        return hasattr(load_config(model_folder), HALVING)
    except TunesmithError:
        # The folder may be gone by the end of a run, and the card is no reason to fail.
        return False


def _use_head(spec: RunSpec) -> str:
    kind = head_class(spec)
    return f"""import torch
from peft import PeftModel
from transformers import {kind}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
base = {kind}.from_pretrained(
    {base_model_name(spec)!r}, {_outputs(spec)}, pad_token_id=tokenizer.pad_token_id
)
model = PeftModel.from_pretrained(base, "THIS_FOLDER").eval()
{_rate(spec)}"""


def head_class(spec: RunSpec) -> str:
    """Return the name of the class of transformers that has the head of a run."""
    return f"AutoModelFor{'Token' if spec.objective.kind in FROM_STEPS else 'Sequence'}Classification"


def _outputs(spec: RunSpec) -> str:
    if spec.objective.kind in FROM_STEPS:
        return "num_labels=2"
    classes = spec.objective.classes
    return f"id2label={dict(enumerate(classes))!r}" if classes else "num_labels=1"


def _rate(spec: RunSpec) -> str:
    """Return how a card shows that a model rates a text."""
    if spec.objective.kind in FROM_STEPS:
        return RATE_STEPS
    if spec.objective.kind not in FROM_LABELS:
        return SCORE
    shown = "model(**tokens).logits" if spec.objective.regression else "model(**tokens).logits.softmax(-1)"
    return f"""tokens = tokenizer("Some text", return_tensors="pt")
with torch.no_grad():
    print({shown}{"" if spec.objective.regression else ", model.config.id2label"})"""


def pipeline_line(spec: RunSpec) -> str:
    """Return the line of a card's front matter about what the model is for, where it writes no texts."""
    if spec.objective.kind in FROM_STEPS:
        return "\npipeline_tag: token-classification"
    return "\npipeline_tag: text-classification" if spec.objective.kind in HEADS else ""


def length_line(spec: RunSpec) -> str:
    """Return the line of a card about how much of a row was read, and which tokens were learned."""
    learned = "" if spec.objective.kind in HEADS else f"; loss on: {spec.data.train_on}"
    return f"- Context length: {spec.data.context_length} tokens{learned}"


def lineage_lines(spec: RunSpec) -> str:
    """Return the lines of a card about adapters that the run began and compared with, "" where there are none."""
    continued, reference = lineage(spec), reference_name(spec)
    lines = f"- Continues the adapter: {continued}\n" if continued else ""
    return lines + (f"- Compared with the adapter: {reference}\n" if reference else "")


def _lora_kind(spec: RunSpec) -> str:
    if kind := KINDS.get(spec.adapter.kind):
        return kind.title
    return "QLoRA" if spec.quantization.kind == "nf4" else "LoRA"


def _front(spec: RunSpec, licence: str) -> str:
    """Return the front matter of a card, which model sites read."""
    if spec.adapter.kind != FULL:
        tags = f"tags: [{_lora_kind(spec).lower()}, tunesmith]"
        return f"base_model: {base_model_name(spec)}\nlibrary_name: peft\n{tags}"
    head = f"license: {licence}\n" if licence != UNKNOWN_LICENCE else ""
    relation = "base_model_relation: finetune\nlibrary_name: transformers\ntags: [full-fine-tuning, tunesmith]"
    return f"{head}base_model: {base_model_name(spec)}\n{relation}"


def _made(spec: RunSpec) -> str:
    if spec.adapter.kind != FULL:
        return f"A {_lora_kind(spec)} adapter"
    return "The base model with its own weights fine-tuned"


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
    settings = spec.objective
    names = {"dpo": settings.dpo_loss, "kto": settings.kto_loss, "grpo": settings.policy_loss}
    loss = f", loss: {names[settings.kind]}" if settings.kind in names else ""
    beta = f"; beta: {strength_of(spec)[0]:g}" if origin.beta or settings.kind in REINFORCEMENT else ""
    line = f"- Method: {origin}{beta}{loss}\n"
    if settings.kind in DISTILLATION:
        return f"{line}- Teacher: {teacher_name(spec)}\n"
    if settings.kind not in REINFORCEMENT:
        return line
    # The card may go to others, whom the folders of this computer don't concern.
    rewarded = [replace(each, path=Path(each.path).name) for each in spec.rollouts.rewards]
    return f"{line}- Rewards: {rewards.described(rewarded)}\n"


def teacher_name(spec: RunSpec) -> str:
    """Return the name of a run's teacher; the card may go to others, whom this computer's folders don't concern."""
    path = Path(spec.teacher.path)
    return path.name if path.is_absolute() else str(spec.teacher.path)


def papers_line(spec: RunSpec) -> str:
    """Return the line of a card about what a run does beside plain training of a LoRA adapter, "" for nothing."""
    named = papers(spec)
    return f"- Trained with: {'; '.join(named)}\n" if named else ""


def classes_line(spec: RunSpec) -> str:
    """Return the line of a card about classes, "" where there are none."""
    return f"- Classes: {', '.join(spec.objective.classes)}\n" if spec.objective.classes else ""


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
    meaning = loss_help(spec.objective)
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
