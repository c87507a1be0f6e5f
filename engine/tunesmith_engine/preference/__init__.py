"""Learning from pairs of answers: what is minimised is a function of the log-probabilities of whole answers."""
