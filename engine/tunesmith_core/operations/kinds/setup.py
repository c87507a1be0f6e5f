"""Commands of the installer: check, install, repair and the others, each by its own words."""

from __future__ import annotations

from dataclasses import dataclass

from tunesmith_core.operations.kind import Kind, Place


@dataclass(frozen=True, slots=True)
class SetupSpec:
    """The words of a command line of the installer."""

    arguments: tuple[str, ...]


SETUP = Kind(
    name="setup",
    title="Setting up",
    cut_short="It continues where it left off next time.",
    spec=SetupSpec,
    program="tunesmith_setup",
    place=Place.SAME,
    grace_s=5.0,
)
