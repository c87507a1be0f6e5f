"""Which format the rows of a file have, and which of their columns plays which role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tunesmith_core.datafmt.formats import RAW, ROLES, Layout, Role, Unreadable, listed
from tunesmith_core.datafmt.guessing import speaking_columns
from tunesmith_core.errors import TunesmithError

MESSAGE_NAMES = ({"role", "content"}, {"from", "value"})
"""Columns that are no row's but a message's: "content" alone would be taken for plain text."""


def resolve_layout(
    rows: Iterable[Mapping[str, Any]],
    format_name: str = "auto",
    columns: Mapping[str, str] | None = None,
    source: str = "",
) -> Layout:
    """Decide how the rows of a file are to be read.

    Args:
        rows: the first rows of the file, at least one.
        format_name: of the data source.
        columns: of the data source, role to column; roles that it leaves out are found by the usual names.
        source: named in the error.

    Raises:
        UserError: `dataset-column-missing` when no format fits the columns,
            `dataset-parse-error` when a row holds one message of a chat, `spec-invalid` when `columns` names no role.
    """
    rows = list(rows)
    present = list(dict.fromkeys(name for row in rows for name in row))
    given = dict(columns or {})
    candidates = [name for name in ROLES if name != RAW] if format_name == "auto" else [format_name]
    known = {role.name for name in candidates for role in ROLES[name]}
    unknown = sorted(given.keys() - known)
    if unknown:
        problem = f'"{unknown[0]}" is no role of the format {format_name}: {", ".join(sorted(known))}.'
        raise TunesmithError("spec-invalid", "Column mapping: {problem}", problem=problem)
    if format_name == "auto" and not given and any(names <= set(present) for names in MESSAGE_NAMES):
        raise TunesmithError(
            "dataset-parse-error",
            '{source}: each row is a single message, not a whole chat. A chat is one row: {{"messages": [...]}}.',
            hint="Put the messages of each chat into one row, or choose another file.",
            source=source,
        )
    for name in candidates:
        layout = Layout(name, _mapping(ROLES[name], present, given))
        if given.keys() <= {role.name for role in ROLES[name]} and _is_complete(layout) and _has_shape(layout, rows):
            return layout
    if given and format_name == "auto":
        format_name = next((name for name in ROLES if given.keys() <= {role.name for role in ROLES[name]}), "auto")
    if format_name != "auto":
        # The rows will name the column that they lack; an unmapped role is looked for under its usual name.
        usual = {role.name: role.usual_names[0] for role in ROLES[format_name] if role.required}
        return Layout(format_name, usual | _mapping(ROLES[format_name], present, given))
    if not given and (speaking := speaking_columns(rows)):
        return Layout("prompt-completion", speaking)
    raise TunesmithError(
        "dataset-column-missing",
        "{source}: unrecognized format. The columns are {found}.",
        hint="Name the columns under Column mapping: messages, instruction and output, prompt and completion, or text.",
        source=source,
        found=listed(present) or "(none)",
    )


def _mapping(roles: tuple[Role, ...], present: list[str], given: dict[str, str]) -> dict[str, str]:
    lower = {name.lower(): name for name in reversed(present)}
    mapping = {}
    for role in roles:
        usual = next((lower[name] for name in role.usual_names if name in lower), None)
        column = given.get(role.name, usual)
        if column is not None:
            mapping[role.name] = column
    return mapping


def _is_complete(layout: Layout) -> bool:
    return all(role.name in layout.columns for role in ROLES[layout.format] if role.required)


def _has_shape(layout: Layout, rows: list[Mapping[str, Any]]) -> bool:
    """Tell messages (role/content) from sharegpt (from/value), which use the same columns."""
    key = {"messages": "role", "sharegpt": "from"}.get(layout.format)
    if key is None:
        return True
    column = layout.columns[ROLES[layout.format][0].name]
    items = (item for row in rows if isinstance(row.get(column), list) for item in row[column])
    first = next(items, None)
    if first is None:
        return any(isinstance(row.get(column), Unreadable) for row in rows)
    return isinstance(first, dict) and key in first
