"""Our own training loop and its parts."""
