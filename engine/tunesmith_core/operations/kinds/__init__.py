"""The operations that there are, in modules that `tunesmith_core.operations.kind` finds."""
