"""Run specs that went wrong in one place each, by a fixed seed: what editors, scripts and other versions may write."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.run_mutations import BYTES, DEEP, RAW, VALUES, _places, changed

ANY, REFUSED = "any", "refused"

Made = tuple[str, list[str], str]
"""What was done, words of which one has to be named, and what has to come of it."""

PATHS = (
    "", " ", ".", "..", "/", "~", "~nouser", "~nouser/x", "~root/../..", "/dev/null", "/dev/zero", "/dev/tty",
    "/proc/self/mem", "/etc/passwd", "/etc", "x" * 300, "x" * 5000, "/" + "x/" * 3000, "a/" * 2500 + "b", "a\x00b",
    "\x00", "\ud800", "/\udcff/x", "C:\\x", "\\\\server\\share", "file:///etc/passwd", "https://host.invalid/x",
    "org/name", "org/name/more", "../../../..",
    "new\nline", "\t", "\x1b[31m", "%s{0}{path}", "-rf", "ü/名字", "con", "nul.json", "|ls", "$(ls)", "`ls`", "*", "?",
    "/proc/self/fd/0", "/sys/kernel/mm", "/proc/1/root", "./", "~/", "//", "a" * 255, "\u202e", "{", "}", "{}", "{path",
)  # fmt: skip

TEXTS: tuple[Any, ...] = (
    "x", "", " ", "AUTO", "cuda:999", "cpu:1", "cuda:-1", "None", "sft ", "nf4\x00", "../sft", 0, None, True,
)  # fmt: skip

CONTRADICTIONS: tuple[dict[str, dict[str, Any]], ...] = (
    {"evaluation": {"early_stopping": 3, "percent": 0.0}},
    {"evaluation": {"path": "PLACE/rows.jsonl", "percent": 50.0}},
    {"evaluation": {"percent": 50.0, "every_steps": 10**9}},
    {"schedule": {"epochs": 1e-300, "max_steps": 0}},
    {"schedule": {"epochs": 10_000.0, "max_steps": 0, "warmup_steps": 10**12}},
    {"schedule": {"max_steps": 1, "warmup_steps": 10**30}},
    {"schedule": {"max_steps": 10**30}},
    {"schedule": {"micro_batch_size": 4096, "gradient_accumulation_steps": 4096}},
    {"adapter": {"rank": 4096}},
    {"adapter": {"rank": 4096, "rslora": True, "dora": True, "dropout": 0.95, "bias": "all"}},
    {"adapter": {"alpha": 1e308}},
    {"adapter": {"alpha": 5e-324}},
    {"adapter": {"target_modules": []}},
    {"adapter": {"target_modules": ["q_proj"] * 5000}},
    {"adapter": {"target_modules": ["*"]}},
    {"adapter": {"target_modules": ["("]}},
    {"adapter": {"target_modules": ["lm_head"]}},
    {"adapter": {"target_modules": ["embed_tokens"]}},
    {"adapter": {"target_modules": ["norm"]}},
    {"adapter": {"target_modules": ["0"]}},
    {"adapter": {"target_modules": ["model"]}},
    {"adapter": {"target_modules": ["q_proj\x00", "\ud800"]}},
    {"adapter": {"target_modules": [""]}},
    {"adapter": {"target_modules": ["x" * 70_000]}},
    {"data": {"context_length": 8}},
    {"data": {"context_length": 1_048_576, "overlong": "skip"}},
    {"data": {"system_prompt": "x" * 100_000}},
    {"data": {"system_prompt": "\ud800 \x00"}},
    {"data": {"sources": []}},
    {"data": {"sources": [{}]}},
    {"data": {"sources": [[]]}},
    {"data": {"sources": {"path": "PLACE/rows.jsonl"}}},
    {"data": {"sources": "PLACE/rows.jsonl"}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl"}] * 40}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl", "format": "text"}]}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl", "columns": {"messages": "gone"}}]}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl", "columns": {"x": "y"}}]}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl", "columns": {"": ""}}]}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl", "columns": {"messages": 7}}]}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl", "encoding": "gb18030"}]}},
    {"data": {"sources": [{"path": "PLACE/rows.jsonl", "format": "messages", "columns": {"prompt": "messages"}}]}},
    {"hardware": {"devices": []}},
    {"hardware": {"devices": ["cpu", "cpu"]}},
    {"hardware": {"devices": ["cpu"] * 10_000}},
    {"hardware": {"devices": ["cuda:63"]}},
    {"hardware": {"devices": ["cuda"], "kernels": True, "fp8_weights": True}},
    {"hardware": {"devices": ["auto:63"]}},
    {"hardware": {"devices": "cpu"}},
    {"hardware": {"devices": [["cpu"]]}},
    {"hardware": {"devices": [None]}},
    {"hardware": {"system": "wsl"}},
    {"hardware": {"cpu_threads": 1024}},
    {"hardware": {"cpu_threads": 10**30}},
    {"quantization": {"kind": "nf4"}, "adapter": {"dora": True}},
    {"quantization": {"kind": "nf4"}, "model": {"dtype": "float16"}},
    {"optimizer": {"name": "adamw_8bit", "beta1": 0.0, "beta2": 0.0}},
    {"optimizer": {"learning_rate": 1.0, "epsilon": 5e-324}},
    {"optimizer": {"learning_rate": 5e-324}},
    {"optimizer": {"max_grad_norm": 1e308}},
    {"optimizer": {"max_grad_norm": 5e-324}},
    {"optimizer": {"weight_decay": 1.0}},
    {"evaluation": {"sample_prompts": [""]}},
    {"evaluation": {"sample_prompts": ["\ud800"]}},
    {"evaluation": {"sample_prompts": ["x" * 100_000]}},
    {"evaluation": {"sample_prompts": ["<|im_end|>"], "sample_max_tokens": 16}},
    {"evaluation": {"sample_every_steps": 10**30, "every_steps": 10**30}},
    {"saving": {"every_minutes": 1e-300}},
    {"saving": {"every_steps": 10**30}},
    {"saving": {"keep": 1000}},
    {"schedule": {"seed": 2**31 - 1}},
    {"schedule": {"seed": 2**63}},
    {"model": {"revision": "../../x"}},
    {"model": {"revision": "\x00"}},
    {"model": {"dtype": "bfloat16"}},
    {"model": {"dtype": "float16"}},
)  # fmt: skip

LARGE = (10**30, -(10**30), 2**63, 2**31, 1e300, -1e300, 5e-324, 10**6, -1, 0, 1, 0.5, 1e17)


def _save(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values))


def field(values: Any, path: Path, chance: random.Random) -> Made:
    """Change any place to anything."""
    text, what = changed(values, chance)
    path.write_text(text)
    # A path that became another is named at the beginning of a sentence.
    new = what.partition(" = ")[2].strip('"')
    return what, [f"{new}:"] if new else [], ANY


def number(values: Any, path: Path, chance: random.Random) -> Made:
    """Give a number another size."""
    places = [place for place in _places(values) if isinstance(_at(values, place), (int, float))]
    place = chance.choice(places)
    new = chance.choice(LARGE)
    _set(values, place, new)
    _save(path, values)
    return f"{place} = {new}", [str(place[-1])], ANY


def raw(values: Any, path: Path, chance: random.Random) -> Made:
    """Put what JSON writers don't write in place of a value."""
    place = chance.choice(list(_places(values)))
    new = chance.choice(RAW)
    _set(values, place, "@here@")
    path.write_text(json.dumps(values).replace('"@here@"', new))
    return f"{place} = {new[:40]}", [str(place[-1])], ANY


