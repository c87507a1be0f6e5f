"""Data as a run gets it, prepared in this process."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tunesmith_core.operations.limits import Portions
from tunesmith_core.spec import RunSpec
from tunesmith_engine.data import PreparedData
from tunesmith_engine.data import prepare as write
from tunesmith_engine.data.rows_file import RowsWriter, read_rows


def prepare(spec: RunSpec, tokenizer: Any) -> PreparedData:  # Any: a transformers tokenizer
    """Write the rows of a spec and read them back."""
    with tempfile.TemporaryDirectory() as name:
        with RowsWriter(Path(name)) as rows:
            prepared = write(spec, tokenizer, rows, Portions())
        answer = json.loads(json.dumps(prepared.to_dict())) | {"prompts": {}}
        return PreparedData.from_rows(read_rows(Path(name)), answer)
