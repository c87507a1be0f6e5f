"""Taking a trained model out of its run: the sheet that asks how, the export itself, and what came of it."""
