"""The Train page: the form of a new run, its plan, and the start."""
