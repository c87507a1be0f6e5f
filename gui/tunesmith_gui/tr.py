"""Translations: loads Qt Linguist catalogues and formats counts, numbers and durations in the chosen language.

How texts are written everywhere in the window:

- In a QObject: `self.tr("Start run")`; elsewhere `translate("NewRun", "Start run")`. Literals only, never an f-string:
  `self.tr("Step %1 of %2")` goes through `fill(text, step, total)`, so that a translator may reorder the parts.
- Counts: `self.tr("%n example(s)", "", count)`; both languages get their plural forms from the catalogue.
- Texts made elsewhere (errors, findings, settings) come from `core_text(english)`, which `core.messages` translates.
- Source language is English; `python -m tunesmith_gui.i18n_build` renews the catalogue.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from PySide6.QtCore import QT_TRANSLATE_NOOP, QCoreApplication, QLibraryInfo, QLocale, QTranslator

from tunesmith_core import messages, terminal
from tunesmith_gui.assets import asset_folder

translate = QCoreApplication.translate
"""`translate("Context", "literal")` for code outside a QObject; lupdate finds it under this name."""

LANGUAGES: dict[str, str] = {"system": "", "en": "English", "zh_CN": "简体中文"}
"""Setting value to the language's own name; `system` is named by the settings page."""

CORE_CONTEXT = "Core"

QT_TEXTS = (
    QT_TRANSLATE_NOOP("QFileDialog", "&Look in:"),
    QT_TRANSLATE_NOOP("QFileDialog", "Files of &type:"),
    QT_TRANSLATE_NOOP("QAbstractFileIconProvider", "Folder"),
    QT_TRANSLATE_NOOP("QAbstractFileIconProvider", "File Folder"),
)
"""Texts of Qt that its own Chinese catalogue has under other names, so ours has them."""

_installed: list[QTranslator] = []


def resolve_language(setting: str) -> str:
    """The catalogue to use for a setting: `system` becomes zh_CN on a Chinese desktop, else en."""
    if setting in LANGUAGES and setting != "system":
        return setting
    for name in QLocale.system().uiLanguages():
        if name.startswith("zh"):
            return "zh_CN"
        if name.startswith("en"):
            return "en"
    return "en"


def install_language(setting: str) -> str:
    """Loads the catalogues for a language setting, replacing those loaded before.

    Returns:
        The language in force: en or zh_CN.
    """
    application = QCoreApplication.instance()
    assert application is not None
    while _installed:
        application.removeTranslator(_installed.pop())
    language = resolve_language(setting)
    QLocale.setDefault(QLocale(language))
    messages.use_language(language)
    qt_folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
    for name, folder in (("qtbase", qt_folder), ("tunesmith", str(asset_folder("i18n")))):
        translator = QTranslator(application)
        if translator.load(f"{name}_{language}", folder):
            application.installTranslator(translator)
            _installed.append(translator)
    return language


def core_text(english: str) -> str:
    """A text of `tunesmith_core` (error title, setting label...) in the language in force."""
    if isinstance(english, messages.Message) and english.values:
        return messages.said(english)
    try:
        return translate(CORE_CONTEXT, english) if english else ""
    except UnicodeEncodeError:
        # A file name that is no valid text, as Linux allows: Qt takes none, and nobody has translated it.
        return english


def fill(text: str, *values: object) -> str:
    """Puts values in the places %1, %2... of a translated text, in one pass.

    One pass matters: a value that itself holds `%2` (a file name may) is left as it is.
    """
    parts = text.split("%")
    result = [parts[0]]
    for part in parts[1:]:
        index = int(part[0]) if part[:1].isdigit() else 0
        if 1 <= index <= len(values):
            result.append(str(values[index - 1]) + part[1:])
        else:
            result.append("%" + part)
    return "".join(result)


def listed(parts: Iterable[str]) -> str:
    """Words one after the other, as the language separates them; empty ones are left out."""
    return translate("Lists", ", ").join(filter(None, parts))


def number(value: float, decimals: int = 0) -> str:
    """A number with the language's digit grouping, e.g. 14,812."""
    if decimals == 0:
        return QLocale().toString(round(value))
    # Rounded first, and 0 added: what is shown as zero has no sign.
    return QLocale().toString(round(float(value), decimals) + 0.0, "f", decimals)


def size(num_bytes: float) -> str:
    """A size in GiB, MiB or KiB, e.g. `4.9 GiB`."""
    value, decimals, unit = terminal.scaled(num_bytes)
    return f"{number(value, decimals)} {unit}"


def moment(seconds: float) -> str:
    """Date and time of day by seconds since 1970, e.g. `2026-11-23 13:53`, as times stand everywhere in the window."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def duration(seconds: float) -> str:
    """A rounded duration for people: `45 s`, `12 min`, `3 h 05 min`."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return fill(translate("Duration", "%1 s"), whole)
    if whole < 3600:
        return fill(translate("Duration", "%1 min"), round(whole / 60))
    return fill(translate("Duration", "%1 h %2 min"), whole // 3600, f"{whole % 3600 // 60:02d}")
