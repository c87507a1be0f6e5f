"""Documents as passages: cut at headings, none too long, each with its document, place and language."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.documents import write_pdf
from tunesmith_core.errors import UserError
from tunesmith_core.operations.folder import Operation
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kind import AbsolutePath
from tunesmith_core.operations.kinds.questions import PassagesSpec
from tunesmith_core.spec import RunSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.questions.passages import NAME, Passage, cut_passages, read_passages

ENGLISH = "The garden lies on a hill above the river, and roses grow there in every color that people know. "
CHINESE = "龙井茶产于浙江省杭州市西湖一带，已有一千二百多年的历史，采摘在清明节以前。"


@pytest.fixture
def tokenizer(tiny_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tiny_model)


def cut(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, most_tokens: int, *paths: Path
) -> tuple[dict[str, int], list[Passage]]:
    """The passages of files."""
    run = RunSpec()
    run.data.sources = [SourceSpec(path=str(path)) for path in paths]
    folder = tmp_path / "operation"
    folder.mkdir(exist_ok=True)
    with Host(Operation(folder)) as host:
        answer = cut_passages(host, PassagesSpec(run, AbsolutePath(""), most_tokens), tokenizer)
    return answer, list(read_passages(folder / NAME))


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def test_passages_hold_the_whole_document_in_order(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    path = tmp_path / "garden.md"
    path.write_text("".join(f"# Part {part}\n\n{ENGLISH * 8}\n\n" for part in range(5)), encoding="utf-8")
    answer, passages = cut(tmp_path, tokenizer, 500, path)
    assert answer == {"num_passages": len(passages), "num_bad": 0}
    assert words(" ".join(each.text for each in passages)) == words(path.read_text(encoding="utf-8"))
    assert all(len(tokenizer(each.text)["input_ids"]) <= 510 for each in passages)
    starts = [each.text.splitlines()[0] for each in passages if each.text.startswith("#")]
    assert starts == [f"# Part {part}" for part in range(5)]
    assert {(each.document, each.language) for each in passages} == {("garden.md", "en")}
    assert passages[0].place == "line 1"


def test_short_sections_share_a_passage(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    path = tmp_path / "notes.md"
    path.write_text("".join(f"## Note {part}\n\nA short remark number {part}.\n\n" for part in range(12)), "utf-8")
    _, passages = cut(tmp_path, tokenizer, 300, path)
    assert 1 < len(passages) <= 4
    assert all(each.text.startswith("## Note") for each in passages)


def test_each_document_has_passages_of_its_own(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    pdf = write_pdf(tmp_path / "bridge.pdf", ["", ENGLISH, "3", ENGLISH.upper()])
    text = tmp_path / "tea.txt"
    text.write_text(CHINESE, encoding="utf-8")
    archive = tmp_path / "both.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("a/one.md", ENGLISH)
        made.writestr("two.txt", CHINESE)
    _, passages = cut(tmp_path, tokenizer, 120, pdf, text, archive)
    assert [(each.document.replace("\\", "/"), each.place, each.language) for each in passages] == [
        ("bridge.pdf", "page 2", "en"),
        ("bridge.pdf", "page 4", "en"),
        ("tea.txt", "line 1", "zh"),
        ("both.zip/a/one.md", "line 1", "en"),
        ("both.zip/two.txt", "line 1", "zh"),
    ]


def test_small_documents_are_not_joined(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text(f"This is document {name} of two.", encoding="utf-8")
    _, passages = cut(tmp_path, tokenizer, 300, folder)
    assert [each.document.replace("\\", "/") for each in passages] == ["notes/one.txt", "notes/two.txt"]


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("chats.jsonl", '{"question": "Who?", "answer": "Me."}\n', "usage", "holds questions or chats"),
        ("short.md", "# 12\n\nToo short.", "dataset-empty", "no passage is long enough"),
        ("empty.txt", " \n", "dataset-empty", "empty"),
    ],
)
def test_what_nobody_can_ask_about_is_refused(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, name: str, content: str, code: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        cut(tmp_path, tokenizer, 120, path)
    assert caught.value.code == code
    assert said in caught.value.message
