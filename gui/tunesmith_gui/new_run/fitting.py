"""Which way to teach suits data that another one can't learn from."""

from __future__ import annotations

from tunesmith_core.datafmt.formats import LABELED, PREFERENCE
from tunesmith_core.datafmt.steps import step_columns
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_gui.new_run.form import BY_CLASS, BY_EXAMPLE, BY_PREFERENCE, BY_READING, BY_STEPS
from tunesmith_gui.services.data_facts import DataFacts
from tunesmith_gui.widgets.data_words import named_by_labels


def fitting_way(data: DataFacts) -> str:
    """One of the ways to teach that learns from such rows; "" where nobody knows what they are."""
    if step_columns(data.head):
        return BY_STEPS
    sniffed = named_by_labels(data, SourceSpec()).sniffed
    if sniffed is None or sniffed.format == "auto":
        return ""
    return {PREFERENCE: BY_PREFERENCE, LABELED: BY_CLASS, "text": BY_READING}.get(sniffed.format, BY_EXAMPLE)
