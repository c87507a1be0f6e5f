"""Base models and what is attached to them."""
