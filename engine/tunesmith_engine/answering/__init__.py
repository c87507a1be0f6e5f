"""Answers of a bigger model to the prompts of data, to learn from (Kim and Rush 2016, arXiv:1606.07947)."""
