"""Words for the formats of rows, and for the parts that their columns play."""

from __future__ import annotations

from collections.abc import Mapping

from tunesmith_gui.tr import fill, translate


def format_word(name: str) -> str:
    """Name of a row format."""
    return {
        "messages": translate("DataPicker", "Chat"),
        "sharegpt": translate("DataPicker", "Chat (ShareGPT)"),
        "alpaca": translate("DataPicker", "Instruction and response (Alpaca)"),
        "prompt-completion": translate("DataPicker", "Prompt and response"),
        "prompt-completion-raw": translate("DataPicker", "Prompt and response as plain text"),
        "text": translate("DataPicker", "Plain text"),
        "auto": translate("DataPicker", "Format not recognized"),
    }.get(name, name)


def mapping_words(mapping: Mapping[str, str]) -> str:
    """Which column plays which role, where its name doesn't say so."""
    arrow = translate("DataPicker", "%1 → %2")
    told = (pair for pair in mapping.items() if pair[1].lower() not in (pair[0], "messages"))
    return ", ".join(fill(arrow, column, role_word(role).lower()) for role, column in told)


def role_word(role: str) -> str:
    """Name of the part that a column plays."""
    return {
        "messages": translate("DataPicker", "Messages"),
        "conversations": translate("DataPicker", "Messages"),
        "system": translate("DataPicker", "System prompt"),
        "instruction": translate("DataPicker", "Instruction"),
        "input": translate("DataPicker", "Input"),
        "output": translate("DataPicker", "Response"),
        "prompt": translate("DataPicker", "Prompt"),
        "completion": translate("DataPicker", "Response"),
        "text": translate("DataPicker", "Text"),
    }.get(role, role)
