"""Turns exceptions of the training libraries into our errors: by words, by type, else by the diagnosis of failures."""

from __future__ import annotations

import re
import traceback

from tunesmith_core.errors import EnvironmentProblem, RunFailure, TunesmithError, UserError, wrap

MAX_MESSAGE_CHARS = 600

_BY_TEXT: list[tuple[str, type[TunesmithError], str]] = [
    (r"out of memory|CUBLAS_STATUS_ALLOC_FAILED", RunFailure, "cuda-oom"),
    (r"can't allocate memory|not enough memory", RunFailure, "memory-full"),
    (r"paging file is too small", EnvironmentProblem, "page-file-too-small"),
    (r"no kernel image is available", EnvironmentProblem, "no-kernel-image-for-arch"),
    (r"illegal memory access", RunFailure, "illegal-memory-access-packing"),
    (r"driver .*too old|insufficient for CUDA runtime", EnvironmentProblem, "driver-too-old"),
    (r"not compiled with CUDA", EnvironmentProblem, "torch-cpu-build"),
    (r"Found no NVIDIA driver|No CUDA GPUs are available", EnvironmentProblem, "driver-missing"),
    (r"Expected all tensors to be on the same device", RunFailure, "device-mismatch"),
    (r"flash_attn|FlashAttention2", EnvironmentProblem, "flash-attn-missing"),
    (r"bitsandbytes", EnvironmentProblem, "bnb-cuda-lib-missing"),
    (r"[Tt]arget modules .*not (found|supported)", UserError, "lora-target-modules-missing"),
    (r"sentencepiece|tiktoken|protobuf|blobfile", EnvironmentProblem, "tokenizer-missing-dep"),
    (r"compiled using NumPy 1|numpy\.dtype size changed", EnvironmentProblem, "numpy-abi-mismatch"),
    (r"DLL load failed|WinError 126|WinError 127", EnvironmentProblem, "dll-load-failed-vcredist"),
    (r"lib(cudnn|cublas|nvrtc|cudart|cusparse|nccl)\S*: cannot open", EnvironmentProblem, "cuda-runtime-lib-missing"),
    (r"CERTIFICATE_VERIFY_FAILED|SSLError|ProxyError", EnvironmentProblem, "hub-ssl-or-proxy"),
    (
        r"does not recognize this architecture|Unrecognized configuration",
        EnvironmentProblem,
        "transformers-version-mismatch",
    ),
    (r"trust_remote_code", UserError, "transformers-version-mismatch"),
    (r"unexpected keyword argument", EnvironmentProblem, "trl-peft-api-mismatch"),
    (r"No space left on device", EnvironmentProblem, "disk-full"),
    (r"chat_template is not set|no chat template", UserError, "dataset-chat-template-missing"),
    (
        r"does not appear to have a file named|Can't load (tokenizer|the model|the configuration)|Error no file named"
        r"|size mismatch|mismatched sizes|You set `ignore_mismatched_sizes`",
        UserError,
        "model-files-missing-or-corrupt",
    ),
]
"""Pattern in the text, kind and code; the first that fits wins."""

_BY_TYPE: dict[str, tuple[type[TunesmithError], str]] = {
    "GatedRepoError": (EnvironmentProblem, "hub-gated-401"),
    "RepositoryNotFoundError": (EnvironmentProblem, "hub-gated-401"),
    "OfflineModeIsEnabled": (EnvironmentProblem, "hub-offline"),
    "LocalEntryNotFoundError": (EnvironmentProblem, "hub-offline"),
    "ConnectError": (EnvironmentProblem, "hub-offline"),
    "ConnectionError": (EnvironmentProblem, "hub-offline"),
    "ConnectTimeout": (EnvironmentProblem, "hub-offline"),
    "ReadTimeout": (EnvironmentProblem, "hub-offline"),
    "SafetensorError": (UserError, "model-files-missing-or-corrupt"),
    "OutOfMemoryError": (RunFailure, "cuda-oom"),
    "MemoryError": (RunFailure, "memory-full"),
}
"""Names of exception classes; by name, so that no library need be imported to compare with."""


def translate(error: BaseException) -> TunesmithError:
    """Return the error that a person is told; what nobody foresaw becomes a `BugError` with its traceback."""
    known = wrap(error)
    if isinstance(error, TunesmithError) or known.code != "bug":
        return known
    context = "".join(traceback.format_exception(error))
    found = _classify(error)
    if found is None:
        # Imported here: a run that ends well does not pay for it.
        from tunesmith_core.explain.failure import explained

        return explained(known, context)
    kind, code = found
    return kind(code, f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARS], context=context)


def _classify(error: BaseException) -> tuple[type[TunesmithError], str] | None:
    """Look at an error and then at what caused it."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    # Words first, in the whole chain: a certificate error comes wrapped in a connection error, which by its type alone
    # would mean that there is no network.
    for error in chain:
        for pattern, kind, code in _BY_TEXT:
            if re.search(pattern, f"{type(error).__name__}: {error}"):
                return kind, code
    for error in chain:
        for base in type(error).__mro__:
            if base.__name__ in _BY_TYPE:
                return _BY_TYPE[base.__name__]
    return None
