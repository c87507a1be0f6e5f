"""The report of a run: one page that stands alone, made from the run folder only."""
