"""What the Environment page adds to the diagnostics: checks, environment, proof, facts and the end of the log."""

from __future__ import annotations

import json

from tunesmith_gui.environment.model import EnvironmentModel, proof_steps

LOG_LINES = 200


def environment_report(model: EnvironmentModel) -> str:
    """The parts as plain text; the caller takes names and secrets out."""
    installed = model.installed
    proof = installed.proof if installed else None
    checks = []
    for check in model.checks.values():
        code = f" [{check.code}]" if check.code else ""
        checks.append(f"{check.state:<8} {check.id}: {check.message}{code}\n{check.evidence}".rstrip())
    log = [line.format() for line in list(model.activity.log.matching())[-LOG_LINES:]] if model.activity else []
    parts = (
        ("Environment", f"{installed.name or installed.problem}, before: {installed.previous}" if installed else ""),
        ("Choice", model.choice),
        ("Proof", json.dumps(proof.versions) + "\n" + proof_steps(proof) if proof else ""),
        ("Checks", "\n".join(checks)),
        ("Machine", json.dumps(model.machine.to_dict(), ensure_ascii=False) if model.machine else ""),
        ("Installer", "\n".join(log)),
    )
    return "\n\n".join(f"== {title}\n{text}" for title, text in parts if text)
