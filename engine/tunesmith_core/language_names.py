"""Names of the languages that data is most often in."""

from __future__ import annotations

from tunesmith_core.messages import Message

LANGUAGES = {
    "ar": Message("Arabic"),
    "bn": Message("Bengali"),
    "ca": Message("Catalan"),
    "cs": Message("Czech"),
    "da": Message("Danish"),
    "de": Message("German"),
    "el": Message("Greek"),
    "en": Message("English"),
    "es": Message("Spanish"),
    "fa": Message("Persian"),
    "fi": Message("Finnish"),
    "fr": Message("French"),
    "he": Message("Hebrew"),
    "hi": Message("Hindi"),
    "hu": Message("Hungarian"),
    "id": Message("Indonesian"),
    "it": Message("Italian"),
    "ja": Message("Japanese"),
    "ko": Message("Korean"),
    "la": Message("Latin"),
    "nb": Message("Norwegian"),
    "nl": Message("Dutch"),
    "nn": Message("Norwegian"),
    "no": Message("Norwegian"),
    "pl": Message("Polish"),
    "pt": Message("Portuguese"),
    "ro": Message("Romanian"),
    "ru": Message("Russian"),
    "sv": Message("Swedish"),
    "th": Message("Thai"),
    "tr": Message("Turkish"),
    "uk": Message("Ukrainian"),
    "ur": Message("Urdu"),
    "vi": Message("Vietnamese"),
    "zh": Message("Chinese"),
}
"""By the codes of ISO 639-1."""


def language_name(code: str) -> str:
    """Return the name of a language, its code where it has none here."""
    return LANGUAGES.get(code, code)