def where(values: Any, path: Path, chance: random.Random) -> Made:
    """Name an odd path."""
    new = chance.choice(PATHS)
    places = (("model", "path"), ("model", "path"), ("data", "sources", 0, "path"), ("evaluation", "path"))
    place = chance.choice(places)
    if place[0] == "evaluation":
        values["evaluation"]["percent"] = 0.0
    _set(values, place, new)
    _save(path, values)
    return f"{place} = {new!a:.60}", ["model", "data", Path(new).name[:20], "path"], ANY


def word(values: Any, path: Path, chance: random.Random) -> Made:
    """Choose what there is no such choice of."""
    places = [place for place in _places(values) if isinstance(_at(values, place), str) and place[-1] != "path"]
    place = chance.choice(places)
    new = chance.choice(TEXTS)
    _set(values, place, new)
    _save(path, values)
    return f"{place} = {new!a}", [str(place[-1])], ANY


def contradiction(values: Any, path: Path, chance: random.Random) -> Made:
    """Choose settings that go badly together or can't be meant."""
    changes = json.loads(json.dumps(chance.choice(CONTRADICTIONS)).replace("PLACE", str(path.parent)))
    for section, fields in changes.items():
        values[section] |= fields
    _save(path, values)
    names = [name for fields in changes.values() for name in fields]
    return f"{changes!a:.110}", ["rows.jsonl", "layer", "GPU", *names], ANY


def unknown(values: Any, path: Path, chance: random.Random) -> Made:
    """Add what there is no such setting of, or leave a section out."""
    how = chance.choice(("section", "field", "case", "missing", "entry"))
    section = chance.choice([name for name, value in values.items() if isinstance(value, dict)])
    expected = REFUSED
    if how == "section":
        values["of-tomorrow"] = {}
    elif how == "field":
        values[section]["of-tomorrow"] = chance.choice(VALUES)
    elif how == "case":
        values[section.upper()] = values.pop(section)
    elif how == "entry":
        values["data"]["sources"][0]["of-tomorrow"] = 1
    else:
        del values[section]
        expected = ANY
    _save(path, values)
    return f"unknown {how} {section}", [section, section.upper(), "of-tomorrow"], expected


