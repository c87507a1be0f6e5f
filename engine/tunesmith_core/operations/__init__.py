"""One contract for every child process: a folder with a spec, a journal, control files, a lease and a result.

`kind` declares what there is, `host` is the side of the child, `runner` the side of whoever started it. A run is an
operation with more in its folder (`tunesmith_core.runs`) and a supervisor of its own, because it outlives its owner.
"""
