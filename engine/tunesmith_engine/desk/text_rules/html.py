"""What a web page left in a text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_engine.desk.sieve import TEXT
from tunesmith_engine.desk.text_rules.finding import Finding, TextRule

LINE_ENDS = frozenset({"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6"})
"""Elements behind which a line ends."""

NAMES = sorted(
    {
        *LINE_ENDS,
        *("a", "b", "i", "u", "em", "strong", "span", "ul", "ol", "table", "td", "th", "tbody", "thead", "img", "font"),
        *("html", "head", "body", "title", "script", "style", "meta", "link", "code", "pre", "blockquote", "hr"),
        *("sub", "sup", "section", "article", "nav", "footer", "header", "button", "form", "input", "iframe"),
    },
    key=len,
    reverse=True,
)
_PATTERN = re.compile(
    rf"</?(?P<name>{'|'.join(NAMES)})(?:\s[^<>]*)?/?>"
    r"|&(?:[a-z]{2,8}|[A-Z][a-z]{3,7}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});",
    re.IGNORECASE,
)


def find_html(text: str) -> Iterator[Finding]:
    """Yield elements and entities."""
    for found in _PATTERN.finditer(text):
        name, word = found.group("name"), found.group()
        instead = ("\n" if name.lower() in LINE_ENDS and word[1] != "/" else "") if name else html.unescape(word)
        if name or instead != word:
            yield Finding(*found.span(), Message("HTML ({word})", word=shortened(word, 40)), instead)


HTML = TextRule("html", ((TEXT, b"<"), (TEXT, b"&")), find_html)
