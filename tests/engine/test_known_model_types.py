"""What a plan takes for known is what the installed transformers has code for."""

from __future__ import annotations

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tunesmith_core.known_model_types import KNOWN


def test_the_plan_knows_the_types_of_transformers() -> None:
    # Other tests register types of their own.
    own = set(CONFIG_MAPPING._extra_content)
    assert set(CONFIG_MAPPING.keys()) - own == KNOWN
