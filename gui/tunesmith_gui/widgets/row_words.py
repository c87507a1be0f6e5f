"""Words for the formats of rows, and for the parts that their columns play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tunesmith_core.datafmt import READ_BY_ENGINE
from tunesmith_core.datafmt.encoding import NUMBERED_KINDS, PART_KINDS, PDF
from tunesmith_core.datafmt.formats import OPTION_ROLES
from tunesmith_core.datafmt.guessing import PREFERRED
from tunesmith_core.datafmt.verdicts import WINNER
from tunesmith_gui.tr import fill, listed, number, translate

_MOST_UNUSED = 10
"""Columns that are named."""


def number_words(kind: str, place: int) -> str:
    """Which row of a file of a kind it is: its line, its page, or how many rows there are up to it."""
    if kind == PDF:
        words = translate("RowWords", "Page %1")
    elif kind in PART_KINDS:
        words = translate("RowWords", "Part %1")
    elif kind in NUMBERED_KINDS or kind in READ_BY_ENGINE:
        # Of an archive or a folder the files may be of any kind.
        words = translate("RowWords", "Row %1")
    else:
        words = translate("RowWords", "Line %1")
    return fill(words, number(place))


def format_word(name: str) -> str:
    """Name of a row format."""
    return {
        "messages": translate("DataPicker", "Chat"),
        "sharegpt": translate("DataPicker", "Chat (ShareGPT)"),
        "multiple-choice": translate("DataPicker", "Multiple choice"),
        "alpaca": translate("DataPicker", "Instruction and response (Alpaca)"),
        "prompt-completion": translate("DataPicker", "Prompt and response"),
        "prompt-completion-raw": translate("DataPicker", "Prompt and response as plain text"),
        "text": translate("DataPicker", "Plain text"),
        "preference": translate("DataPicker", "Preference pairs"),
        "tokens": translate("DataPicker", "Tokens"),
        "labeled": translate("DataPicker", "Text with label"),
        "steps": translate("DataPicker", "Solution steps with labels"),
        "prompt-only": translate("DataPicker", "Prompts without answers"),
        "auto": translate("DataPicker", "Format not recognized"),
    }.get(name, name)


def mapping_words(mapping: Mapping[str, str]) -> str:
    """Which column plays which role, where its name doesn't say so."""
    if WINNER in mapping:
        words = translate("DataPicker", "“%1” says which of “%2” and “%3” is better")
        voted = fill(words, mapping[WINNER], mapping["chosen"], mapping["rejected"])
        others = {role: column for role, column in mapping.items() if role not in (*PREFERRED, WINNER)}
        return translate("DataPicker", ", ").join(filter(None, (mapping_words(others), voted)))
    arrow = translate("DataPicker", "%1 → %2")
    # A column "A" says that it is the first option.
    said = {role: (role, role.removeprefix("option_"), "messages", role_word(role).lower()) for role in mapping}
    told = (pair for pair in mapping.items() if pair[1].lower() not in said[pair[0]])
    return translate("DataPicker", ", ").join(fill(arrow, column, role_word(role).lower()) for role, column in told)


def unused_words(columns: Sequence[str]) -> str:
    """Which columns are not used, the first ones where there are many; "" for none."""
    if not columns:
        return ""
    more = "…" if len(columns) > _MOST_UNUSED else ""
    return fill(translate("DataPicker", "Not used: %1"), listed(columns[:_MOST_UNUSED]) + more)


def role_word(role: str) -> str:
    """Name of the part that a column plays."""
    if role in OPTION_ROLES:
        return fill(translate("DataPicker", "Option %1"), role[-1].upper())
    return {
        "messages": translate("DataPicker", "Messages"),
        "conversations": translate("DataPicker", "Messages"),
        "system": translate("DataPicker", "System prompt"),
        "instruction": translate("DataPicker", "Instruction"),
        "input": translate("DataPicker", "Input"),
        "context": translate("DataPicker", "Context"),
        "output": translate("DataPicker", "Response"),
        "prompt": translate("DataPicker", "Prompt"),
        "completion": translate("DataPicker", "Response"),
        "question": translate("DataPicker", "Question"),
        "choices": translate("DataPicker", "List of options"),
        "answer": translate("DataPicker", "Right option"),
        "text": translate("DataPicker", "Text"),
        "chosen": translate("DataPicker", "Chosen response"),
        "rejected": translate("DataPicker", "Rejected response"),
        "winner": translate("DataPicker", "Which one is better"),
        "label": translate("DataPicker", "Good or bad"),
        "class": translate("DataPicker", "Label"),
        "steps": translate("DataPicker", "Steps"),
        "step_labels": translate("DataPicker", "Right or wrong"),
        "tools": translate("DataPicker", "Tools"),
        "history": translate("DataPicker", "Earlier turns"),
        "input_ids": translate("DataPicker", "Token IDs"),
        "labels": translate("DataPicker", "Learned token IDs"),
        "attention_mask": translate("DataPicker", "Attention mask"),
    }.get(role, role)
