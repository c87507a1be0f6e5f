"""Probable personal data: addresses and numbers that belong to one person."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tunesmith_core.messages import Message
from tunesmith_engine.desk.sieve import NUMBERS, TEXT
from tunesmith_engine.desk.text_rules.finding import Finding, TextRule

LEAST_NUMBER = 9
"""Digits of the shortest number; an account has at least twelve, or capitals in place of some."""

ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
ID_CHECKS = "10X98765432"
"""Of the numbers of Chinese identity cards (GB 11643)."""


def _is_card(text: str) -> bool:
    """Return whether the digits are a payment card's (ISO/IEC 7812)."""
    digits = [int(letter) for letter in text if letter.isdecimal()]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and (doubled + sum(digits[-1::-2])) % 10 == 0


def _is_account(text: str) -> bool:
    """Return whether it is a bank account number (ISO 13616)."""
    letters = text.replace(" ", "").upper()
    return len(letters) >= 15 and int("".join(str(int(each, 36)) for each in letters[4:] + letters[:4])) % 97 == 1


def _is_identity(text: str) -> bool:
    total = sum(int(digit) * weight for digit, weight in zip(text, ID_WEIGHTS, strict=False))
    return ID_CHECKS[total % 11] == text[-1].upper()


def _is_phone(text: str) -> bool:
    return 9 <= sum(letter.isdecimal() for letter in text) <= 15


def _always(_text: str) -> bool:
    return True


KINDS: dict[str, tuple[Message, str, str, Callable[[str], bool]]] = {
    "email": (
        Message("an email address"),
        "[EMAIL]",
        r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b",
        _always,
    ),
    "identity": (Message("an identity card number"), "[ID]", r"(?<![\d.])\d{17}[\dXx](?!\w)", _is_identity),
    "account": (
        Message("a bank account number"),
        "[ACCOUNT]",
        r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
        _is_account,
    ),
    "card": (Message("a payment card number"), "[CARD]", r"(?<![\d.+-])[3-6](?:[ -]?\d){12,18}(?![\d-])", _is_card),
    "social": (Message("a social security number"), "[ID]", r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])", _always),
    "phone": (
        Message("a phone number"),
        "[PHONE]",
        r"(?<![\w+])\+\d(?:[ ()./\xa0-]{0,2}\d){8,14}(?!\d)"
        r"|(?<![\w.+-])00[1-9]\d{0,2}[ /\xa0-](?:[ ()./\xa0-]{0,2}\d){7,12}(?!\d)"
        r"|(?<![\w.-])\(?[2-9]\d{2}\)?[ .-]\d{3}[ .-]\d{4}(?![\d-])"
        r"|(?<![\w.+-])1[3-9]\d{9}(?![\w.])",
        _is_phone,
    ),
}
"""What it is, what a repair puts there, how it looks, and what is true of its digits."""

_PATTERN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, (_, _, pattern, _) in KINDS.items()), re.ASCII)


def find_personal_data(text: str) -> Iterator[Finding]:
    """Yield what looks like data of a person."""
    for found in _PATTERN.finditer(text):
        what, instead, _, is_one = KINDS[found.lastgroup or ""]
        if is_one(found.group()):
            yield Finding(*found.span(), what, instead)


PERSONAL = TextRule("personal-data", ((TEXT, b"@"), (NUMBERS, b"0" * LEAST_NUMBER)), find_personal_data)
