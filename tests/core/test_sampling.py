"""Settings of sampling are refused by name when they make no sense."""

from __future__ import annotations

import pytest

from tunesmith_core.errors import UserError
from tunesmith_core.sampling import Sampling


def test_settings_survive_a_file() -> None:
    sampling = Sampling(max_tokens=3, temperature=0.5, top_k=4, top_p=0.9, min_p=0.1, repetition_penalty=1.2, seed=9)
    assert Sampling.from_dict(sampling.to_dict()) == sampling


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_p", 1.01),
        ("min_p", -0.5),
        ("repetition_penalty", 0.0),
        ("seed", -1),
    ],
)
def test_a_setting_out_of_range_is_named(name: str, value: float) -> None:
    with pytest.raises(UserError, match=name):
        Sampling.from_dict({**Sampling().to_dict(), name: value})
