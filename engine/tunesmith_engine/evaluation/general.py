"""General questions with short answers that can be checked: whether training made a model forget what it knew."""

from __future__ import annotations

import re

MAX_TOKENS = 32

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("What is the capital of France?", "paris"),
    ("What is the capital of Japan?", "tokyo"),
    ("What is the capital of Egypt?", "cairo"),
    ("Which planet is closest to the Sun?", "mercury"),
    ("What is the largest planet in the solar system?", "jupiter"),
    ("What gas do plants take in from the air?", "carbon dioxide|co2|co₂"),
    ("What is the chemical symbol for gold?", r"\bau\b"),
    ("What is the chemical formula of water?", "h2o|h₂o"),
    ("How many days are in a week?", r"\b7\b|seven"),
    ("How many minutes are in an hour?", r"\b60\b|sixty"),
    ("What is 7 + 5?", r"\b12\b|twelve"),
    ("What is 9 times 6?", r"\b54\b|fifty-four"),
    ("What is 100 divided by 4?", r"\b25\b|twenty-five"),
    ("Who wrote Romeo and Juliet?", "shakespeare"),
    ("Who developed the theory of relativity?", "einstein"),
    ("What is the opposite of hot?", "cold"),
    ("What color do you get by mixing blue and yellow?", "green"),
    ("Which ocean is the largest?", "pacific"),
    ("Translate to Spanish: thank you", "gracias"),
    ("What is the plural of mouse?", "mice"),
    ("In which continent is Brazil?", "south america"),
    ("Which language is mainly spoken in Italy?", "italian"),
    ("中国的首都是哪里？", "北京|beijing"),
    ("日本的首都是哪里？", "东京|tokyo"),
    ("一年有几个月？", "12|十二"),
    ("3 加 8 等于多少？", "11|十一"),
    ("水的化学式是什么？", "h2o|h₂o"),
    ("《静夜思》的作者是谁？", "李白"),
    ("世界上最高的山峰是哪一座？", "珠穆朗玛|珠峰|everest"),
    ("“大”的反义词是什么？", "小"),
)
"""Questions, each with a pattern that a right answer holds."""


def is_right(pattern: str, answer: str) -> float:
    """Return 1 where an answer holds the pattern, whatever its case."""
    return float(re.search(pattern, answer, re.IGNORECASE) is not None)
