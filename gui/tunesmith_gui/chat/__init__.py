"""Try it: conversations with what a run has trained, beside its base model."""
