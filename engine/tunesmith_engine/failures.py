"""Turns exceptions of the training libraries into our errors: by the catalogue of causes, else by type."""

from __future__ import annotations

import os
import re

from tunesmith_core import memory_limits
from tunesmith_core.errors import TunesmithError, wrap

MAX_MESSAGE_CHARS = 600

_RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)|Os \{ code: (\d+)")

_BY_TYPE: dict[str, str] = {
    "GatedRepoError": "hub-gated-401",
    "RepositoryNotFoundError": "hub-gated-401",
    "OfflineModeIsEnabled": "hub-offline",
    "LocalEntryNotFoundError": "hub-offline",
    "ConnectError": "hub-offline",
    "ConnectionError": "hub-offline",
    "ConnectTimeout": "hub-offline",
    "ReadTimeout": "hub-offline",
    "SafetensorError": "model-files-missing-or-corrupt",
    "OutOfMemoryError": "cuda-oom",
    "MemoryError": "memory-full",
}
"""Names of exception classes; by name, so that no library need be imported to compare with."""


def translate(error: BaseException) -> TunesmithError:
    """Return the error that a person is told; what nobody foresaw becomes a `BugError` with its traceback."""
    return memory_limits.with_limit(_translated(error))


def as_os_error(error: BaseException) -> OSError | None:
    """Return an error of the system as such, also one that safetensors or tokenizers only tell in words, else None."""
    if isinstance(error, OSError):
        return error
    if found := _RUST_OS_ERROR.search(str(error)):
        number = int(found[1] or found[2])
        return OSError(number, os.strerror(number), None, number)
    return None


def _translated(error: BaseException) -> TunesmithError:
    known = wrap(error)
    if known.code != "bug" or isinstance(error, TunesmithError):
        return known
    # Imported here: a run that ends well does not pay for it.
    from tunesmith_core.explain.failure import explained

    # Words before types: a certificate error comes wrapped in a connection error, which by its type alone would mean
    # that there is no network.
    failure = explained(known, known.context or "")
    code = _code_by_type(error) if failure.code == known.code else None
    return failure if code is None else TunesmithError(code, known.message[:MAX_MESSAGE_CHARS], context=known.context)


def _code_by_type(error: BaseException) -> str | None:
    """Look at an error and then at what caused it."""
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        if memory_limits.speaks_of_memory(str(link)):
            return "memory-full"
        for base in type(link).__mro__:
            if base.__name__ in _BY_TYPE:
                return _BY_TYPE[base.__name__]
        seen.append(link)
        link = link.__cause__ or link.__context__
    return None
