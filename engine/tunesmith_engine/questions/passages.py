"""Documents as passages of some hundred tokens, cut at headings, paragraphs and sentences. Nothing here loads PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tunesmith_core.datafmt import Text
from tunesmith_core.datafmt.documents import HEADING
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.questions import PassagesSpec
from tunesmith_core.operations.limits import Portions
from tunesmith_engine.data.example import Example
from tunesmith_engine.data.parts import parts
from tunesmith_engine.data.read import Source
from tunesmith_engine.data.tokenising import CHARACTERS_PER_S, Tokenised
from tunesmith_engine.model.foreign import reading

NAME = "passages.jsonl"

LEAST_LETTERS = 20
"""Of a passage that is worth a question: page numbers and lone titles have fewer."""

LANGUAGE_CHARACTERS = 2000
"""By which the language of a passage is told."""

PLACES = ("page", "part", "row", "line")
"""What `Source.place` counts in."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a document.

    Attributes:
        document: its file, beginning with the name of the file, folder or archive that was chosen.
        place: where it begins: a word of PLACES and a number.
        text: what it says.
        language: code of ISO 639-1, "" when it can't be told.
    """

    document: str
    place: str
    text: str
    language: str = ""


@dataclass(slots=True)
class _Open:
    """A passage that grows."""

    first: Passage
    texts: list[str] = field(default_factory=list)
    num_tokens: int = 0


def cut_passages(host: Host, spec: PassagesSpec, tokenizer: Any) -> dict[str, int]:  # Any: a transformers tokenizer
    """Write the passages of documents into the folder of the operation; return how many there are.

    Args:
        host: of the limited process.
        spec: which documents.
        tokenizer: counts their tokens.

    Raises:
        UserError: what is wrong with a file; `usage` for one that holds chats; `dataset-empty` without any passage.
    """
    sources = [Source(each, skip_bad_rows=True, portions=host.portions) for each in spec.run.data.sources]
    number = 0
    with (host.folder / NAME).open("w", encoding="utf-8", errors="replace", newline="\n") as file:
        for source in sources:
            found = together(_pieces(source), _splitter(tokenizer, spec.most_tokens, host.portions), spec.most_tokens)
            for passage in found:
                file.write(json.dumps(asdict(replace(passage, language=language_of(passage.text)))) + "\n")
                number += 1
                if number % 100 == 0:
                    host.phase("reading", number, 0, "passages")
    if not number:
        path = spec.run.data.sources[0].path
        raise TunesmithError("dataset-empty", "{path}: no passage is long enough to ask about.", path=path)
    return {"num_passages": number, "num_bad": sum(source.num_skipped_rows for source in sources)}


def read_passages(path: Path) -> Iterator[Passage]:
    """Yield the passages of a file that `cut_passages` wrote."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield Passage(**json.loads(line))


def _pieces(source: Source) -> Iterator[Passage]:
    for number, conversation in source.conversations():
        if not isinstance(conversation, Text):
            raise TunesmithError(
                "usage",
                "{path} holds questions or chats. Questions are written about documents.",
                hint="Choose a text, Markdown, HTML, Word or PDF file, or a folder or ZIP archive of such files.",
                path=source.path,
            )
        yield Passage(*_named(source, number), conversation.text)


def _named(source: Source, number: int) -> tuple[str, str]:
    """Return document and place of a row."""
    values = getattr(source.place(number), "values", {})
    document, parent = str(values.get("path", source.path)), f"{source.path.parent}"
    word = next(word for word in PLACES if word in values)
    return document.removeprefix(parent).lstrip("/\\"), f"{word} {values[word]}"


def _splitter(
    tokenizer: Any, most_tokens: int, portions: Portions
) -> Callable[[str], list[Tokenised]]:  # Any: as above
    """Return what cuts a text into parts of so many tokens."""

    def split(text: str) -> list[Tokenised]:
        portions.begin("tokenizer", more_cpu_s=len(text) / CHARACTERS_PER_S)
        with reading(Path(tokenizer.name_or_path), "the tokenizer can't split the rows into tokens"):
            encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids = np.array(encoded["input_ids"], dtype=np.int32)
        ends = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2)[:, 1]
        return parts(Tokenised(Example(ids, ids), text, ends, is_text=True), most_tokens)

    return split


def together(
    pieces: Iterable[Passage], split: Callable[[str], list[Tokenised]], most_tokens: int
) -> Iterator[Passage]:
    """Yield passages of many pieces: short ones follow each other in one, long ones become several.

    Args:
        pieces: of documents, in order.
        split: cuts a text into parts that are short enough.
        most_tokens: of a passage.
    """
    grown: _Open | None = None
    for piece in pieces:
        for part in split(piece.text):
            num_tokens = len(part.example.input_ids)
            if grown and _ends(grown, piece, part.text, grown.num_tokens + num_tokens, most_tokens):
                yield from _closed(grown)
                grown = None
            grown = grown or _Open(piece)
            grown.texts.append(part.text.strip())
            grown.num_tokens += num_tokens
    if grown:
        yield from _closed(grown)


def _ends(grown: _Open, piece: Passage, text: str, num_tokens: int, most_tokens: int) -> bool:
    """Return whether a passage ends before a text with which it would have so many tokens."""
    is_section = HEADING.match(text) is not None and grown.num_tokens >= most_tokens // 2
    return piece.document != grown.first.document or num_tokens > most_tokens or is_section


def _closed(grown: _Open) -> Iterator[Passage]:
    text = "\n\n".join(filter(None, grown.texts))
    if sum(map(str.isalnum, text)) >= LEAST_LETTERS:
        yield replace(grown.first, text=text)


def language_of(text: str) -> str:
    """Return the language of a text as a code of ISO 639-1, "" when it can't be told."""
    # Imported here, because older environments lack the library.
    from py3langid import classify

    from tunesmith_engine.desk.languages import NO_LANGUAGE

    code = str(classify(text[:LANGUAGE_CHARACTERS])[0])
    return "" if code == NO_LANGUAGE else code
