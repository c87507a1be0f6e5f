"""One table of what exports lose: every architecture that llama.cpp has, real tokenizers and the example model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine import causal_types
from tests.engine.exports import export, overrides_for_llama_cpp, run_for_llama_cpp, trained_run
from tests.engine.numerics import FACTOR
from tests.engine.public_data import real_tokenizer
from tests.real_runs import example_model
from tunesmith_core.runs import Run
from tunesmith_engine.export.gguf.architectures import ARCHITECTURES

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("home")]

SIZES = {"hidden_size": 256, "intermediate_size": 512}
"""Multiples of 256, as real models have them: K-quants round 256 numbers together."""

_FOUR_TIMES = {"hidden_size": 256}
_WHOLE_HEADS = SIZES | {"head_dim": 64}
SIZES_OF = {
    "bloom": _FOUR_TIMES,
    "cohere2": _WHOLE_HEADS,
    "falcon": {"hidden_size": 256, "ffn_hidden_size": 512},
    "gpt2": _FOUR_TIMES,
    "mamba2": {"hidden_size": 256, "num_heads": 32, "head_dim": 16},
    "mpt": _FOUR_TIMES,
    "nemotron": _WHOLE_HEADS,
}
"""Of types whose MLP is four times as wide as the model, whose config names it otherwise, or whose heads together are
as wide as the model."""

PADDED_TO = 64
"""Rows of an embedding, of which real models have more than tokens."""

COLUMNS = ("merged", "f16", "q8_0", "q4_k_m")
MOST_NATS = {"f16": 1e-3, "q8_0": 1e-2}
"""What is promised; a smaller type may lose what the reference quantizer loses, which its proof checks."""

ROUNDED_ROUTERS = ("gpt_oss", "qwen3_5_moe_text", "qwen3_next")
"""Small mixtures whose routers, of random weights, choose another expert once numbers are rounded: they may lose what
the trained model loses by the rounding alone, as the numerics policy measures it."""

REAL = {"llama3": "llama", "qwen3": "qwen3", "gemma3": "gemma3_text"}


def _with_real_tokenizer(name: str, folder: Path) -> Run:
    words = real_tokenizer(name)
    num_rows = -(-len(AutoTokenizer.from_pretrained(words)) // PADDED_TO) * PADDED_TO
    kind = REAL[name]
    changes = overrides_for_llama_cpp(kind) | SIZES | {"vocab_size": num_rows}
    return trained_run(causal_types.write_model(kind, folder / "model", words, **changes))[0]


def _small(kind: str, folder: Path) -> Run:
    whole = kind.removesuffix("_text") if "_vl_" in kind else kind
    if whole == kind:
        return run_for_llama_cpp(folder, kind, **SIZES_OF.get(kind, SIZES))
    # The decoder of a model for images and texts: heads stay as wide, for their positions are divided among three axes.
    inner = overrides_for_llama_cpp(whole)["text_config"] | SIZES
    return run_for_llama_cpp(folder, whole, text_config=inner | {"num_attention_heads": 16, "num_key_value_heads": 2})


ROWS: dict[str, Callable[[Path], Run]] = {
    **{kind: lambda folder, kind=kind: _small(kind, folder) for kind in ARCHITECTURES},
    **{
        f"{kind}, real {name}": lambda folder, name=name: _with_real_tokenizer(name, folder)
        for name, kind in REAL.items()
    },
    "example model": lambda _: trained_run(example_model(), alpha=1.0)[0],
}


def _cells(run: Run, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the proofs of all exports of a run."""
    proofs = {"merged": export(run, folder / "merged")["proof"]}
    for name in COLUMNS[1:]:
        proofs[name] = export(run, folder / name, "gguf", type_name=name)["proof"]
    return proofs


def _line(name: str, proofs: dict[str, dict[str, Any]]) -> str:
    cells = [f"{proofs[each]['agreement']:7.1%} {proofs[each]['mean_kl']:8.1e}" for each in COLUMNS]
    reference = proofs["q4_k_m"]["rounding"]
    cells.append(f"{reference['agreement']:7.1%} {reference['mean_kl']:8.1e}")
    return f"{name:<22} | {' | '.join(cells)}"


@pytest.mark.parametrize("name", list(ROWS))
def test_what_every_architecture_loses_in_every_type(name: str, tmp_path: Path, capsys: Any) -> None:
    proofs = _cells(ROWS[name](tmp_path), tmp_path)
    heads = " | ".join(f"{each:<16}" for each in (*COLUMNS, "q4_k_m, reference"))
    with capsys.disabled():
        if name == next(iter(ROWS)):
            sys.stderr.write(f"\nagreement and mean divergence in nats\n{'':<22} | {heads}")
        sys.stderr.write(f"\n{_line(name, proofs)}")
    assert all((each["passed"], each["num_prompts"]) == (True, 20) for each in proofs.values())
    alone = {each: proofs[each]["rounding"] for each in MOST_NATS if name in ROUNDED_ROUTERS}
    assert proofs["f16"]["agreement"] >= (alone["f16"]["agreement"] if alone else 1)
    for each, most in MOST_NATS.items():
        assert proofs[each]["mean_kl"] < (max(most, FACTOR * alone[each]["mean_kl"]) if alone else most), each
