"""The page of all runs: list, comparison, library."""
