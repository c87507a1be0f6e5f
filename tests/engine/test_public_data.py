"""Real data sets are recognized without help, with the right roles, and trained as they are shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.engine.prepared import prepare
from tests.engine.public_data import SETS, PublicSet, package, raw_rows
from tests.engine.test_chat_templates import FOLDER
from tunesmith_core.datafmt import Chat, PromptCompletion, Text
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.data.collate import collate
from tunesmith_engine.data.example import IGNORED_LABEL
from tunesmith_engine.data.preview import preview
from tunesmith_engine.data.read import Source

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

MakeSpec = Callable[..., RunSpec]
NUM_ROWS = 300


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """The tokenizer of the example model with a template that writes thoughts and tool calls."""
    model = os.environ.get("TUNESMITH_EXAMPLE_MODEL")
    if not model:
        pytest.skip("THE EXAMPLE MODEL IS NOT THERE: TUNESMITH_EXAMPLE_MODEL names none")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = (FOLDER / "qwen3.jinja").read_text(encoding="utf-8")
    return tokenizer


@pytest.mark.parametrize("each", SETS, ids=lambda each: each.name)
def test_a_public_set_is_recognized_and_trained_as_it_is_shown(
    each: PublicSet, tiny_spec: MakeSpec, tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    path = each.made(package(each.package), tmp_path)
    source = Source(SourceSpec(path=str(path)), skip_bad_rows=False)
    found = [_turns(conversation) for _, conversation in source.conversations()]
    expected = [turns for row in raw_rows(path) if (turns := each.turns(row)) is not None]
    assert source.row_format == each.shape
    assert found == expected
    spec = tiny_spec(data={"path": str(path), "context_length": 4096})
    num_equal = _check_tokens(spec, tokenizer)
    reason = f"{source.row_format}; {source.reason}"
    sys.stderr.write(f"\n{each.name}: {len(found)} rows, {num_equal} compared token by token; {reason}\n")


def _turns(conversation: Any) -> list[tuple[str, str]]:
    if isinstance(conversation, Chat):
        return [(message["role"], message["content"]) for message in conversation.messages]
    if isinstance(conversation, Text):
        return [("text", conversation.text)]
    assert isinstance(conversation, PromptCompletion)
    return [("user", conversation.prompt), ("assistant", conversation.completion)]


def _check_tokens(spec: RunSpec, tokenizer: PreTrainedTokenizerBase) -> int:
    """Compare the first rows as they are shown with the batches that are trained; return how many."""
    shown = [row for row in preview(spec, tokenizer, NUM_ROWS, tokens=True)["rows"] if row["num_trained_tokens"]]
    trained = prepare(spec, tokenizer).train[: len(shown)]
    assert len(trained) == len(shown) > 0
    for start in range(0, len(shown), 8):
        batch = collate(trained[start : start + 8], tokenizer.pad_token_id or 0)
        for number, row in enumerate(shown[start : start + 8]):
            length = len(row["tokens"])
            assert length == len(trained[start + number].input_ids)
            assert [token["id"] for token in row["tokens"]] == batch["input_ids"][number, :length].tolist()
            labels = [token["id"] if token["trained"] else IGNORED_LABEL for token in row["tokens"]]
            assert labels == batch["labels"][number, :length].tolist()
    return len(shown)
