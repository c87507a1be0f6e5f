"""Words of the data that a model writes in many pieces, which could become tokens of their own."""

from __future__ import annotations

from tunesmith_core.operations.kind import Kind
from tunesmith_core.operations.limits import Limits
from tunesmith_core.spec import RunSpec

WORDS = Kind(
    name="words",
    title="Looking for new words",
    spec=RunSpec,
    function="tunesmith_engine.operations:words",
    limits=Limits(),
)
