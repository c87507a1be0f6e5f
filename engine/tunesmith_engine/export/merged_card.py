"""The card of a merged model: which base model and run it is of, and under which licence."""

from __future__ import annotations

from pathlib import Path

from tunesmith_engine.export.adapter_card import base_model_license, losses_line, settings_table
from tunesmith_engine.export.trained import Trained

UNKNOWN = "unknown"


def merged_card(trained: Trained, base: Path) -> str:
    """Return the card as Markdown with the front matter that model sites read.

    Args:
        trained: the weights that were merged.
        base: folder of the base model.
    """
    spec, status = trained.spec, trained.status
    licence = base_model_license(base)
    front = f"license: {licence}\n" if licence != UNKNOWN else ""
    # Measured at the end of the run, or before this checkpoint.
    is_last = trained.step == status.step
    return f"""---
{front}base_model: {spec.model.path}
base_model_relation: finetune
library_name: transformers
tags: [tunesmith]
---

# {spec.name or "Merged model"}

The base model with an adapter merged into its weights, trained with Tunesmith for {trained.step} steps.

- Base model: {spec.model.path}{f" at {spec.model.revision}" if spec.model.revision else ""}
- Licence of the base model: {licence}; it holds for this model too
- Data: {", ".join(Path(source.path).name for source in spec.data.sources)}
- Context length: {spec.data.context_length} tokens; loss on: {spec.data.train_on}

{losses_line(status.first_eval_loss, status.eval_loss if is_last else None)}
## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER", dtype="auto")
```

## Settings

{settings_table(spec)}
"""
