"""Numbers in answers, as English and German write them: 1,234.5 and 1.234,5 are the same one."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"(?:(?<!\w)[-−])?\d+(?:[.,]\d+|['’\u00a0\u202f]\d{3}(?!\d))*")
_MARKS = re.compile(r"[.,]")
_GROUPED = re.compile(r"\d{1,3}(?:[.,]\d{2,3})*[.,]\d{3}")
"""Digits in groups of three, in India of two before the last one."""


def readings(text: str) -> tuple[float, ...]:
    """Return what the last number of a text may be: two values where 1.234 is a thousand or a little more than one."""
    found = _NUMBER.findall(text)
    return _read(found[-1]) if found else ()


def number_match(answer: str, expected: str) -> float:
    """Return 1 where the last numbers are equal in one of their readings."""
    given, wanted = readings(answer), readings(expected)
    return float(any(math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9) for one in given for other in wanted))


def _read(written: str) -> tuple[float, ...]:
    sign = -1.0 if written[0] in "-−" else 1.0
    digits = re.sub(r"['’\u00a0\u202f]", "", written.lstrip("-−"))
    whole, mark, rest = _split(digits)
    if not mark:
        return (sign * float(_MARKS.split(whole)[-1]),)
    if not _GROUPED.fullmatch(whole):
        whole = _MARKS.split(whole)[-1]  # a list without spaces, such as 1,2.5
    decimal = sign * float(f"{_MARKS.sub('', whole)}.{rest}")
    if _MARKS.search(whole) or len(rest) != 3 or len(whole) > 3 or whole.startswith("0"):
        return (decimal,)
    return (decimal, sign * float(whole + rest))


def _split(digits: str) -> tuple[str, str, str]:
    """Return the part before the decimal mark, the mark and what follows; no mark where there is none."""
    marks = _MARKS.findall(digits)
    if not marks or marks.count(marks[-1]) > 1:
        # Several of one kind part groups; where they do not, as in a date, the last part counts.
        return (_MARKS.sub("", digits) if _GROUPED.fullmatch(digits) else digits), "", ""
    whole, _, rest = digits.rpartition(marks[-1])
    return whole, marks[-1], rest
