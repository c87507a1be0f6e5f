"""What the window says of how a data file was recognized."""

from __future__ import annotations

import json
from pathlib import Path

from tunesmith_core import datafmt
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.widgets.data_words import reason_words


def test_only_the_column_of_messages_is_said_to_hold_them(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}]
    path = tmp_path / "tools.jsonl"
    path.write_text(json.dumps({"tools": [{"type": "function"}], "messages": messages}) + "\n")
    words = reason_words(DataFacts(str(path), datafmt.sniff(path)), SourceSpec(path=str(path)))
    assert words == "Recognized because “messages” holds chats."
