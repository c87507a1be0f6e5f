"""Which model a quantized one was made from, as far as its folder tells, and what a run says of a quantized one."""

from __future__ import annotations

import re
from pathlib import Path

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.json_values import shortened
from tunesmith_core.messages import Message
from tunesmith_core.model_json import read_object
from tunesmith_core.packed_weights import WORDS, format_of, is_kept, settings_of
from tunesmith_core.spec import RunSpec
from tunesmith_core.trained_parts import FULL

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


def format_in(folder: Path) -> str | None:
    """Return the format of a model's quantized weights; None for those that are not, and where it can't be read."""
    try:
        settings = settings_of(read_object(folder / "config.json"))
    except TunesmithError:
        return None
    return format_of(settings) if settings else None


def note(folder: Path, spec: RunSpec) -> Message | None:
    """Return what a run says of a base model that comes quantized; None for any other.

    Args:
        folder: of the base model.
        spec: of the run.
    """
    format_ = format_in(folder)
    if format_ is None:
        return None
    word, kind = WORDS[format_], spec.quantization.kind
    if spec.adapter.kind == FULL:
        return Message("The base model comes quantized ({format}). It is unpacked as it loads.", format=word)
    if is_kept(format_, kind):
        how = Message("The base model comes quantized ({format}) and is used as it is.", format=word)
    elif kind == "none":
        how = Message("The base model comes quantized ({format}). It is unpacked as it loads.", format=word)
    elif format_ == "mxfp4" and kind == "nf4":
        how = Message("The base model comes quantized ({format}). Its experts are used as they are.", format=word)
    else:
        how = Message(
            "The base model comes quantized ({format}). It is unpacked as it loads and quantized again to {kind}.",
            format=word,
            kind={"nf4": "NF4", "int8": "int8"}[kind],
        )
    if base := base_of(folder):
        return Message(
            "{how} The adapter fits this model better than {base}, which it was made from.",
            how=how,
            base=shortened(base),
        )
    return Message("{how} The adapter fits this model better than the one that it was made from.", how=how)
