"""Stretched positions that llama.cpp turns by other angles than transformers."""

from __future__ import annotations

from tunesmith_core.messages import Message
from tunesmith_engine.export.gguf.config import Config
from tunesmith_engine.export.proof import Model

ROUNDED = Message(
    "llama.cpp rounds where the stretching of positions (YaRN) begins and ends; this model does not. Answers can "
    "differ, the more so the longer a text is."
)


def are_stretched_between(config: Config) -> bool:
    """Return whether stretching begins and ends between whole numbers, as in gpt-oss ("truncate": false)."""
    rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
    return rope.get("rope_type") == "yarn" and not rope.get("truncate", True)


def stretch_as_llama_cpp(model: Model) -> None:
    """Round where the stretching of a model's positions begins and ends."""
    config = model.config.get_text_config()
    config.rope_parameters = {**config.rope_parameters, "truncate": True}
    for rotary in model.modules():
        if hasattr(rotary, "inv_freq"):
            rotary.inv_freq.copy_(type(rotary)(config).inv_freq)
