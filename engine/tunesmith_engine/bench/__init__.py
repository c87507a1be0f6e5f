"""Timing of training steps on random rows: tokens per second, memory, share of what this GPU can do at best."""
