"""The engine: trains one run in its own process and talks to the rest of Tunesmith through the run folder alone."""
