"""Which types of models become GGUF files, for what runs without the libraries that write these."""

from __future__ import annotations

from pathlib import Path

from tunesmith_core.model_config import language_part
from tunesmith_core.model_folder import MOST_CONFIG_BYTES
from tunesmith_core.model_json import read_object

FAMILIES = frozenset(
    """
    afmoe arcee bloom cohere cohere2 deepseek_v2 deepseek_v3 dots1 ernie4_5 ernie4_5_moe exaone4 falcon falcon_h1
    gemma gemma2 gemma3_text gemma4_text glm4 glm4_moe glm4_moe_lite gpt2 gpt_neox gpt_oss granite granitemoe
    granitemoehybrid granitemoeshared hunyuan_v1_dense hunyuan_v1_moe lfm2 lfm2_moe llama llama4_text mamba2
    minimax_m2 ministral3 mistral mistral4 mixtral mpt nemotron olmo olmo2 olmo3 olmoe phi phi3 qwen2
    qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next
    qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3 stablelm starcoder2
    """.split()
)
"""By the model_type of config.json, of models that see images that of their language model."""


def type_without_gguf(folder: Path) -> str:
    """Return the type of a model that can't become a GGUF file, "" where it may.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    kind = str(language_part(read_object(folder / "config.json", MOST_CONFIG_BYTES)).get("model_type") or "")
    # Some config files keep the language model's settings beside those for images, under the name of the whole.
    return "" if not kind or FAMILIES & {kind, f"{kind}_text"} else kind
