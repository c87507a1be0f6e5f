"""Which model a quantized one was made from, as far as its folder tells."""

from __future__ import annotations

import re
from pathlib import Path

from tunesmith_core import files

HEAD_BYTES = 4096
_BASE = re.compile(r"^base_model:[ \t]*(?:\n[ \t]*-[ \t]*)?[\"']?([\w.-]+/[\w.-]+)", re.MULTILINE)
_ENDING = re.compile(
    r"[-_.](awq|gptq|bnb|fp8|mxfp4|nvfp4|int[48]|[48]-?bits?|w[48]a(4|8|16)|quantized)([-_.].*)?$", re.IGNORECASE
)


def base_of(folder: Path) -> str:
    """Return the name of the unquantized model: by the model's card, else by the folder's name; "" where neither says.
    """
    try:
        with files.open_file(folder / "README.md") as file:
            head = file.read(HEAD_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        head = ""
    if head.startswith("---\n") and (named := _BASE.search(head.split("\n---", 2)[0])):
        return named[1]
    name = _ENDING.sub("", folder.name)
    return name if name != folder.name else ""
