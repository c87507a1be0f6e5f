"""Documents cut into passages, and the questions and answers that a local model writes about each."""
