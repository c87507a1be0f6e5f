"""A run setting as text and back: what an input shows, what it takes, and the words for what is wrong with it.

The truth about ranges is the setting's declaration in `tunesmith_core`; here are only the translated words for it.
"""

from __future__ import annotations

import math
import re
from typing import Any

from tunesmith_core.declared import Declaration, value_problem
from tunesmith_core.spec import Setting
from tunesmith_core.spec_sections import CHOICE_WORDS
from tunesmith_gui.tr import core_text, fill, translate

_LIST_SETTINGS = (list[str], str | list[str])
_LINE_PER_ENTRY = ("evaluation.sample_prompts", "model.new_tokens")
EXAMPLE = 0.1
"""A number for settings whose default, 0, would not show that they take fractions."""


class SettingProblem(Exception):
    """A text that is no value of its setting; the message is for the person, in the language in force."""


def number_text(value: float) -> str:
    """A number as it is typed: 16, 0.05, 2e-4."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{value:.0f}" if abs(value) < 1e12 else f"{value:g}"
    mantissa, _, exponent = f"{value:.12g}".partition("e")
    if exponent:
        return f"{mantissa}e{int(exponent)}"
    if abs(value) < 0.001:
        mantissa, _, exponent = f"{value:.12e}".partition("e")
        return f"{float(mantissa):.12g}e{int(exponent)}"
    return mantissa


def value_text(setting: Setting, value: Any) -> str:  # Any: the setting's type
    """The text that an input shows for a value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return translate("SettingText", "on") if value else translate("SettingText", "off")
    if isinstance(value, (int, float)):
        return number_text(value)
    if isinstance(value, dict):
        return ", ".join(f"{role} = {column}" for role, column in value.items())
    if isinstance(value, list):
        return ("\n" if setting.path in _LINE_PER_ENTRY else ", ").join(value)
    return str(value)


def choice_text(choice: str) -> str:
    """A choice of a setting in words."""
    return core_text(CHOICE_WORDS.get(choice, choice))


def parse(setting: Setting, text: str) -> Any:  # Any: the setting's type
    """The value that a text means.

    Raises:
        SettingProblem: it means none; the message says what is wanted.
    """
    if setting.type is int:
        return _checked(_whole_number(text), setting.declaration)
    if setting.type == int | None:
        return _checked(_whole_number(text), setting.declaration) if text.strip() else None
    if setting.type == float | None and not text.strip():
        return None
    if setting.type in (float, float | None):
        return _checked(_decimal_number(setting, text), setting.declaration)
    if setting.type in _LIST_SETTINGS:
        return _names(setting, text)
    if setting.type == dict[str, str]:
        return _pairs(text)
    return text.strip() if not setting.declaration.choices else _choice(text, setting.declaration)


def _whole_number(text: str) -> int:
    compact = re.sub(r"[\s_]", "", text)
    if not re.fullmatch(r"[+-]?\d{1,18}", compact, flags=re.ASCII):
        raise SettingProblem(fill(translate("SettingText", "Must be a whole number, not “%1”"), text.strip()))
    return int(compact)


def _decimal_number(setting: Setting, text: str) -> float:
    try:
        value = float(re.sub(r"\s", "", text))
    except ValueError:
        words = translate("SettingText", "Must be a number such as %1, not “%2”")
        example = number_text(setting.default if isinstance(setting.default, float) and setting.default else EXAMPLE)
        raise SettingProblem(fill(words, example, text.strip())) from None
    if not math.isfinite(value):
        raise SettingProblem(translate("SettingText", "Must be a finite number"))
    return value


def _checked(value: float, declaration: Declaration) -> float:
    words = ""
    bound: float | None = None
    if declaration.above is not None and value <= declaration.above:
        words, bound = translate("SettingText", "Must be above %1"), declaration.above
    elif declaration.minimum is not None and value < declaration.minimum:
        words, bound = translate("SettingText", "Must be at least %1"), declaration.minimum
    elif declaration.maximum is not None and value > declaration.maximum:
        words, bound = translate("SettingText", "Must be at most %1"), declaration.maximum
    if bound is not None:
        raise SettingProblem(fill(words, number_text(bound)))
    return value


def _choice(text: str, declaration: Declaration) -> str:
    if text not in declaration.choices:
        words = translate("SettingText", "Must be one of %1")
        raise SettingProblem(fill(words, ", ".join(declaration.choices)))
    return text


def _names(setting: Setting, text: str) -> str | list[str]:
    separator = r"\n" if setting.path in _LINE_PER_ENTRY else r"[,\n]"
    names = [name.strip() for name in re.split(separator, text) if name.strip()]
    if setting.type == list[str]:
        if problem := value_problem(names, setting.declaration):
            raise SettingProblem(core_text(problem))
        return names
    if not names:
        raise SettingProblem(fill(translate("SettingText", "Name at least one module, or %1"), setting.default))
    return names[0] if names == [setting.default] else names


def _pairs(text: str) -> dict[str, str]:
    pairs = {}
    for part in filter(None, (each.strip() for each in re.split(r"[,，\n]", text))):
        role, equals, column = (each.strip() for each in part.partition("="))
        if not (role and equals and column):
            raise SettingProblem(translate("SettingText", "Write it as: role = column, role = column"))
        pairs[role] = column
    return pairs


def range_text(declaration: Declaration) -> str:
    """The allowed range in words, or an empty text where anything goes."""
    if declaration.choices:
        return fill(translate("SettingText", "One of: %1"), ", ".join(map(choice_text, declaration.choices)))
    low = declaration.above if declaration.above is not None else declaration.minimum
    if low is None and declaration.maximum is None:
        return ""
    if declaration.maximum is None:
        words = (
            translate("SettingText", "Range: above %1")
            if declaration.above is not None
            else translate("SettingText", "Range: %1 or more")
        )
        return fill(words, number_text(low or 0))
    words = (
        translate("SettingText", "Range: above %1, up to %2")
        if declaration.above is not None
        else translate("SettingText", "Range: %1 to %2")
    )
    return fill(words, number_text(low or 0), number_text(declaration.maximum))


def help_text(setting: Setting) -> str:
    """Meaning, range and effect of a setting, one a line."""
    declaration = setting.declaration
    parts = [core_text(declaration.meaning), range_text(declaration), core_text(declaration.effect)]
    return "\n".join(part for part in parts if part)
