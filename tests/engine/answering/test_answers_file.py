"""A file of answers: one for each prompt of the data, what can't be used left out, stopped and continued."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.engine.prepared import conduct_here
from tests.tiny_model import build_tiny_model
from tunesmith_core import datafmt
from tunesmith_core.datafmt import Chat, Preference, PromptCompletion, Stepped, Text
from tunesmith_core.datafmt.formats import Layout
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.answers import AnswersSpec
from tunesmith_core.operations.kinds.questions import note_path
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.answering import write as module
from tunesmith_engine.answering.likely import likeliest
from tunesmith_engine.answering.prompts import prompt_of
from tunesmith_engine.answering.write import write_answers
from tunesmith_engine.chat.prompting import Prompt
from tunesmith_engine.data.stored import fingerprint
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.load import load_model
from tunesmith_engine.questions import write as questions

USER, SYSTEM = {"role": "user", "content": "Who?"}, {"role": "system", "content": "Be kind."}
ANSWER = {"role": "assistant", "content": "Me."}


@dataclass
class Model:
    """Stands for decoder and prompts: answers as a test says.

    Attributes:
        reply: what is written to the tokens of a prompt, read as text.
        asked: these texts.
    """

    reply: Callable[[str], str]
    tokenizer: Any = None
    thinks: bool = False
    asked: list[str] = field(default_factory=list)

    def make(self, messages: list[dict[str, str]], _should_stop: object) -> Prompt:
        return Prompt(self.tokenizer(messages[-1]["content"])["input_ids"], self.thinks)

    def close(self) -> None:
        """Nothing to end."""

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Any, ends: frozenset[int], *, keeps_end: bool
    ) -> list[list[int]]:
        assert keeps_end
        texts = [self.tokenizer.decode(prompt) for prompt in prompts]
        self.asked += texts
        assert sampling.temperature == 0, "the most likely answer"
        replies = [self.tokenizer(self.reply(text))["input_ids"] for text in texts]
        # As a decoder, which stops where it has to.
        return [[*reply, *ends][: sampling.max_tokens] for reply in replies]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def spec(tmp_path: Path, folder: Path) -> AnswersSpec:
    path = tmp_path / "rows.jsonl"
    rows: list[dict[str, Any]] = [{"prompt": f"Question {number}?", "completion": "old"} for number in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0]]), encoding="utf-8")
    run = RunSpec()
    run.model.path, run.data.sources = str(folder), [SourceSpec(path=str(path))]
    return AnswersSpec(run, AbsolutePath(str(tmp_path / "out.jsonl")), 16)


Write = Callable[..., tuple[dict[str, Any], list[dict[str, Any]]]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Write:
    """Writes with a scripted model; gives the answer and the rows."""
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def conduct(kind: Any, spec: Any, **options: Any) -> Any:
        return conduct_here(kind, spec, on_event=lambda _event: None, **options)

    monkeypatch.setattr(module, "conduct", conduct)

    def write(spec: AnswersSpec, model: Model) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        model.tokenizer = tokenizer

        def load(writer: Any, _run: RunSpec) -> None:
            writer._tokenizer, writer._decoder, writer.together = tokenizer, model, 2
            writer._ends = frozenset({tokenizer.eos_token_id})
            writer._compute = choose_compute(RunSpec())
            writer._model = load_model(folder, writer._compute, four_bit=False).eval()

        monkeypatch.setattr(questions, "Prompts", lambda *_arguments: model)
        monkeypatch.setattr(questions.Writing, "_load", load)
        with Host(Operation(Path(tempfile.mkdtemp(dir=tmp_path)))) as host:
            answer = write_answers(host, spec)
        return answer, [json.loads(line) for line in Path(spec.target).read_text(encoding="utf-8").splitlines()]

    return write


def test_each_prompt_is_answered_once(write: Write, spec: AnswersSpec) -> None:
    answer, rows = write(spec, Model(lambda text: f"To {text[9]}"))
    counts = {"rows": 5, "empty": 0, "unread": 0, "silent": 0}
    assert answer == {"path": spec.target, "prompts": 5, "left_out": 1, **counts}
    assert rows[3] == {"prompt": "Question 3?", "completion": "To 3", "synthetic": True, "model": "tiny"}
    assert not note_path(Path(spec.target)).exists()
    layout = datafmt.resolve_layout(rows, "auto", {}, "out.jsonl")
    assert layout.format == "prompt-completion", "they are trained as any prompts with responses"


def test_what_the_model_finds_likely_is_kept_beside_an_answer(write: Write, spec: AnswersSpec, folder: Path) -> None:
    model = Model(lambda _text: "Yes.")
    _, rows = write(replace(spec, keeps_logprobs=True), model)
    tokenizer = model.tokenizer
    kept = rows[2]["logprobs"]
    assert kept["vocabulary"] == fingerprint(tokenizer)
    assert kept["token_ids"] == [*tokenizer("Yes.")["input_ids"], tokenizer.eos_token_id], "with the end of the answer"
    assert [len(each) for each in kept["top_ids"]] == [16] * 5
    # The second token is found as likely as by the model itself.
    ids = torch.tensor([tokenizer("Question 2?Y")["input_ids"]])
    expected = load_model(folder, choose_compute(RunSpec()), four_bit=False).eval()(ids).logits[0, -1].log_softmax(-1)
    best = expected.topk(16)
    assert kept["top_ids"][1] == best.indices.tolist()
    assert kept["top_logprobs"][1] == pytest.approx(best.values.tolist(), abs=1e-3)
    found = datafmt.stored_answer(
        rows[2], Layout("prompt-completion", {"logprobs": "logprobs"}), PromptCompletion("", "Yes."), "row 3"
    )
    assert (found.text, found.tokens, found.vocabulary) == ("Yes.", tuple(kept["token_ids"]), kept["vocabulary"])
    with pytest.raises(TunesmithError, match="already exists"):
        write(spec, model)


def test_a_token_that_is_all_but_certain_is_kept_alone() -> None:
    class Sure(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, use_cache: bool) -> Any:
            logits = torch.zeros(1, input_ids.shape[1], 40)
            logits[..., 7] = 30.0
            return SimpleNamespace(logits=logits)

    ((best, *others), _) = likeliest(Sure(), choose_compute(RunSpec()), [1], [7, 2])
    assert best[0] == 7
    assert best[1] == pytest.approx(0.0, abs=1e-6)
    assert not others


def test_what_can_not_be_used_is_left_out_and_counted(write: Write, spec: AnswersSpec) -> None:
    long = "x" * 600
    with Path(spec.run.data.sources[0].path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"prompt": long, "completion": "old"}) + "\n")
    replies = {"0": "m" * 99, "1": " "}
    answer, rows = write(spec, Model(lambda text: replies.get(text[9], "Yes.")))
    assert {name: answer[name] for name in ("rows", "empty", "unread", "silent")} == {
        "rows": 3, "empty": 1, "unread": 1, "silent": 1,
    }  # fmt: skip
    assert [row["prompt"] for row in rows] == ["Question 2?", "Question 3?", "Question 4?"]


def test_a_model_does_not_think_first(write: Write, spec: AnswersSpec) -> None:
    model = Model(lambda _text: "Yes.", thinks=True)
    write(spec, model)
    assert model.asked[0].endswith("</think>\n\n")


def test_what_was_stopped_is_continued(write: Write, spec: AnswersSpec) -> None:
    def stops(text: str) -> str:
        if "2" in text:
            raise KeyboardInterrupt
        return "Yes."

    with pytest.raises(KeyboardInterrupt):
        write(spec, Model(stops))
    model = Model(lambda _text: "No.")
    answer, rows = write(spec, model)
    assert (answer["rows"], [row["completion"] for row in rows]) == (5, ["Yes.", "Yes.", "No.", "No.", "No."])
    assert len(model.asked) == 3
    with pytest.raises(TunesmithError, match="already exists"):
        write(spec, model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "answers.csv"}, "must end in .jsonl"),
        ({"most_tokens": 0}, "can't be asked for"),
        ({"most_tokens": 512}, "reads at most 512 tokens"),
    ],
)
def test_what_can_not_be_asked_for_is_named(
    changes: dict[str, Any], words: str, write: Write, spec: AnswersSpec, tmp_path: Path
) -> None:
    if "target" in changes:
        changes = {"target": AbsolutePath(str(tmp_path / changes["target"]))}
    values = {"run": spec.run, "target": spec.target, "most_tokens": spec.most_tokens} | changes
    with pytest.raises(TunesmithError, match=words):
        write(AnswersSpec(**values), Model(str))


def test_no_answer_at_all_leaves_no_file(write: Write, spec: AnswersSpec) -> None:
    with pytest.raises(TunesmithError, match="answered none of the prompts"):
        write(spec, Model(lambda _text: ""))
    assert not Path(spec.target).exists()


def test_a_base_model_is_refused(write: Write, spec: AnswersSpec, folder: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path in folder.iterdir():
        if path.name != "chat_template.jinja":
            (bare / path.name).write_bytes(path.read_bytes())
    spec.run.model.path = str(bare)
    with pytest.raises(TunesmithError, match="has no chat template"):
        write(spec, Model(str))


@pytest.mark.parametrize(
    ("conversation", "prompt"),
    [
        (Chat((SYSTEM, USER, ANSWER)), [SYSTEM, USER]),
        (Chat((USER, ANSWER, USER, ANSWER)), [USER, ANSWER, USER]),
        (Chat((SYSTEM, ANSWER)), []),
        (Chat((USER, ANSWER), tools=({"name": "f"},)), []),
        (Preference(PromptCompletion("Who?", "Me."), PromptCompletion("Who?", "You.")), [USER]),
        (Text("Who?"), [USER]),
        (Stepped("Who?", ("a",), (True,)), []),
    ],
)
def test_a_prompt_is_what_comes_before_the_last_answer(conversation: Any, prompt: list[dict[str, str]]) -> None:
    assert prompt_of(conversation) == prompt


def test_data_without_prompts_is_named(write: Write, spec: AnswersSpec) -> None:
    path = Path(spec.run.data.sources[0].path)
    path.write_text(json.dumps({"messages": [SYSTEM, ANSWER]}) + "\n", encoding="utf-8")
    with pytest.raises(TunesmithError, match="no row has a prompt"):
        write(spec, Model(str))
