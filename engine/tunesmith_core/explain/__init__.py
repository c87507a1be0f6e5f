"""Names the cause of a failure from the text that any tool printed: `explain(text)`.

A log becomes lines with a role (`reading`), the catalogue of signatures finds causes in them (`matching`), the facts
about the computer decide where a text alone is ambiguous (`facts`), and the answer is put into words (`answer`). All
of it is offline, standard library only and fast, for it also runs when everything else is broken.
"""

from tunesmith_core.explain.answer import UNKNOWN, Explanation, explain
from tunesmith_core.explain.reading import decode, read_bounded, read_file

__all__ = ["UNKNOWN", "Explanation", "decode", "explain", "read_bounded", "read_file"]
