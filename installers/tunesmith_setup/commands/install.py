"""Install Tunesmith for this user and open its window; without a display, train the bundled example instead."""

from __future__ import annotations

import argparse

from tunesmith_setup import install, profiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("--demo", action="store_true", help="train the bundled example instead of opening the window")
    parser.add_argument("--profile", choices=sorted(profiles.PROFILES), help="build of PyTorch; chosen by the GPU")


def run(arguments: argparse.Namespace) -> int:
    """Install, then open the window or train the example."""
    return install.run(arguments.profile, demo_wanted=arguments.demo)
