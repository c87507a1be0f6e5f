"""The window: PySide6 widgets over `tunesmith_core`; it never imports the training stack and a run outlives it."""
