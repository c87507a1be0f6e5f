"""JSON files of a model folder, and the error that names one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tunesmith_core import files
from tunesmith_core.errors import TunesmithError
from tunesmith_core.messages import Message, json_problem

MIB = 1 << 20
MOST_BYTES = 64 * MIB
"""Of a JSON file beside the weights. The largest known, an index of a thousand layers, has a tenth of it."""

_LFS_START = b"version https://git-lfs"


def damaged(path: Path, problem: str, /, *, hint: str | None = None, **values: object) -> TunesmithError:
    """Return the error about a file or folder of a model: what is wrong with it, as a phrase without a full stop."""
    return TunesmithError(
        "model-files-missing-or-corrupt", "{path}: {problem}.", hint=hint, path=path, problem=Message(problem, **values)
    )


def unreadable(path: Path, error: OSError) -> TunesmithError:
    """Return the error about a file that the system does not let us read."""
    if isinstance(error, FileNotFoundError):
        return damaged(path, "the file is missing")
    return damaged(path, "the file can't be read: {reason}", reason=Message(str(error.strerror)))


def read_object(path: Path, most_bytes: int = MOST_BYTES) -> dict[str, Any]:  # Any: JSON values
    """Return the JSON object in a file.

    Raises:
        UserError: `model-files-missing-or-corrupt`.
    """
    try:
        value = files.read_foreign_json(path, most_bytes)
    except OSError as error:
        raise unreadable(path, error) from error
    except json.JSONDecodeError as error:
        refuse_pointer(path)
        raise damaged(
            path,
            "line {line}, column {column}: not valid JSON: {msg}",
            line=error.lineno,
            column=error.colno,
            msg=json_problem(error.msg),
        ) from error
    except UnicodeDecodeError as error:
        raise damaged(path, "the file is not JSON text") from error
    except ValueError as error:
        raise damaged(path, "{reason}", reason=error.args[0]) from error
    if not isinstance(value, dict):
        raise damaged(path, "contains no JSON object")
    return value


def refuse_pointer(path: Path) -> None:
    """Raise UserError for a file that only stands for one which was not downloaded."""
    with files.open_file(path) as file:
        start = file.read(len(_LFS_START))
    if start == _LFS_START:
        raise damaged(path, "is a Git LFS pointer, not the file itself. Run git lfs pull, or download the model again")
