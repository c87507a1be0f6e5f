"""The Environment page and the setup wizard: checks, installation, repair, diagnosis."""
