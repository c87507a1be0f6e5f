"""What a check of data looks for: names, words, how bad it is, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.messages import Message

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)
"""The worst first."""

SKIP, STOP, REPAIR, KEEP, TRUNCATE, SPLIT, DROP = "skip", "stop", "repair", "keep", "truncate", "split", "drop"


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that data should not have.

    Attributes:
        name: stable.
        severity: error for rows that can't be trained on, warning for what should be looked at, note for the rest.
        title: for people.
        actions: what a copy can do about it, the usual one first.
    """

    name: str
    severity: str
    title: Message
    actions: tuple[str, ...]


_ALL = (
    Rule("bad-file", ERROR, Message("Files that can't be read"), (STOP,)),
    Rule("bad-json", ERROR, Message("Rows that can't be read"), (SKIP, STOP)),
    Rule("encoding", ERROR, Message("Bytes that don't fit the encoding"), (SKIP, STOP)),
    Rule("missing-column", ERROR, Message("Rows without a column that is needed"), (SKIP, STOP)),
    Rule("mixed-schema", ERROR, Message("Rows that are laid out differently"), (SKIP, STOP, KEEP)),
    Rule("empty-answer", ERROR, Message("Rows without an answer"), (SKIP, STOP)),
    Rule("wrong-choice", ERROR, Message("Answers that name none of the options"), (SKIP, STOP)),
    Rule("unknown-role", ERROR, Message("Messages with an unknown role"), (SKIP, STOP)),
    Rule("unwritable", ERROR, Message("Rows that the model can't be trained on"), (STOP,)),
    Rule("role-order", WARNING, Message("Chats whose turns are out of order"), (KEEP, SKIP)),
    Rule("equal-pair", WARNING, Message("Preference pairs with equal answers"), (SKIP, KEEP)),
    Rule("half-pair", WARNING, Message("Preference pairs without a worse answer"), (KEEP, SKIP)),
    Rule("swapped-pair", WARNING, Message("Preference pairs that another row has the other way round"), (KEEP,)),
    Rule("unlearned", WARNING, Message("Rows with nothing to learn within the context length"), (KEEP,)),
    Rule("over-long", WARNING, Message("Rows longer than the context length"), (TRUNCATE, SPLIT, DROP)),
    Rule("exact-duplicate", WARNING, Message("Rows that occur more than once"), (SKIP, KEEP)),
    Rule("other-answer", NOTE, Message("Questions that another row answers differently"), (KEEP,)),
    Rule("near-duplicate", NOTE, Message("Rows that are nearly the same as another"), (KEEP, SKIP)),
    Rule("leakage", WARNING, Message("Training rows that are also evaluation rows"), (SKIP, KEEP)),
    Rule("secret", WARNING, Message("Probable passwords and keys"), (REPAIR, SKIP, KEEP)),
    Rule("personal-data", NOTE, Message("Probable personal data"), (KEEP, REPAIR, SKIP)),
    Rule("mojibake", WARNING, Message("Text garbled by a wrong encoding"), (REPAIR, SKIP, KEEP)),
    Rule("html", NOTE, Message("HTML in the text"), (KEEP, REPAIR, SKIP)),
    Rule("special-token-in-text", NOTE, Message("Special tokens inside the text"), (KEEP, REPAIR, SKIP)),
    Rule("same-answers", WARNING, Message("Many rows have the same answer"), (KEEP,)),
    Rule("label-imbalance", NOTE, Message("Some answers are much rarer than others"), (KEEP,)),
    Rule("language-mix", NOTE, Message("More than one language"), (KEEP,)),
)

RULES = {rule.name: rule for rule in _ALL}
"""By name, in the order in which they are told."""


def action_of(rule: Rule, severity: str, *, skips_bad_rows: bool, overlong: str) -> str:
    """Return what a run does about a rule as it is set up now, or what a copy would do by default.

    Args:
        rule: the rule.
        severity: of what was found, which may be less than the rule's.
        skips_bad_rows: whether the run leaves out bad rows.
        overlong: what the run does with rows that are too long: "truncate", "split" or "skip".
    """
    if severity == ERROR:
        return SKIP if skips_bad_rows and SKIP in rule.actions else STOP
    if rule.severity == ERROR:
        return KEEP
    if rule.name == "unlearned":
        return DROP
    if rule.name == "over-long":
        return {"truncate": TRUNCATE, "split": SPLIT}.get(overlong, DROP)
    return rule.actions[0]