def version(values: Any, path: Path, chance: random.Random) -> Made:
    """Be of another version, or of what is none."""
    new = chance.choice((3, 99, 10**30, 0, -1, 1, 1.0, 2.0, 2.5, "2", None, True, [], {}, 1e300))
    values["version"] = new
    _save(path, values)
    return f"version {new!r}", ["version", "method"], ANY


def doubled(values: Any, path: Path, chance: random.Random) -> Made:
    """Say something twice."""
    text = json.dumps(values)
    name = chance.choice(("adapter", "rank", "path", "version", "learning_rate"))
    start = text.index(f'"{name}": ')
    again = {"adapter": "{}", "rank": "64", "path": '"/other"', "version": "2", "learning_rate": "1.0"}[name]
    path.write_text(f'{text[:start]}"{name}": {again}, {text[start:]}')
    return f"{name} twice", [name], REFUSED


def whole(values: Any, path: Path, chance: random.Random) -> Made:
    """Put other bytes in place of the file."""
    text = json.dumps(values).encode()
    ways = ("bytes", "cut", "garbled", "utf-16", "utf-16-le", "bom", "twice", "list", "huge", "deep", "single")
    how = chance.choice(ways)
    if how == "bytes":
        text = chance.choice(BYTES)
    elif how == "cut":
        text = text[: chance.randrange(len(text))]
    elif how == "garbled":
        changed = bytearray(text)
        for _ in range(3):
            changed[chance.randrange(len(text))] = chance.randrange(256)
        text = bytes(changed)
    elif how.startswith("utf"):
        text = text.decode().encode(how)
    elif how == "bom":
        text = b"\xef\xbb\xbf" + text
    elif how == "twice":
        text += text
    elif how == "list":
        text = b"[" + text + b"]"
    elif how == "huge":
        text = text[:-1] + b', "x": [' + b"1," * 12_000_000 + b"1]}"
    elif how == "deep":
        text = text[:-1] + b', "x": ' + DEEP.encode() + b"}"
    else:
        text = text.replace(b'"', b"'")
    path.write_bytes(text)
    return f"file {how}", [], ANY


def kind(_values: Any, path: Path, chance: random.Random) -> Made:
    """Be another kind of thing than a file."""
    how = chance.choice(("missing", "folder", "fifo", "loop", "device", "zero", "dangling"))
    if how == "folder":
        path.mkdir()
    elif how == "fifo":
        os.mkfifo(path)
    elif how in ("loop", "dangling"):
        path.symlink_to(path.name if how == "loop" else "nowhere")
    elif how in ("device", "zero"):
        path.symlink_to("/dev/null" if how == "device" else "/dev/zero")
    return f"a {how}", [], REFUSED


def many(values: Any, path: Path, chance: random.Random) -> Made:
    """Have far too much of something."""
    how = chance.choice(("sources", "targets", "prompts", "columns", "name", "unknown"))
    source = values["data"]["sources"][0]
    if how == "sources":
        values["data"]["sources"] = [source] * 10_000
    elif how == "targets":
        values["adapter"]["target_modules"] = [f"layer{index}" for index in range(20_000)]
    elif how == "prompts":
        values["evaluation"]["sample_prompts"] = ["Hi"] * 50_000
    elif how == "columns":
        source["columns"] = {str(index): "x" for index in range(50_000)}
    elif how == "name":
        values["name"] = "x" * 1_000_000
    else:
        values |= {f"of-tomorrow-{index}": 1 for index in range(20_000)}
    _save(path, values)
    words = {"sources": "data.sources", "targets": "layer", "prompts": "sample_prompts", "unknown": "of-tomorrow"}
    return f"too many {how}", [words.get(how, how), "rows.jsonl"], ANY


def called(values: Any, path: Path, chance: random.Random) -> Made:
    """Have an odd name."""
    values["name"] = chance.choice((*PATHS, 7, None, [], {}, True))
    _save(path, values)
    return f"name {values['name']!a:.60}", ["name"], ANY


CHANGES: tuple[tuple[Callable[[Any, Path, random.Random], Made], int], ...] = (
    (field, 24),
    (number, 14),
    (raw, 8),
    (where, 16),
    (word, 8),
    (contradiction, 16),
    (unknown, 5),
    (version, 4),
    (doubled, 2),
    (whole, 6),
    (kind, 2),
    (many, 2),
    (called, 4),
)


def _at(values: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        values = values[key]
    return values


def _set(values: Any, place: tuple[Any, ...], new: Any) -> None:
    _at(values, place[:-1])[place[-1]] = new


def mutate(original: Path, path: Path, number_of_mutant: int, seed: int) -> Made:
    """Write mutant number `number_of_mutant` of a seed to a path: equal numbers give equal mutants."""
    chance = random.Random(f"{seed}/{number_of_mutant}")
    (change,) = chance.choices([change for change, _ in CHANGES], [weight for _, weight in CHANGES])
    what, names, expected = change(json.loads(original.read_text()), path, chance)
    return f"{change.__name__}: {what}", names, expected
