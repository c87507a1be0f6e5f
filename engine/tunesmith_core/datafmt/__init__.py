"""Training data as the person has it: find out what a file is, read its rows, and turn rows into conversations.

`reading` yields rows with their line numbers, `formats` knows the shapes a row can have, `layouts` and `guessing` tell
which one a file has, `conversion` turns its rows into conversations, `sniffing` looks at a file's head. Standard
library only; Parquet and workbooks are recognised here and read by the engine.
"""

from tunesmith_core.datafmt.conversion import decided, is_wanted, pairs_problem, to_messages, to_preference
from tunesmith_core.datafmt.formats import (
    ROLES,
    Chat,
    Conversation,
    Labeled,
    Layout,
    Message,
    Preference,
    PromptCompletion,
    Role,
    Stepped,
    Text,
    Tokens,
    Unreadable,
)
from tunesmith_core.datafmt.json_rows import Row
from tunesmith_core.datafmt.labels import to_labeled, with_labels
from tunesmith_core.datafmt.layouts import recognition, resolve_layout
from tunesmith_core.datafmt.reading import PARQUET, READ_BY_ENGINE, file_kind, read_rows
from tunesmith_core.datafmt.sniffing import (
    Sniffed,
    check_head,
    count_bad,
    count_labels,
    head_problem,
    label_notes,
    only_label,
    sniff,
    swapped_note,
)
from tunesmith_core.datafmt.stored import StoredAnswer, stored_answer, with_stored

__all__ = [
    "PARQUET",
    "READ_BY_ENGINE",
    "ROLES",
    "Chat",
    "Conversation",
    "Labeled",
    "Layout",
    "Message",
    "Preference",
    "PromptCompletion",
    "Role",
    "Row",
    "Sniffed",
    "Stepped",
    "StoredAnswer",
    "Text",
    "Tokens",
    "Unreadable",
    "check_head",
    "count_bad",
    "count_labels",
    "decided",
    "file_kind",
    "head_problem",
    "is_wanted",
    "label_notes",
    "only_label",
    "pairs_problem",
    "read_rows",
    "recognition",
    "resolve_layout",
    "sniff",
    "stored_answer",
    "swapped_note",
    "to_labeled",
    "to_messages",
    "to_preference",
    "with_labels",
    "with_stored",
]
