"""Removal of secrets and names from texts that are stored or shown: log lines, error contexts, diagnostics.

The rules err on the side of removing too much; a text that passed once passes again unchanged.
"""

from __future__ import annotations

import contextlib
import getpass
import re
from functools import cache
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, urlsplit

MIN_USER_NAME_CHARS = 4
"""Shorter user names are parts of ordinary words; their home folder is replaced all the same."""

MIN_PASSWORD_CHARS = 6
"""Shorter passwords are parts of ordinary words; in the address that they belong to they are redacted all the same."""

_MARKS = "<token> <secret> <credentials> <value> <e-mail> <user>"

COMMON_USER_NAMES = frozenset({"root", "user", "admin", "administrator", "ubuntu", "debian", "home", "guest", "python"})

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\bhf_[A-Za-z0-9]{8,}"), "<token>"),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"), "<token>"),
    (re.compile(r"\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abp])[_-][A-Za-z0-9_-]{8,}"), "<token>"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE), r"\1 <token>"),
    (
        re.compile(
            r"\b([\w-]*(?:token|secret|password|passwd|api[_-]?key))(\"?'?\s*[=:]\s*\"?'?)[^\s\"'&,;<]{6,}",
            re.IGNORECASE,
        ),
        r"\1\2<secret>",
    ),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:<]+(?::[^\s/@]*)?@", re.IGNORECASE), r"\1<credentials>@"),
    (re.compile(r"([?&][\w.~%-]+=)[^\s&#\"'<>]+"), r"\1<value>"),
    (re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}\b"), "<e-mail>"),
)

_BEGINS = r"(?:(?<![\w.~>-])|(?<=\s-[A-Z])|(?<=\\n))"
"""Where a path may begin: a folder below another one may have the name of one that holds homes. A compiler's option
and an escaped end of line stand right before a path."""

_HOMES = "|".join(
    (
        r"(?:/mnt/[a-z])?/(?:home|Users)/",
        r"[A-Za-z]:(?:\\+|/)Users(?:\\+|/)",
        r"(?<!:)(?:\\{2,}[^\\/\s:]+)?\\+Users\\+",
    )
)
"""What holds the homes of people, under Linux, macOS and WSL, and on a Windows drive or share."""

_HOME_OF_ANYONE = re.compile(rf"({_BEGINS}(?:{_HOMES}))(?!<user>)[^/\\\s\"':,]+")


_passwords: set[str] = set()


def note_passwords(*addresses: str) -> None:
    """Remember the passwords in addresses, such as a proxy's: this process redacts them wherever they stand."""
    for address in addresses:
        with contextlib.suppress(ValueError):
            password = unquote(urlsplit(address).password or "")
            if len(password) >= MIN_PASSWORD_CHARS and password not in _MARKS:
                _passwords.update({password, quote(password), quote(password, safe=""), quote_plus(password)})


def note_secret(secret: str) -> None:
    """Remember an access token: this process redacts it wherever it stands."""
    if len(secret) >= MIN_PASSWORD_CHARS and secret not in _MARKS:
        _passwords.add(secret)


def redact(text: str) -> str:
    """Return a text without access tokens, passwords, e-mail addresses, query values, home folder and user name."""
    for password in sorted(_passwords, key=len, reverse=True):
        text = text.replace(password, "<secret>")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    home, user = _home(), _user()
    if len(home) > MIN_USER_NAME_CHARS:  # a home such as "/" would turn every path into nonsense
        text = _as_path(home).sub("~", text)
    text = _HOME_OF_ANYONE.sub(r"\1<user>", text)
    if len(user) < MIN_USER_NAME_CHARS or user.lower() in COMMON_USER_NAMES:
        return text
    return _as_name(user).sub("<user>", text)


def _home() -> str:
    try:
        return str(Path.home())
    except RuntimeError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


@cache
def _as_path(home: str) -> re.Pattern[str]:
    return re.compile(rf"{_BEGINS}{re.escape(home)}(?![\w-])")


@cache
def _as_name(user: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(user)}(?![\w-])")
