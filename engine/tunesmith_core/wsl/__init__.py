"""The Windows Subsystem for Linux as a place where runs compute when native Windows can't.

`listing` reads what wsl.exe prints, `client` calls it, `guest` speaks with a distribution, `engine` is the engine of a
run inside it as the supervisor sees it, and `relay` is what runs there: it keeps the run's files on the Linux disk and
passes journal, commands and results between there and the run folder on Windows.
"""
