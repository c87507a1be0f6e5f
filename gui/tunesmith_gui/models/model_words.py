"""What a model is and how it comes, in words."""

from __future__ import annotations

from tunesmith_gui.tr import duration, fill, number, size, translate


def parameters_text(num_parameters: int) -> str:
    """A number of parameters as people say it: 300 K, 135 M, 4.0 B."""
    if num_parameters >= 999.5e6:  # that and more would be 1,000 M
        return fill(translate("ModelWords", "%1 B parameters"), number(num_parameters / 1e9, 1))
    if num_parameters >= 999.5e3:
        return fill(translate("ModelWords", "%1 M parameters"), number(num_parameters / 1e6))
    return fill(translate("ModelWords", "%1 K parameters"), number(max(1, num_parameters / 1e3)))


def verdict_words(verdict: str) -> tuple[str, str]:
    """Return words and tone of a verdict of the planner."""
    return {
        "fits": (translate("ModelWords", "Fits"), "ok"),
        "tight": (translate("ModelWords", "Tight"), "warn"),
        "exceeds": (translate("ModelWords", "Does not fit"), "error"),
        "nothing": (translate("ModelWords", "Nothing to learn"), "error"),
        "unmeasured": (translate("ModelWords", "Check first"), "warn"),
    }[verdict]


def method_verdict(method: str, verdict: str) -> tuple[str, str]:
    """Return words and tone of a verdict with the method that it is for."""
    words, tone = verdict_words(verdict)
    pattern = {"qlora": translate("ModelWords", "QLoRA: %1"), "lora": translate("ModelWords", "LoRA: %1")}[method]
    return fill(pattern, words), tone


def license_text(licence: str) -> str:
    """The license, or that it is unknown."""
    return licence or translate("ModelWords", "license unknown")


def template_text(has_chat_template: bool) -> str:
    """Whether there is a chat template."""
    if has_chat_template:
        return translate("ModelWords", "chat template found")
    return translate("ModelWords", "no chat template")


def context_text(context_length: int) -> str:
    """A context length, "" when unknown."""
    return fill(translate("ModelWords", "context of %1 tokens"), number(context_length)) if context_length else ""


def parts_text(*parts: str) -> str:
    """Facts in one line; unknown ones are left out."""
    return "  ·  ".join(filter(None, parts))


def progress_text(done_bytes: int, total_bytes: int, bytes_per_s: float = 0.0, remaining_s: float | None = None) -> str:
    """How far a download is, how fast and how long it takes."""
    if not total_bytes:
        return ""
    of_all = fill(translate("ModelWords", "%1 of %2"), size(done_bytes), size(total_bytes))
    rate = fill(translate("ModelWords", "%1/s"), size(bytes_per_s)) if bytes_per_s else ""
    left = "" if remaining_s is None else fill(translate("ModelWords", "about %1 left"), duration(remaining_s))
    return parts_text(of_all, rate, left)
