"""What is said about a data file: how many rows, of which kind, and how they are read and why."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from tunesmith_core.datafmt import READ_BY_ENGINE, resolve_layout
from tunesmith_core.datafmt.documents import MAX_PIECE
from tunesmith_core.datafmt.encoding import UTF_8
from tunesmith_core.datafmt.formats import LABELED, MULTIPLE_CHOICE, PREFERENCE, RAW, ROLES
from tunesmith_core.datafmt.labels import LABEL, meaning, with_labels
from tunesmith_core.datafmt.layouts import unused
from tunesmith_core.errors import UserError
from tunesmith_core.spec_sections import CHOICE_WORDS, SourceSpec
from tunesmith_gui.services.data_facts import NUM_SNIFFED_ROWS, DataFacts
from tunesmith_gui.tr import core_text, fill, listed, number, size, translate
from tunesmith_gui.widgets.row_words import format_word, mapping_words, unused_words


def data_kinds() -> str:
    """The filter of a dialog that opens data files."""
    return translate(
        "DataPicker",
        "Data (*.jsonl *.json *.csv *.tsv *.xlsx *.xlsm *.xlsb *.xls *.ods *.parquet *.arrow *.txt *.md *.pdf *.docx "
        "*.html *.gz *.zst *.zip);;All files (*)",
    )


def facts_words(
    data: DataFacts, spec: SourceSpec, num_skipped: int, has_chat_template: bool, *, in_labels: bool = False
) -> str:
    """Rows, kind, size, format and columns of a file that could be looked at.

    Args:
        data: the facts.
        spec: how it is read.
        num_skipped: rows that can't be used, as counted by a preview.
        has_chat_template: whether the model can learn a prompt and its response as a chat.
        in_labels: whether answers are learned from that are labeled good or bad.
    """
    sniffed = data.sniffed
    assert sniffed is not None
    parts = [_count_words(data, num_skipped), sniffed.kind.upper(), size(sniffed.num_bytes)]
    if sniffed.columns:
        own = spec.format != "auto" and not data.is_of_no_format
        format_name = spec.format if own else sniffed.format
        parts.append(format_word(format_name))
        if format_name in ("prompt-completion", MULTIPLE_CHOICE) and has_chat_template:
            parts.append(translate("DataPicker", "trained as a chat"))
        columns = mapping_words({**({} if own else sniffed.mapping), **({} if data.is_of_no_format else spec.columns)})
        if columns:
            parts.append(columns)
        parts.append(_labels_words(data, spec, in_labels))
        parts.append(unused_words(_unused(data, spec, in_labels)))
    if spec.encoding != UTF_8:
        parts.append(core_text(CHOICE_WORDS[spec.encoding]))
    return "  ·  ".join(filter(None, parts))


def notes_words(data: DataFacts) -> str:
    """What a person should know of how the file is read, a line each, without its folder; "" for nothing."""
    folder = f"{Path(data.path).expanduser().parent}{os.sep}"
    return "\n".join(core_text(each).replace(folder, "") for each in data.notes)


def unusable_words(data: DataFacts) -> str:
    """That rows can't be used as they are, and how many where that is known."""
    if data.are_all_bad and data.num_unusable > 1:
        return fill(translate("DataWords", "None of the %1 rows can be used as it is"), number(data.num_unusable))
    if data.num_unusable == 1:
        return translate("DataWords", "1 row can't be used as it is")
    if data.num_unusable:
        return fill(translate("DataWords", "%1 rows can't be used as they are"), number(data.num_unusable))
    return translate("DataWords", "Some rows can't be used as they are")


def named_by_labels(data: DataFacts, spec: SourceSpec) -> DataFacts:
    """The facts of texts that have labels beside them as such; of all others as they are.

    Which of the two they are is a question of what is learned, which is not known where a file is only looked at.
    """
    if data.sniffed is None or spec.format != "auto" or data.sniffed.format != "text":
        return data
    try:
        layout = resolve_layout(data.head, LABELED, {})
    except UserError:
        return data
    return replace(data, sniffed=replace(data.sniffed, format=LABELED, mapping=layout.columns))


