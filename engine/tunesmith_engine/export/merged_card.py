"""The cards of a merged model and of a GGUF file: which base model and run it is of, and under which licence."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core import unquantized
from tunesmith_core.conversations import system_prompt_of
from tunesmith_core.export_proof import distance, reference, title
from tunesmith_core.exports import UNKNOWN_LICENCE, trained_on
from tunesmith_core.objectives import FROM_LABELS, FROM_STEPS, HEADS
from tunesmith_core.packed_weights import WORDS
from tunesmith_core.report.facts import read, verdict_on
from tunesmith_engine.export.adapter_card import (
    RATE_STEPS,
    SCORE,
    base_model_license,
    base_model_name,
    classes_line,
    head_class,
    length_line,
    lineage_lines,
    losses_line,
    method_line,
    papers_line,
    pipeline_line,
    settings_table,
    system_prompt_part,
)
from tunesmith_engine.export.trained import Trained
from tunesmith_engine.export.verifying import Proof

_USE_HEAD = """```python
import torch
from transformers import {kind}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
model = {kind}.from_pretrained("THIS_FOLDER", dtype="auto").eval()
{rate}
```"""

_USE_LABELS = """```python
from transformers import pipeline

print(pipeline("text-classification", model="THIS_FOLDER")("Some text"{more}))
```"""

_USE_MERGED = """```
vllm serve THIS_FOLDER
```

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER", dtype="auto")
```"""


def merged_card(trained: Trained, base: Path, type_: str, proof: Proof | None) -> str:
    """Return the card as Markdown with the front matter that model sites read.

    Args:
        trained: the weights that were merged.
        base: folder of the base model.
        type_: of the numbers, in words.
        proof: how far the files are from the trained weights, None where that was not measured.
    """
    objective = trained.spec.objective
    use = _USE_MERGED
    if objective.kind in HEADS:
        rate = RATE_STEPS if objective.kind in FROM_STEPS else SCORE
        use = _USE_HEAD.format(kind=head_class(trained.spec), rate=rate)
    if objective.kind in FROM_LABELS:
        use = _USE_LABELS.replace("{more}", ', function_to_apply="none"' if objective.regression else "")
    return _card(trained, base, "transformers", f"{use}\n\nThe weights are {type_}.\n\n{verdict(proof)}")


def gguf_card(trained: Trained, base: Path, use: str, proof: Proof | None) -> str:
    """Return the card of a GGUF file, see `merged_card`.

    Args:
        trained: the weights that were merged.
        base: folder of the base model.
        use: how it is used, in Markdown.
        proof: how far the file is from the trained weights, None where that was not measured.
    """
    return _card(trained, base, "gguf", f"{use}\n\n{verdict(proof)}")


def verdict(proof: Proof | None) -> str:
    """Return the sentences of a card about how far an export is from the trained weights."""
    if not proof:
        return "The export was not compared with the trained model."
    where = "llama.cpp" if proof["format"].startswith("gguf") else "the export"
    same = (
        f"rates {proof['agreement']:.1%} of {proof['num_prompts']} texts alike"
        if proof.get("rates")
        else f"chooses the same token at {proof['agreement']:.1%} of {proof['num_positions']} positions in answers to "
        f"{proof['num_prompts']} prompts"
    )
    told = (
        f"**{title(proof).template}.** Compared with the trained model: {where} {same}, with a mean divergence of "
        f"{distance(proof['mean_kl'])}, where 0 is equal."
    )
    if alone := reference(proof):
        told += f" {alone}"
    return told + (" Tokens, chat template and stop tokens are the same." if where == "llama.cpp" else "")


def _card(trained: Trained, base: Path, library: str, use: str) -> str:
    spec, status = trained.spec, trained.status
    licence = base_model_license(base)
    front = f"license: {licence}\n" if licence != UNKNOWN_LICENCE else ""
    # The last loss of the run is not that of an earlier checkpoint.
    is_last = trained.step == status.step
    verdict = verdict_on(read(trained.run)) if is_last else None
    told = " ".join(filter(None, (verdict.sentence, verdict.evidence))) + "\n" if verdict else ""
    made = "its own weights fine-tuned" if trained.is_full else "an adapter merged into its weights"
    return f"""---
{front}base_model: {base_model_name(spec)}
base_model_relation: finetune
library_name: {library}
tags: [tunesmith]{pipeline_line(spec)}
---

# {spec.name or "Merged model"}

The base model with {made}, trained with Tunesmith for {trained.step} steps.

- Base model: {base_model_name(spec)}{f" at {spec.model.revision}" if spec.model.revision else ""}
{lineage_lines(spec)}{_weights_lines(trained, base)}- License of the base model: {licence}; it holds for this model too
- Data: {", ".join(Path(source.path).name for source in spec.data.sources)}
{length_line(spec)}
{method_line(spec)}{papers_line(spec)}{classes_line(spec)}
{losses_line(spec, status.first_eval_loss, status.eval_loss if is_last else None)}
{told}
{system_prompt_part(system_prompt_of(trained.run))}## Use

{use}

## Settings

{settings_table(spec)}
"""


def _weights_lines(trained: Trained, base: Path) -> str:
    """Return the line about weights that the run trained on in another form, "" for the same."""
    if format_ := unquantized.format_in(base):
        return f"- The base model is quantized ({WORDS[format_]}). It was unpacked for this one.\n"
    bits = trained.quantized_bits(base)
    return f"- {trained_on(bits)}\n" if bits else ""
