"""The answer to "why did this fail?": cause, evidence, repair."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tunesmith_core.explain import facts
from tunesmith_core.explain.catalogue import repair
from tunesmith_core.explain.matching import finds
from tunesmith_core.explain.reading import Log, read_log, unwrapped
from tunesmith_core.machine import Machine
from tunesmith_core.messages import Message
from tunesmith_core.redact import redact

UNKNOWN = "unknown"
HIGH_SCORE = 85
MEDIUM_SCORE = 62
MAX_EVIDENCE_CHARS = 300

_COMPLAINT = re.compile(
    r"error|exception|traceback|fail|fatal|kill|abort|fault|crash|denied|cannot|can't|错误|失败|异常", re.IGNORECASE
)
_NO_ERROR_FIX = Message("No error found in this log. If something failed, look for the log of the part that failed.")
_UNKNOWN_FIX = Message("Cause not recognized. Read the last error message of the log, or search for its text.")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why something failed and what helps.

    Attributes:
        code: a cause of `error_codes`, or "unknown".
        confidence: "high", "medium" or "low".
        evidence: the line of the log that gave the cause away, without secrets; "" when the cause is unknown.
        fix: what helps, a message.
        actions: names of `tunesmith_core.actions`, the best first.
    """

    code: str = UNKNOWN
    confidence: str = "low"
    evidence: str = ""
    fix: str = ""
    actions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the answer as JSON values."""
        return {
            "code": self.code,
            "confidence": self.confidence,
            "evidence": self.evidence,
            "fix": self.fix,
            "actions": list(self.actions),
        }


def explain(text: str, machine: Machine | None = None) -> Explanation:
    """Name the cause that a log speaks of.

    Args:
        text: error output of any tool, as printed.
        machine: facts about the computer that the log is from; None for a log from elsewhere.
    """
    log = read_log(text)
    found = finds(log)
    if not found and (whole := unwrapped(text)) != text:
        log = read_log(whole)
        found = finds(log)
    if not found:
        return Explanation(fix=_UNKNOWN_FIX if _COMPLAINT.search(log.text) else _NO_ERROR_FIX)
    best = found[0]
    # The final exception may be a mere launcher's: of one cause the heaviest signature tells most.
    telling = max(
        (find for find in found if find.signature.code == best.signature.code),
        key=lambda find: (find.signature.weight, find.score, find.line),
    )
    code, variant, sure = best.signature.code, telling.signature.variant, False
    if machine is not None:
        code, variant, sure = facts.decide(code, variant, log.text, machine)
    fix, actions = repair(code, variant)
    evidence = redact(_evidence(log, telling.line))
    confidence = "high" if sure else _confidence(best.score, best.signature.soft)
    return Explanation(code, confidence, evidence, fix, actions)


def _confidence(score: int, soft: bool) -> str:
    if score >= HIGH_SCORE and not soft:
        return "high"
    return "medium" if score >= MEDIUM_SCORE else "low"


def _evidence(log: Log, line: int) -> str:
    text = log.lines[line].strip()
    return text if len(text) <= MAX_EVIDENCE_CHARS else f"{text[: MAX_EVIDENCE_CHARS - 1]}…"
