"""Conversations with the model of a run: files in its folder, several of them, each written whole or not at all."""

from __future__ import annotations

import dataclasses
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunesmith_core import datafmt, files
from tunesmith_core.errors import TunesmithError, wrap
from tunesmith_core.json_values import is_number, is_text, is_time
from tunesmith_core.plain_text import one_line, shortened
from tunesmith_core.protocol import JournalReader
from tunesmith_core.runs import Run
from tunesmith_core.sampling import Sampling

VERSION = 1
TITLE_COLUMNS = 60


def system_prompt_of(run: Run) -> str:
    """Return the system prompt that most training rows of a run begin with, or that its settings name; "" for none.

    Raises:
        TunesmithError: for settings or a journal that can't be read.
    """
    journal = JournalReader(run.journal_path)
    found: list[str | None] = []
    # It stands near the beginning of a long journal.
    while not found and (events := journal.read()):
        found = [event.data["system_prompt"] for event in events if "system_prompt" in event.data]
    return (found and found[0]) or run.load_spec().data.system_prompt


@dataclass(slots=True)
class Answer:
    """What one side answered.

    Attributes:
        thinking: what it wrote before the answer proper, "" where it did not think.
        status: "end", "length" (as many tokens as are allowed), "canceled" or "failed".
        tokens: of the answer, thinking included.
        step: of the run whose weights answered.
    """

    text: str = ""
    thinking: str = ""
    status: str = "end"
    tokens: int = 0
    first_s: float = 0.0
    tokens_per_s: float = 0.0
    step: int = 0

    def fold(self, done: dict[str, Any]) -> None:  # Any: JSON values
        """Take the fields of the event "done" into account."""
        self.status = str(done.get("status") or "failed")
        self.tokens = int(done.get("tokens") or 0)
        self.first_s = float(done.get("first_s") or 0.0)
        self.tokens_per_s = float(done.get("tokens_per_s") or 0.0)
        # Who asked while the model was loaded did not know it.
        self.step = int(done.get("step") or self.step)
        self.text, self.thinking = self.text.strip(), self.thinking.strip()


@dataclass(slots=True)
class Turn:
    """A question and the answers to it, by side.

    Attributes:
        others: what was answered before it was asked again, or since, in order.
        place: of `answers` among all of them, from 0.
    """

    question: str
    answers: dict[str, Answer] = field(default_factory=dict)
    others: list[dict[str, Answer]] = field(default_factory=list)
    place: int = 0

    def all_answers(self) -> list[dict[str, Answer]]:
        """Return every round of answers, in order."""
        return [*self.others[: self.place], self.answers, *self.others[self.place :]]

    def showing(self, place: int) -> Turn:
        """Return the turn with another round of its answers as those that count."""
        rounds = self.all_answers()
        return Turn(self.question, rounds[place], rounds[:place] + rounds[place + 1 :], place)


