"""Writing questions: rows as they come, what can't be read left out and counted, stopped and continued."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine.prepared import conduct_here
from tests.tiny_model import build_tiny_model
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.questions import Begun, QuestionsSpec, begun, note_path
from tunesmith_core.protocol import Event, read_journal
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.chat.prompting import Prompt
from tunesmith_engine.questions import write as module
from tunesmith_engine.questions.write import write_questions

NUM_SECTIONS = 6


@dataclass
class Model:
    """Stands for decoder and prompts: answers passage by passage as a test says.

    Attributes:
        replies: what is written about a passage, by its number.
        asked: numbers of the passages that were asked about, and with which seed.
        thinks: whether the template lets it think first.
    """

    replies: Callable[[int], str]
    tokenizer: Any = None
    asked: list[tuple[list[int], int]] = field(default_factory=list)
    thinks: bool = False
    begun: list[str] = field(default_factory=list)

    def make(self, messages: list[dict[str, str]], _should_stop: object) -> Prompt:
        return Prompt(self.tokenizer(messages[0]["content"])["input_ids"], self.thinks)

    def close(self) -> None:
        """Nothing to end."""

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Any, _ends: object, *, on_tokens: Any, should_stop: Any
    ) -> list[list[int]]:
        texts = [self.tokenizer.decode(prompt) for prompt in prompts]
        self.begun += [text.rpartition('"A:".')[2] for text in texts]
        numbers = [int(re.findall(r"# Section (\d+)", text)[0]) for text in texts]
        self.asked.append((numbers, sampling.seed))
        replies = []
        for row, number in enumerate(numbers):
            written: list[int] = []
            for token in self.tokenizer(self.replies(number))["input_ids"]:
                if len(written) == sampling.max_tokens or (len(numbers) == 1 and should_stop()):
                    break
                written.append(token)
                on_tokens(row, [token])
            replies.append(written)
        return replies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose context has room for what is asked."""
    made = build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")
    config = json.loads((made / "config.json").read_text())
    (made / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    return made


@pytest.fixture
def spec(tmp_path: Path, folder: Path) -> QuestionsSpec:
    path = tmp_path / "garden.md"
    text = "The garden lies on a hill above the river, and roses grow there. " * 5
    path.write_text("".join(f"# Section {number}\n\n{text}\n\n" for number in range(NUM_SECTIONS)), "utf-8")
    run = RunSpec()
    run.model.path, run.data.sources = str(folder), [SourceSpec(path=str(path))]
    return QuestionsSpec(run, AbsolutePath(str(tmp_path / "out.jsonl")), 2, 7)


Write = Callable[..., tuple[dict[str, Any], list[dict[str, Any]], list[Event]]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Write:
    """Writes with a scripted model, so many passages at once; gives the answer, the rows and the events."""
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def conduct(kind: Any, spec: Any, **options: Any) -> Any:
        return conduct_here(kind, spec, on_event=lambda _event: None, **options)

    monkeypatch.setattr(module, "conduct", conduct)

    def write(
        spec: QuestionsSpec, model: Model, together: int = 1
    ) -> tuple[dict[str, Any], list[dict[str, Any]], list[Event]]:
        model.tokenizer = tokenizer

        def load(writer: Any, _run: RunSpec) -> None:
            writer._tokenizer, writer._decoder, writer._ends = tokenizer, model, frozenset()
            writer.together = together

        monkeypatch.setattr(module, "Prompts", lambda *_arguments: model)
        monkeypatch.setattr(module.Writer, "_load", load)
        operation = Path(tempfile.mkdtemp(dir=tmp_path))
        with Host(Operation(operation)) as host:
            answer = write_questions(host, spec)
        rows = [json.loads(line) for line in Path(spec.target).read_text(encoding="utf-8").splitlines()]
        return answer, rows, list(read_journal(Operation(operation).journal_path))

    return write


def two(number: int) -> str:
    return f" Who is {number}?\nA: It is {number}.\nQ: Why {number}?\nA: Because."


def test_rows_say_where_they_come_from(write: Write, spec: QuestionsSpec) -> None:
    model = Model(two)
    answer, rows, told = write(spec, model)
    assert answer == {
        "path": spec.target, "passages": 6, "rows": 12, "empty": 0, "duplicates": 0, "unread": 0, "silent": 0,
        "unread_rows": 0,
    }  # fmt: skip
    assert [row["question"] for row in rows[:3]] == ["Who is 0?", "Why 0?", "Who is 1?"]
    passage = rows[2].pop("passage")
    assert passage.startswith("# Section 1\n\nThe garden lies")
    assert rows[2] == {
        "question": "Who is 1?", "answer": "It is 1.", "document": "garden.md", "place": "line 5", "synthetic": True,
        "model": "tiny",
    }  # fmt: skip
    assert not note_path(Path(spec.target)).exists()
    assert model.begun == ["Q:"] * 6
    (last,) = [event.data for event in told if event.type == "progress"][-1:]
    assert (last["done_bytes"], last["total_bytes"], last["questions"], last["remaining_s"]) == (6, 6, 12, 0.0)


def test_what_can_not_be_used_is_left_out_and_counted(write: Write, spec: QuestionsSpec) -> None:
    more = two(2) + "\nQ: More?\nA: Yes.\nQ: And?"
    replies = ["no idea", " ...\nA: nothing", two(2), more, two(4), " Who? A: " + "m" * 500]
    answer, rows, _ = write(spec, Model(replies.__getitem__), together=6)
    assert [row["answer"] for row in rows] == ["It is 2.", "Because.", "It is 4.", "Because."]
    assert {name: answer[name] for name in ("unread", "empty", "duplicates", "silent")} == {
        "unread": 1, "empty": 2, "duplicates": 2, "silent": 4,
    }  # fmt: skip


def test_a_model_that_writes_on_is_stopped(write: Write, spec: QuestionsSpec) -> None:
    lengths: list[int] = []

    class Counting(Model):
        def generate(self, *arguments: Any, **options: Any) -> list[list[int]]:
            found = super().generate(*arguments, **options)
            lengths.extend(map(len, found))
            return found

    _, rows, _ = write(spec, Counting(lambda number: "".join(f" Who {number}{n}?\nA: I.\nQ:" for n in range(90))))
    assert len(rows) == 12
    assert max(lengths) < 60, "three questions of about 18 letters"


def test_it_does_not_think_first(write: Write, spec: QuestionsSpec) -> None:
    model = Model(two, thinks=True)
    assert len(write(spec, model)[1]) == 12
    assert model.begun[0] == "\n\n</think>\n\nQ:"


@pytest.mark.parametrize("together", [1, 2])
def test_what_was_stopped_is_continued_as_if_nothing_had_happened(
    write: Write, spec: QuestionsSpec, tmp_path: Path, together: int
) -> None:
    def stops(number: int) -> str:
        if number == 3:
            raise KeyboardInterrupt
        return two(number)

    with pytest.raises(KeyboardInterrupt):
        write(spec, Model(stops), together)
    target = Path(spec.target)
    done = 3 // together * together
    assert len(target.read_text().splitlines()) == 2 * done
    assert begun(target) == Begun(2 * done, done, 6)
    with target.open("a") as file:
        file.write('{"question": "torn')
    model = Model(two)
    answer, rows, told = write(spec, model, together)
    assert [number for numbers, _ in model.asked for number in numbers] == list(range(done, 6))
    assert [seed for _, seed in model.asked] == [7 + first for first in range(done, 6, together)]
    assert answer["rows"] == len(rows) == 12
    progress = [event.data["done_bytes"] for event in told if event.type == "progress"]
    assert progress[0] == done + together
    whole = tmp_path / "whole.jsonl"
    _, expected, _ = write(QuestionsSpec(spec.run, AbsolutePath(str(whole)), 2, 7), Model(two), together)
    assert rows == expected


def test_a_duplicate_is_known_after_a_stop(write: Write, spec: QuestionsSpec) -> None:
    def stops(number: int) -> str:
        if number == 1:
            raise KeyboardInterrupt
        return two(0)

    with pytest.raises(KeyboardInterrupt):
        write(spec, Model(stops))
    answer, rows, _ = write(spec, Model(lambda _number: two(0)))
    assert (len(rows), answer["duplicates"]) == (2, 10)


def test_a_file_that_is_there_is_kept(write: Write, spec: QuestionsSpec) -> None:
    write(spec, Model(two))
    before = Path(spec.target).read_bytes()
    with pytest.raises(TunesmithError, match="already exists"):
        write(spec, Model(two))
    assert Path(spec.target).read_bytes() == before
    again = QuestionsSpec(spec.run, spec.target, 1, 7, overwrite=True)
    assert len(write(again, Model(two))[1]) == 6


@pytest.mark.parametrize("note", ["", '{"version": 99}', "no json"])
def test_an_unfinished_file_of_other_settings_is_not_continued(write: Write, spec: QuestionsSpec, note: str) -> None:
    def stops(number: int) -> str:
        if number == 1:
            raise KeyboardInterrupt
        return two(number)

    with pytest.raises(KeyboardInterrupt):
        write(spec, Model(stops))
    other = QuestionsSpec(spec.run, spec.target, 2, 8)
    with pytest.raises(TunesmithError, match="begun with other documents or settings"):
        write(other, Model(two))
    note_path(Path(spec.target)).write_text(note)
    with pytest.raises(TunesmithError, match="already exists"):
        write(spec, Model(two))


def test_a_model_that_writes_nothing_leaves_nothing(write: Write, spec: QuestionsSpec) -> None:
    with pytest.raises(TunesmithError) as caught:
        write(spec, Model(lambda _number: "I can't."))
    assert caught.value.code == "questions-none"
    assert not Path(spec.target).exists()
    assert not note_path(Path(spec.target)).exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "out.csv"}, "must end in .jsonl"),
        ({"target": "gone/out.jsonl"}, "is missing"),
        ({"number": 0}, "not between 1 and 20"),
        ({"number": 21}, "not between 1 and 20"),
    ],
)
def test_what_can_not_be_asked_for_is_refused(
    write: Write, spec: QuestionsSpec, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    target = AbsolutePath(str(tmp_path / changes.get("target", "out.jsonl")))
    with pytest.raises(TunesmithError, match=said):
        write(QuestionsSpec(spec.run, target, changes.get("number", 2)), Model(two))


@pytest.mark.parametrize(
    ("changed", "said"), [("context", "reads at most 300 tokens"), ("template", "no chat template")]
)
def test_a_model_that_can_not_follow_is_refused(
    write: Write, spec: QuestionsSpec, tmp_path: Path, changed: str, said: str
) -> None:
    made = build_tiny_model(tmp_path / "tiny")
    if changed == "context":
        config = json.loads((made / "config.json").read_text())
        (made / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 300}))
    else:
        (made / "chat_template.jinja").unlink(missing_ok=True)
    spec.run.model.path = str(made)
    with pytest.raises(TunesmithError, match=said):
        write(spec, Model(two))


def test_two_never_write_one_file(write: Write, spec: QuestionsSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_WAIT_S", 0.1)
    with (
        module.alone(Path(spec.target)),
        pytest.raises(TunesmithError, match="Another process is writing"),
    ):
        write(spec, Model(two))
    assert len(write(spec, Model(two))[1]) == 12
