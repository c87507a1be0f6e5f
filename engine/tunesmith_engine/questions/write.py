"""Writes questions and answers about documents with a local model, passage by passage; what is done stays done."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tunesmith_core import environments, files, paths
from tunesmith_core.answering import check_room
from tunesmith_core.errors import TunesmithError
from tunesmith_core.locks import FileLock
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.model_library import context_length
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.questions import MOST_QUESTIONS, PASSAGES, PassagesSpec, QuestionsSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.sampling import Sampling
from tunesmith_core.spec import RunSpec
from tunesmith_engine.chat.prompting import Prompts
from tunesmith_engine.desk.writing import check_targets
from tunesmith_engine.model.folder import model_folder
from tunesmith_engine.questions.asking import TOKENS_OF_A_PAIR, beginning, request
from tunesmith_engine.questions.passages import NAME, Passage, read_passages
from tunesmith_engine.questions.reply import pairs_of
from tunesmith_engine.questions.written import Written

PASSAGE_TOKENS, LEAST_PASSAGE_TOKENS = 400, 64
"""Of a passage: some paragraphs, from which a small model picks; and where less room is left, nothing can be asked."""

PROMPT_TOKENS, USUAL_CONTEXT = 400, 2048
"""Room for what is asked for, and for all where the model does not say."""

TOGETHER = {"cuda": 8, "cpu": 4}
"""Passages that are asked about at once; what is stopped loses so many."""

SAMPLING = Sampling(temperature=0.3, top_p=0.9)
"""The questions of a passage differ more than with the most likely tokens, and answers keep to the text."""

LOCK_WAIT_S = 15.0

Answer = dict[str, Any]  # Any: JSON values


def write_questions(host: Host, spec: QuestionsSpec) -> Answer:
    """Write the file; return where it is and what became of the passages.

    Raises:
        UserError: `usage` for a target that can't be written or a number that can't be asked for;
            `dataset-chat-template-missing` for a model that is not made for chats; what is wrong with the documents;
            `questions-none` when nothing could be read as question and answer.
        TunesmithError: what loading a model finds.
    """
    _check(Path(spec.target), spec)
    folder = model_folder(spec.run.model)
    with alone(Path(spec.target)):
        return _written(host, spec, folder)


@contextlib.contextmanager
def alone(target: Path) -> Iterator[None]:
    """Write a file while nobody else does; one that was stopped may need a moment to end."""
    digest = hashlib.sha256(os.path.realpath(target).encode("utf-8", "surrogateescape")).hexdigest()
    lock = FileLock(paths.locks_dir() / f"questions-{digest[:16]}.lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.waiting(LOCK_WAIT_S))
        except TimeoutError as error:
            raise TunesmithError(
                "usage",
                "Another process is writing {path}.",
                hint="Wait until it has ended, or choose another name.",
                path=target,
            ) from error
        yield


def _written(host: Host, spec: QuestionsSpec, folder: Path) -> Answer:
    target = Path(spec.target)
    most_tokens = _passage_tokens(folder, spec.number)
    check_room(spec.run, read_model_card(folder))
    host.phase("reading")
    read = _read(host, PassagesSpec(spec.run, AbsolutePath(str(folder)), most_tokens))
    path = host.folder / NAME
    decides = [files.sha256_file(path), str(folder), spec.number, spec.seed]
    key = hashlib.sha256(repr(decides).encode()).hexdigest()
    with Written(target, key, read["num_passages"], overwrite=spec.overwrite) as written:
        if written.next < read["num_passages"]:
            host.phase("model")
            with Writer(spec, folder) as writer:
                _write(host, written, writer, read["num_passages"], path)
        written.finish()
    if not written.counts["rows"]:
        target.unlink()
        raise TunesmithError(
            "questions-none",
            "{model} wrote nothing that can be read as a question and its answer.",
            model=folder.name,
        )
    return {"path": str(target), "passages": written.next, "unread_rows": read["num_bad"], **written.counts}


def _check(target: Path, spec: QuestionsSpec) -> None:
    if target.suffix.lower() != ".jsonl":
        raise TunesmithError("usage", "The name of {path} must end in .jsonl.", path=target)
    if not 1 <= spec.number <= MOST_QUESTIONS:
        words = "{number} questions per passage is not between 1 and {most}."
        raise TunesmithError("usage", words, number=spec.number, most=MOST_QUESTIONS)
    # Whether it may be replaced is seen once it is known whether it is an unfinished one.
    check_targets([target], spec.run.data.sources, overwrite=True)


def _passage_tokens(folder: Path, number: int) -> int:
    if not read_model_card(folder).has_chat_template:
        raise TunesmithError(
            "dataset-chat-template-missing",
            "{path} has no chat template.",
            hint="Choose an instruct model. A base model can't follow the request to write questions.",
            path=folder,
        )
    context = context_length(folder) or USUAL_CONTEXT
    room = context - number * TOKENS_OF_A_PAIR - PROMPT_TOKENS
    if room < LEAST_PASSAGE_TOKENS:
        raise TunesmithError(
            "usage",
            "{path} reads at most {most:,} tokens, too few for {number} questions per passage.",
            hint="Ask for fewer questions, or choose a model with a longer context.",
            path=folder,
            most=context,
            number=number,
        )
    return min(PASSAGE_TOKENS, room)


def _read(host: Host, spec: PassagesSpec) -> dict[str, int]:
    """Put the passages into the folder of this operation; a limited process reads the documents."""
    outcome = conduct(
        PASSAGES,
        spec,
        command=lambda operation: environments.own_command("tunesmith_engine", "operation", str(operation.path)),
        take=lambda folder, answer: (shutil.move(folder / NAME, host.folder / NAME), answer)[1],
    )
    read: dict[str, int] = outcome.get()
    return read


def _write(host: Host, written: Written, writer: Writer, total: int, path: Path) -> None:
    """Write what is missing, and tell how far it is."""
    host.phase("writing")
    first, began_s = written.next, time.monotonic()
    remaining = islice(read_passages(path), first, None)
    while passages := list(islice(remaining, writer.together)):
        written.add(writer.rows(passages, written), len(passages))
        rate = (written.next - first) / max(time.monotonic() - began_s, 1e-6)
        host.event(
            "progress",
            name="writing",
            done_bytes=written.next,
            total_bytes=total,
            questions=written.counts["rows"],
            passages_per_s=rate,
            remaining_s=(total - written.next) / rate,
        )


class _Grown:
    """Replies that grow: many models write questions until they may not any more."""

    def __init__(self, tokenizer: Any, begun: Sequence[str], number: int) -> None:  # Any: a transformers tokenizer
        self._tokenizer, self._begun, self._number = tokenizer, begun, number
        self._tokens: list[list[int]] = [[] for _ in begun]
        self._enough: set[int] = set()

    def take(self, row: int, tokens: list[int]) -> None:
        """Take the next tokens of a reply."""
        self._tokens[row] += tokens
        text = self._begun[row] + self._tokenizer.decode(self._tokens[row], skip_special_tokens=True)
        if len(pairs_of(text)) > self._number:
            self._enough.add(row)

    def are_enough(self) -> bool:
        """Return whether all replies have begun one question more than was asked for."""
        return len(self._enough) == len(self._begun)


class Writing:
    """A loaded model that writes; a context manager."""

    def __init__(self, run: RunSpec, folder: Path) -> None:
        self._folder = folder
        self._prompts = Prompts(folder, run.model.chat_template)
        try:
            self._load(run)
        except BaseException:
            self._prompts.close()
            raise

    def _load(self, run: RunSpec) -> None:
        # Imported here: PyTorch takes seconds, in which the process that makes prompts starts.
        from tunesmith_engine.decode import end_tokens, open_decoder
        from tunesmith_engine.model.folder import load_tokenizer
        from tunesmith_engine.model.load import load_model
        from tunesmith_engine.model.trained_model import inference_compute

        compute = inference_compute(run)
        self._tokenizer = load_tokenizer(self._folder, run.model.chat_template)
        kind = run.quantization.kind
        model = load_model(self._folder, compute, four_bit=kind == "nf4", eight_bit=kind == "int8").eval()
        self._ends = end_tokens(model, self._tokenizer)
        self._model, self._compute = model, compute
        self._decoder = open_decoder(model, compute)
        # One way answers row by row, so nothing is gained by asking about more than one.
        self.together = 1 if self._decoder.name == "plain" else TOGETHER[compute.device.type]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._prompts.close()


class Writer(Writing):
    """A loaded model that is asked about passages."""

    def __init__(self, spec: QuestionsSpec, folder: Path) -> None:
        self._spec = spec
        super().__init__(spec.run, folder)

    def rows(self, passages: Sequence[Passage], written: Written) -> list[Answer]:
        """Return the rows of some passages that come next, and count what is left out."""
        number = self._spec.number
        sampling = replace(
            SAMPLING, max_tokens=number * TOKENS_OF_A_PAIR, seed=self._spec.seed + written.next
        )
        begun = [self._begun(passage) for passage in passages]
        grown = _Grown(self._tokenizer, [words for _, words in begun], number)
        replies = self._decoder.generate(
            [tokens for tokens, _ in begun],
            sampling,
            self._ends,
            on_tokens=grown.take,
            should_stop=grown.are_enough,
        )
        rows: list[Answer] = []
        for passage, (_, words), tokens in zip(passages, begun, replies, strict=True):
            text = words + self._tokenizer.decode(tokens, skip_special_tokens=True)
            rows += self._kept(passage, text, len(tokens) < sampling.max_tokens, written)
        return rows

    def _begun(self, passage: Passage) -> tuple[list[int], str]:
        """Return what a model continues, and the part of it that belongs to its reply."""
        prompt = self._prompts.make(request(passage, self._spec.number), lambda: False)
        assert prompt is not None, "nothing stops it"
        words = beginning(passage, thinks=prompt.thinks)
        begun = self._tokenizer(words, add_special_tokens=False)["input_ids"]
        return [*prompt.tokens, *begun], words

    def _kept(self, passage: Passage, text: str, is_whole: bool, written: Written) -> list[Answer]:
        pairs = pairs_of(text, is_whole=is_whole)[: self._spec.number]
        written.counts["unread"] += not pairs
        asked = [pair for pair in pairs if not pair.is_empty]
        new = [pair for pair in asked if written.is_new(pair)]
        written.counts["empty"] += len(pairs) - len(asked)
        written.counts["duplicates"] += len(asked) - len(new)
        written.counts["silent"] += not new
        return [
            {
                "question": pair.question,
                "answer": pair.answer,
                "passage": passage.text,
                "document": passage.document,
                "place": passage.place,
                "synthetic": True,
                "model": self._folder.name,
            }
            for pair in new
        ]
