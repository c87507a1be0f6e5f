"""Answers of a tiny model with what it found likely at each token, as rows of data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.engine.prepared import prepare
from tunesmith_core.datafmt.stored import STORED, stored_column
from tunesmith_core.spec import RunSpec
from tunesmith_engine.answering import likely
from tunesmith_engine.data import IGNORED_LABEL
from tunesmith_engine.data.stored import fingerprint
from tunesmith_engine.device import choose_compute
from tunesmith_engine.model.folder import load_tokenizer
from tunesmith_engine.model.load import load_model


def write_stored(spec: RunSpec, teacher: Path, path: Path) -> list[dict[str, Any]]:  # Any: JSON values
    """Write the rows of a spec's data with what a teacher finds likely at their learned tokens; return them.

    The teacher reads the answers as the student will see them, with the template's marks at their ends.
    """
    folder = Path(spec.model.path)
    tokenizer, compute = load_tokenizer(folder), choose_compute(spec)
    model = load_model(teacher, compute, four_bit=False).eval()
    lines = Path(spec.data.sources[0].path).read_text(encoding="utf-8").splitlines()
    supervised = RunSpec.from_dict(spec.to_dict() | {"objective": {"kind": "sft"}, "evaluation": {"percent": 0}})
    rows = []
    for line, example in zip(map(json.loads, lines), prepare(supervised, tokenizer).train, strict=True):
        learned, ids = np.flatnonzero(example.labels != IGNORED_LABEL), example.input_ids.tolist()
        prompt, answer = ids[: learned[0]], ids[learned[0] : learned[-1] + 1]
        likeliest = likely.likeliest(model, compute, prompt, answer)
        rows.append(line | {STORED: stored_column(answer, likeliest, fingerprint(tokenizer))})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows
