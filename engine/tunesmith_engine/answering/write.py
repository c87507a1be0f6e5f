"""Answers the prompts of data with a local model; what is done stays done, and is continued after a stop."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tunesmith_core import environments, files
from tunesmith_core.answering import check_room
from tunesmith_core.datafmt.stored import STORED, stored_column
from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.model_library import context_length
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.answers import PROMPTS, AnswersSpec, AskedSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.sampling import Sampling
from tunesmith_engine.answering.prompts import NAME, Messages, read_messages
from tunesmith_engine.data.stored import fingerprint
from tunesmith_engine.desk.writing import check_targets
from tunesmith_engine.model.folder import model_folder
from tunesmith_engine.questions.asking import END_OF_THINKING
from tunesmith_engine.questions.write import USUAL_CONTEXT, Writing, alone
from tunesmith_engine.questions.written import Written

Answer = dict[str, Any]  # Any: JSON values


def write_answers(host: Host, spec: AnswersSpec) -> Answer:
    """Write the file; return where it is and what became of the prompts.

    Each answer is the most likely one, token by token. What a model would think first is left out. Where that is asked
    for, a row also keeps what else the model found likely at each token.

    Raises:
        UserError: `usage` for a target that can't be written or a length that can't be asked for;
            `dataset-chat-template-missing` for a model that is not made for chats; what is wrong with the data;
            `questions-none` when no prompt was answered.
        TunesmithError: what loading a model finds.
    """
    target = Path(spec.target)
    if target.suffix.lower() != ".jsonl":
        raise TunesmithError("usage", "The name of {path} must end in .jsonl.", path=target)
    # Whether it may be replaced is seen once it is known whether it is an unfinished one.
    check_targets([target], spec.run.data.sources, overwrite=True)
    folder = model_folder(spec.run.model)
    card = read_model_card(folder)
    if not card.has_chat_template:
        raise TunesmithError(
            "dataset-chat-template-missing",
            "{path} has no chat template.",
            hint="Choose an instruct model. A base model doesn't answer prompts.",
            path=folder,
        )
    context = context_length(folder) or USUAL_CONTEXT
    if not 1 <= spec.most_tokens < context:
        raise TunesmithError(
            "usage",
            "Answers of {number:,} tokens can't be asked for: {path} reads at most {most:,} tokens.",
            number=spec.most_tokens,
            path=folder,
            most=context,
        )
    check_room(spec.run, card)
    with alone(target):
        return _written(host, spec, folder, context)


def _written(host: Host, spec: AnswersSpec, folder: Path, context: int) -> Answer:
    host.phase("reading")
    outcome = conduct(
        PROMPTS,
        AskedSpec(spec.run),
        command=lambda operation: environments.own_command("tunesmith_engine", "operation", str(operation.path)),
        take=lambda made, answer: (shutil.move(made / NAME, host.folder / NAME), answer)[1],
    )
    read: dict[str, int] = outcome.get()
    path, total, target = host.folder / NAME, read["num_prompts"], Path(spec.target)
    decides = [files.sha256_file(path), str(folder), spec.most_tokens, *(["logprobs"] if spec.keeps_logprobs else [])]
    key = hashlib.sha256(repr(decides).encode()).hexdigest()
    with Written(target, key, total, overwrite=spec.overwrite) as written:
        if written.next < total:
            host.phase("model")
            with Answerer(spec, folder, context) as answerer:
                _write(host, written, answerer, total, path)
        written.finish()
    if not written.counts["rows"]:
        target.unlink()
        raise TunesmithError("questions-none", "{model} answered none of the prompts.", model=folder.name)
    counts = {name: written.counts[name] for name in ("rows", "empty", "unread", "silent")}
    return {"path": str(target), "prompts": written.next, "left_out": read["num_left_out"], **counts}


def _write(host: Host, written: Written, answerer: Answerer, total: int, path: Path) -> None:
    """Write what is missing, and tell how far it is."""
    host.phase("writing")
    first, began_s = written.next, time.monotonic()
    remaining = islice(read_messages(path), first, None)
    while prompts := list(islice(remaining, answerer.together)):
        written.add(answerer.rows(prompts, written.counts), len(prompts))
        rate = (written.next - first) / max(time.monotonic() - began_s, 1e-6)
        host.event(
            "progress",
            name="writing",
            done_bytes=written.next,
            total_bytes=total,
            answers_per_s=rate,
            remaining_s=(total - written.next) / rate,
        )


class Answerer(Writing):
    """A loaded model that answers prompts."""

    def __init__(self, spec: AnswersSpec, folder: Path, context: int) -> None:
        self._vocabulary = ""
        self._most_tokens, self._context, self._keeps_logprobs = spec.most_tokens, context, spec.keeps_logprobs
        super().__init__(spec.run, folder)

    def rows(self, prompts: Sequence[Messages], counts: dict[str, int]) -> list[Answer]:
        """Return the rows of some prompts, and count what is left out.

        That are prompts without room for an answer ("silent"), answers that are cut ("unread") and empty ones.
        """
        asked = [(messages, tokens) for messages in prompts if (tokens := self._tokens(messages))]
        counts["silent"] += len(prompts) - len(asked)
        sampling = Sampling(self._most_tokens)
        prompts_of = [tokens for _, tokens in asked]
        replies = self._decoder.generate(prompts_of, sampling, self._ends, keeps_end=True) if asked else []
        rows: list[Answer] = []
        for (messages, prompt), written in zip(asked, replies, strict=True):
            tokens = written[:-1] if written and written[-1] in self._ends else written
            text = str(self._tokenizer.decode(tokens, skip_special_tokens=True)).strip()
            if len(tokens) >= self._most_tokens:
                counts["unread"] += 1
            elif not text:
                counts["empty"] += 1
            else:
                kept = {STORED: self._likely(prompt, written)} if self._keeps_logprobs else {}
                rows.append(self._row(messages, text) | kept)
        return rows

    def _likely(self, prompt: list[int], written: list[int]) -> Answer:
        """Return what the model found likely at each token of an answer: it reads the answer again, in one go."""
        from tunesmith_engine.answering.likely import likeliest

        self._vocabulary = self._vocabulary or fingerprint(self._tokenizer)
        return stored_column(written, likeliest(self._model, self._compute, prompt, written), self._vocabulary)

    def _tokens(self, messages: Messages) -> list[int]:
        prompt = self._prompts.make(messages, lambda: False)
        assert prompt is not None, "nothing stops it"
        begun = self._tokenizer(END_OF_THINKING, add_special_tokens=False)["input_ids"] if prompt.thinks else []
        tokens = [*prompt.tokens, *begun]
        return tokens if len(tokens) + self._most_tokens <= self._context else []

    def _row(self, messages: Messages, text: str) -> Answer:
        origin = {"synthetic": True, "model": self._folder.name}
        if len(messages) == 1:
            return {"prompt": messages[0]["content"], "completion": text, **origin}
        return {"messages": [*messages, {"role": "assistant", "content": text}], **origin}
