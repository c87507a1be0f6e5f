"""A file that rounds as its format does passes; how much of the answers that costs is told all the same."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tunesmith_core.export_proof import TOLD_NATS
from tunesmith_core.operations.host import Host
from tunesmith_engine.export.verifying import tell_loss


class Told:
    """Keeps what a host is told."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, str]] = []

    def warning(self, code: str, message: str) -> None:
        self.warnings.append((code, message))


@pytest.mark.parametrize(("nats", "num_warnings"), [(0.0, 0), (TOLD_NATS, 0), (0.54, 1)])
def test_a_large_loss_is_told_with_its_figures(nats: float, num_warnings: int) -> None:
    host, proof = Told(), cast("dict[str, Any]", {"mean_kl": nats, "agreement": 0.69})
    tell_loss(cast("Host", host), proof)
    assert len(host.warnings) == num_warnings
    for code, message in host.warnings:
        assert code == "export-differs"
        assert "69%" in message
        assert "69% of the next tokens" in message
