"""A GGUF file in llama.cpp itself, inside this process and without a port."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from gguf import GGMLQuantizationType

from tunesmith_core.messages import Message
from tunesmith_engine.export.proof import MOST_LIKELY, differs

FORCING = 1000.0
"""Added to the logit of a token, which makes it the next one whatever the model says."""

Answer = dict[str, Any]  # Any: JSON values


class LlamaCpp:
    """A loaded file; a context manager."""

    def __init__(self, path: Path, context: int, plain_token: int, adapter: Path | None = None) -> None:
        """Load a file.

        Args:
            path: of the file.
            context: tokens that fit.
            plain_token: number of a token that is text for itself; llama.cpp tells nothing of parts of a letter.
            adapter: of the model, in a file of its own.

        Raises:
            RunFailure: `export-differs` when llama.cpp can't load it.
        """
        # Imported here: it is only needed to prove an export.
        import xllamacpp

        self._plain_token = plain_token
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_parallel = context, 1
        parameters.warmup = parameters.fit_params = False
        parameters.n_gpu_layers = 0
        # Matrices stay where the file is mapped; put in another order, they would take as much memory again.
        parameters.no_extra_bufts = True
        parameters.cpuparams.n_threads = max(1, torch.get_num_threads())
        # The file is judged, so what was read is kept in 32 bits, not in the 16 that programs mostly have for it.
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.cache_type_k = parameters.cache_type_v = GGMLQuantizationType.F32
        parameters.verbosity = -1
        if adapter:
            parameters.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)]
        # The library always listens. A socket in a private folder that is deleted at once can't be reached by anybody.
        folder = Path(tempfile.mkdtemp(prefix="ts-"))
        parameters.hostnames = [str(folder / "s.sock")]
        try:
            self._server = xllamacpp.Server(parameters)
        except RuntimeError as error:
            raise differs(Message("llama.cpp can't load the file")) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not str(self._server.listening_address).startswith("unix:"):
            raise RuntimeError(f"llama.cpp listens at {self._server.listening_address}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._server

    def next_token(self, prompt: list[int] | str, *, anew: bool = False) -> tuple[int, dict[int, float]]:
        """Return how many tokens a prompt has, and the log-probabilities in nats of the likeliest tokens after it.

        Args:
            prompt: text or tokens.
            anew: whether nothing is kept of the prompt before, which changes the rounding.
        """
        answer = self._ask({"prompt": prompt, "cache_prompt": not anew})
        return answer["usage"]["prompt_tokens"], _likeliest(answer)

    def next_in_chat(self, messages: list[dict[str, str]]) -> tuple[int, dict[int, float]]:
        """Return the same as `next_token`, anew, for a chat that llama.cpp puts into the template of the file."""
        own = {"messages": messages, "logprobs": True, "top_logprobs": MOST_LIKELY, "cache_prompt": False}
        answer = self._asked(self._server.handle_chat_completions(self._request() | own))
        return answer["usage"]["prompt_tokens"], _likeliest(answer)

    def stops_at(self, prompt: list[int], token: int) -> bool:
        """Return whether an answer ends with a token."""
        answer = self._ask({"prompt": prompt, "n_predict": 2, "logit_bias": [[token, FORCING]]})
        return bool(answer["choices"][0]["finish_reason"] == "stop")

    def _request(self) -> Answer:
        return {
            "n_predict": 1,
            "temperature": 0,
            "logprobs": MOST_LIKELY,
            "n_probs": MOST_LIKELY,
            "logit_bias": [[self._plain_token, FORCING]],
        }

    def _ask(self, changes: Answer) -> Answer:
        return self._asked(self._server.handle_completions(self._request() | changes))

    @staticmethod
    def _asked(answer: Answer) -> Answer:
        if "choices" not in answer:
            raise differs(Message("llama.cpp refuses a prompt: {reason}", reason=answer.get("error")))
        return answer


def _likeliest(answer: Answer) -> dict[int, float]:
    told = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    return {int(token["id"]): float(token["logprob"]) for token in told[:MOST_LIKELY] if token["logprob"] is not None}
