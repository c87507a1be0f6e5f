"""Environments: built beside the current one, proven, repaired, listed."""
