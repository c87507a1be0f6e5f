"""The page of one run: charts, tables, samples, log."""
