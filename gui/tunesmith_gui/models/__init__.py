"""Qt item models and data buffers."""