def _labels_words(data: DataFacts, spec: SourceSpec, in_labels: bool) -> str:
    """That answers are labeled good or bad, "" where they are not, or only one of both.

    Values that are no labels show that a column is meant for something else, unless labels are what is learned from.
    """
    if spec.format == PREFERENCE or (data.sniffed and data.sniffed.format == PREFERENCE):
        return ""
    try:
        layout = with_labels(resolve_layout(data.head, spec.format, spec.columns), data.head, spec.columns, data.path)
    except UserError:
        return ""
    said = {meaning(row.get(layout.columns[LABEL]), layout.bad_number or 0) for row in data.head}
    words = translate("DataWords", "good and bad answers, told apart by “%1”")
    return fill(words, layout.columns[LABEL]) if said - ({None} if in_labels else set()) == {True, False} else ""


def _unused(data: DataFacts, spec: SourceSpec, in_labels: bool) -> list[str]:
    """Columns that are not trained; none where it is not known which are."""
    if data.is_of_no_format:
        return []
    is_labeled = data.sniffed is not None and data.sniffed.format == LABELED
    try:
        layout = resolve_layout(data.head, LABELED if is_labeled else spec.format, spec.columns)
    except UserError:
        return []
    if in_labels:
        with contextlib.suppress(UserError):
            layout = with_labels(layout, data.head, spec.columns, data.path)
    return unused(layout, (name for row in data.head for name in row))


def _count_words(data: DataFacts, num_skipped: int) -> str:
    """How many rows there are, and how many are left out; "" where only the engine can tell."""
    sniffed = data.sniffed
    num_rows = data.num_rows if data.num_rows is not None else sniffed.num_rows_estimate if sniffed else None
    if sniffed is None or num_rows is None:
        return ""
    exact = data.num_rows is not None or sniffed.kind in READ_BY_ENGINE or num_rows < NUM_SNIFFED_ROWS
    num_left_out = max(num_skipped, data.num_bad_rows)
    if exact and num_left_out:
        whole = translate("DataPicker", "%1 of 1 row") if num_rows == 1 else translate("DataPicker", "%1 of %2 rows")
        count = fill(whole, number(num_rows - num_left_out), number(num_rows))
        skipped = fill(translate("DataPicker", "%1 skipped"), number(num_left_out))
    else:
        words = translate("DataPicker", "%1 rows") if exact else translate("DataPicker", "about %1 rows")
        if exact and num_rows == 1:
            words = translate("DataPicker", "%1 row")
        count = fill(words, number(num_rows))
        words = translate("DataPicker", "bad rows skipped: at least %1")
        skipped = fill(words, number(num_left_out)) if num_left_out else ""
    return listed((count, skipped))


def reason_words(data: DataFacts, spec: SourceSpec) -> str:
    """Why rows are read as they are; "" where nothing is known yet."""
    sniffed = data.sniffed
    if sniffed is None:
        return ""
    if spec.format != "auto":
        return translate("DataWords", "You chose these columns.")
    if sniffed.kind in ("txt", "md"):
        words = translate(
            "DataWords",
            "A text file: paragraphs are joined into examples of up to %1 characters. A heading begins a new one.",
        )
        return fill(words, number(MAX_PIECE))
    if sniffed.format == "auto":
        return "" if sniffed.columns else translate("DataWords", "Recognized when the rows are read.")
    roles = ROLES[sniffed.format]
    if sniffed.format in ("messages", "sharegpt"):
        # Only the first role is played by messages.
        roles = roles[:1]
    names = [sniffed.mapping[role.name] for role in roles if role.name in sniffed.mapping]
    quoted = listed(fill(translate("DataWords", "“%1”"), name) for name in names)
    if sniffed.format in ("messages", "sharegpt"):
        return fill(translate("DataWords", "Recognized because %1 holds chats."), quoted)
    if sniffed.format == RAW or len(names) > 1:
        return fill(translate("DataWords", "Recognized by the names of the columns: %1."), quoted)
    return fill(translate("DataWords", "Recognized because %1 holds text and no other column a response."), quoted)