@dataclass(slots=True)
class Conversation:
    """A conversation.

    Attributes:
        id: name of its file.
        title: "" for the beginning of its first question.
        changed_at: seconds since 1970.
        system: the system prompt.
        compares: whether the base model answers too.
    """

    id: str = field(default_factory=lambda: f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}")
    title: str = ""
    changed_at: float = field(default_factory=time.time)
    system: str = ""
    compares: bool = False
    sampling: Sampling = field(default_factory=lambda: Sampling(max_tokens=512))
    turns: list[Turn] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What it is called in a list, "" for one in which nothing was asked."""
        return self.title or shortened(one_line(self.turns[0].question if self.turns else ""), TITLE_COLUMNS)

    def messages(self, side: str) -> list[dict[str, str]]:
        """Return what a side is asked next: each side reads the turns that it answered itself, never the other's."""
        found = [_message("system", self.system)] if self.system else []
        for turn in self.turns[:-1]:
            if side in turn.answers:
                found += [_message("user", turn.question), _message("assistant", turn.answers[side].text)]
        return [*found, _message("user", self.turns[-1].question)]

    def example(self, number: int, side: str, answer: str) -> dict[str, Any]:  # Any: JSON values
        """Return the conversation up to a turn, with an answer to it, as a row of training data."""
        upto = dataclasses.replace(self, turns=self.turns[: number + 1])
        return {"messages": [*upto.messages(side), _message("assistant", answer)]}

    def to_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the conversation as JSON values."""
        return {"version": VERSION, **dataclasses.asdict(self)}

    @staticmethod
    def from_dict(values: Any) -> Conversation:  # Any: JSON values
        """Rebuild a conversation from `to_dict`. Raises ValueError for anything else, UserError for a newer one."""
        if not isinstance(values, dict) or values.get("version") != VERSION:
            raise ValueError("not a conversation of this version")
        try:
            turns = [_turn_of(turn) for turn in values["turns"]]
            kept = {name: values[name] for name in ("id", "title", "changed_at", "system", "compares")}
            conversation = Conversation(**kept, sampling=Sampling.from_dict(values["sampling"]), turns=turns)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a conversation: {error}") from error
        if not conversation._is_sound():
            raise ValueError("not a conversation")
        return conversation

    def _is_sound(self) -> bool:
        rounds = [each for turn in self.turns for each in turn.all_answers()]
        answers = [answer for each in rounds for answer in each.values()]
        texts = [self.id, self.title, self.system, *(turn.question for turn in self.turns)]
        texts += [text for answer in answers for text in (answer.text, answer.thinking, answer.status)]
        numbers = [each for answer in answers for each in (answer.tokens, answer.first_s, answer.tokens_per_s)]
        known = all(0 <= turn.place <= len(turn.others) for turn in self.turns)
        return known and is_time(self.changed_at) and all(map(is_text, texts)) and all(map(is_number, numbers))


def _turn_of(values: Any) -> Turn:  # Any: JSON values
    """Rebuild a turn; those of before were never answered again."""
    answers, *others = (
        {side: Answer(**answer) for side, answer in each.items()}
        for each in (values["answers"], *values.get("others", ()))
    )
    return Turn(values["question"], answers, others, int(values.get("place", 0)))


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def folder_of(run: Run) -> Path:
    """Return where the conversations of a run are."""
    return run.path / "chats"


def load(run: Run) -> list[Conversation]:
    """Return the conversations of a run, the newest first; files that are none are left alone."""
    found = []
    for path in folder_of(run).glob("*.json"):
        try:
            conversation = Conversation.from_dict(files.read_json(path))
        except (OSError, ValueError, TunesmithError):
            continue
        if conversation.id == path.stem:
            found.append(conversation)
    return sorted(found, key=lambda each: each.changed_at, reverse=True)


def save(run: Run, conversation: Conversation) -> None:
    """Write a conversation; after a crash the old or the new one is there. Raises TunesmithError as `wrap`."""
    try:
        folder = files.private_folder(folder_of(run))
        files.atomic_write_json(folder / f"{conversation.id}.json", conversation.to_dict())
    except OSError as error:
        raise wrap(error) from error


def delete(run: Run, conversation: Conversation) -> None:
    """Delete a conversation that may be gone already. Raises TunesmithError as `wrap`."""
    try:
        files.remove(folder_of(run) / f"{conversation.id}.json")
    except OSError as error:
        raise wrap(error) from error


def append_example(path: Path, example: dict[str, Any]) -> int:  # Any: JSON values
    """Append a row to a JSONL file, laid out as the rows that it has; return how many it has then.

    Raises:
        UserError: `usage` when its rows have no place for this conversation, or what `datafmt.sniff` says of the file.
        TunesmithError: as `wrap`.
    """
    try:
        has_rows = path.exists() and path.stat().st_size > 0
        return files.append_json_line(path, _laid_out_as(path, example) if has_rows else example)
    except OSError as error:
        raise wrap(error) from error


def _laid_out_as(path: Path, example: dict[str, Any]) -> dict[str, Any]:  # Any: JSON values
    """Return a conversation in the layout of a file's rows; one that differs would spoil the whole file."""
    found = datafmt.sniff(path)
    roles, messages = found.mapping, example["messages"]
    if found.format == "messages":
        return {roles["messages"]: messages}
    is_one_question = [message["role"] for message in messages] == ["user", "assistant"]
    if found.format == "prompt-completion" and is_one_question and len(found.columns) == len(roles):
        return {roles["prompt"]: messages[0]["content"], roles["completion"]: messages[1]["content"]}
    raise TunesmithError(
        "usage",
        "{path} holds rows of another kind ({columns}); this conversation can't stand among them.",
        hint="Save the example under a new name. The file stays as it is.",
        path=path,
        columns=", ".join(found.columns),
    )
