"""Learning from rewards: the model writes answers, they are scored, and what was better than the rest gets likelier."""
