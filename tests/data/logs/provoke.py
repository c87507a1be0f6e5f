"""Provokes real failures of the training libraries and stores what they print: one small log a case of cases.scripts.

Run in a training environment on Linux, where user namespaces are allowed: `python provoke.py MODEL_FOLDER [CASE...]`.
MODEL_FOLDER holds a tiny causal language model with a chat template. The logs in `written/` were not provoked: they are
written by hand from documented messages of systems that are not at hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))
MAX_LINES = 60
TIMEOUT_S = 300
ENVIRONMENT = "export HF_HOME=$PWD/hf HF_HUB_DISABLE_TELEMETRY=1 TRITON_CACHE_DIR=$PWD/cache NO_COLOR=1"


def read_cases() -> dict[str, str]:
    """Return the scripts by name, with what they use inserted."""
    blocks = (HERE / "cases.scripts").read_text(encoding="utf-8").split("\n=== ")[1:]
    scripts = dict(block.split("\n", 1) for block in blocks)

    def complete(script: str) -> str:
        return re.sub(r"^# use: (.*)$", lambda found: complete(scripts[f"use {found[1]}"]), script, flags=re.MULTILINE)

    return {name: complete(script) for name, script in scripts.items() if not name.startswith("use ")}


def provoke(script: str, model: Path, folder: Path) -> str:
    """Break what a script names, run it and return what it printed."""
    (folder / "train.py").write_text(f"MODEL = {str(model)!r}\n{script}", encoding="utf-8")
    shell = [f". {HERE}/break.sh", f"PACKAGES={PACKAGES} MODEL={model} HEADERS={sys.base_prefix}", ENVIRONMENT]
    for word, value in re.findall(r"^# ([a-z-]+): ?(.*)$", script, re.MULTILINE):
        shell.append(f"{word.replace('-', '_')} '{value}'")
    namespaces = "-rmn" if "# no-network:" in script else "-rm"
    done = subprocess.run(
        ["unshare", namespaces, "sh", "-c", "\n".join([*shell, f"exec {sys.executable} train.py"])],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace")


def trimmed(text: str, model: Path, folder: str) -> str:
    """Return the last lines without paths of this machine."""
    places = {folder: "/run", PACKAGES: "<env>/lib/python3.11/site-packages", sys.base_prefix: "<python>"}
    for path, short in {**places, str(model): "/models/tiny", sys.prefix: "<env>"}.items():
        text = text.replace(path, short)
    lines = [line.rpartition("\r")[2].rstrip() for line in text.splitlines()]
    return "\n".join(lines[-MAX_LINES:]) + "\n"


def main(model: Path, names: list[str]) -> None:
    """Provoke the named cases, all without names."""
    for name, script in read_cases().items():
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix="provoke") as folder:
            text = provoke(script, model, Path(folder))
        (HERE / f"{name}.txt").write_text(trimmed(text, model, folder), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
