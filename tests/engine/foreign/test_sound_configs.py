"""The first checks refuse no model that transformers knows: its own config of every type passes them."""

from __future__ import annotations

import json
from pathlib import Path

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tunesmith_core.errors import TunesmithError
from tunesmith_core.model_config import check_config

FEWEST = 300
"""Types whose config can be made of nothing; a new transformers has more."""


def test_the_config_of_every_type_passes(tmp_path: Path) -> None:
    passed, refused = 0, {}
    for kind in CONFIG_MAPPING:
        try:
            values = json.loads(CONFIG_MAPPING[kind]().to_json_string(use_diff=False))
        except Exception:
            # It needs its parts named.
            continue
        try:
            check_config(tmp_path / "config.json", values)
            passed += 1
        except TunesmithError as error:
            if "is an encoder-decoder" not in error.message:
                refused[kind] = error.message
    assert refused == {}
    assert passed > FEWEST
