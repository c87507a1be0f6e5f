"""How fast answers come: the time to the first token, and the tokens of a second behind it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from tunesmith_core.sampling import Sampling
from tunesmith_engine.bench.session import GIB, Session
from tunesmith_engine.bench.workload import Workload
from tunesmith_engine.decode import Decoder, open_decoder
from tunesmith_engine.failures import translate

NUM_TOKENS = 128
"""Of each timed answer, behind the first token."""

COPIED_BYTES = 2**30

Row = dict[str, Any]  # Any: JSON values


def decode(session: Session, workload: Workload) -> Row:
    """Time answers to the rows of one step of a workload; what goes wrong is said in the row, under "error"."""
    (prompts, *_) = workload.steps(session.model.config.get_text_config().vocab_size)
    try:
        if session.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        decoder = open_decoder(session.model, session.compute)
        try:
            row = _timed(decoder, prompts, session.on_gpu)
        finally:
            decoder.close()
        if session.on_gpu:
            row["peak_gib"] = round(torch.cuda.max_memory_allocated() / GIB, 3)
            row["share_of_reading"] = round(_reading_s(session) * row["tokens_per_s"] / len(prompts), 4)
    except Exception as error:
        # As text: the exception itself would keep the tensors of its frames.
        row = {"error": translate(error).to_dict()}
    return session.facts(workload) | row


def _timed(decoder: Decoder, prompts: Sequence[Sequence[int]], on_gpu: bool) -> Row:
    first_s, all_s = (_best_s(decoder, prompts, number, on_gpu) for number in (1, NUM_TOKENS + 1))
    return {
        "decoder": decoder.name,
        "first_token_s": round(first_s, 4),
        "tokens_per_s": round(len(prompts) * NUM_TOKENS / (all_s - first_s), 1),
    }


def _best_s(decoder: Decoder, prompts: Sequence[Sequence[int]], num_tokens: int, on_gpu: bool) -> float:
    """Return the seconds of the faster of two answers, after one that compiles and captures."""
    seconds = []
    for _ in range(3):
        start_s = time.perf_counter()
        decoder.generate(prompts, Sampling(num_tokens), ())
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start_s)
    return min(seconds[1:])


def _reading_s(session: Session) -> float:
    """Return how long this GPU takes to read the model's weights once, by the rate of a large copy.

    The input embedding, of which a token reads a row, is left out unless it is the output projection, too.
    """
    embedding, head = session.model.get_input_embeddings(), session.model.get_output_embeddings()
    tied = embedding.weight is getattr(head, "weight", None)
    weights = {id(weight): weight.nbytes for weight in session.model.parameters()}
    num_bytes = sum(weights.values()) - (0 if tied else embedding.weight.nbytes)
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=session.compute.device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start_s)
    return num_bytes * min(seconds) / (2 * COPIED_BYTES)
