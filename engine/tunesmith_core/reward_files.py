"""A person's own Python file of a reward, looked at without running it, and an example of one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tunesmith_core.errors import TunesmithError
from tunesmith_core.judges import FUNCTION, GIVEN
from tunesmith_core.messages import Message

EXAMPLE = '''"""A reward for training with Tunesmith: how good an answer is, as a number."""


def reward(prompt, answer, expected):
    """Return a higher number for a better answer, for example between 0 and 1.

    prompt: the question.
    answer: what the model wrote.
    expected: the answer in the data, an empty text where there is none.

    More parameters get the columns of the row by their names, for example
    def reward(prompt, answer, expected, level).
    """
    score = 0.0
    if expected and expected.strip() in answer:
        score += 1.0
    if len(answer) > 500:
        score -= 0.2
    return score
'''

Function = ast.FunctionDef | ast.AsyncFunctionDef
MOST_BYTES = 1 << 20
"""Longer files are left to the run."""

_BIND_BY_NAME = frozenset({"globals", "locals", "vars", "exec", "setattr"})
"""With these a name can come about that nobody sees without running the file."""


def check(path: str) -> None:
    """Check what a run would find first: that the file can be read, is Python, and has the function.

    Raises:
        UserError: `reward-failed` with file and line.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - as a text, what is wrong with it is named
            source = file.read(MOST_BYTES + 1)
        if len(source) > MOST_BYTES:
            return
        found = list(_at_top(ast.parse(source)))
    except OSError as error:
        raise _failed(Message("{path}: {reason}.", path=path, reason=Message(str(error.strerror)))) from error
    except SyntaxError as error:
        words = Message("{path}, line {line}: {problem}.", path=path, line=error.lineno or 1, problem=f"{error.msg}")
        raise _failed(words) from error
    except (ValueError, RecursionError, MemoryError):
        # Python itself will say it better.
        return
    bindings = [node for node in found if FUNCTION in _bound(node)]
    if not bindings and not any(_is_open(node) for node in found):
        words = Message("{path}: there is no function {name}(prompt, answer, expected).", path=path, name=FUNCTION)
        raise _failed(words)
    if len(bindings) == 1 and isinstance(function := bindings[0], Function) and _takes_too_few(function):
        words = Message(
            "{path}, line {line}: {name} must take at least three parameters: the prompt, the answer and the expected "
            "answer.",
            path=path,
            line=function.lineno,
            name=FUNCTION,
        )
        raise _failed(words)


def _at_top(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a file that run when it is read, not those inside of functions and classes."""
    yield node
    if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _at_top(child)


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a node gives a meaning."""
    if isinstance(node, Function | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    return {node.asname or node.name} if isinstance(node, ast.alias) else set()


def _is_open(node: ast.AST) -> bool:
    """Return whether a node may give meaning to names that it doesn't show."""
    return (isinstance(node, ast.Name) and node.id in _BIND_BY_NAME) or (
        isinstance(node, ast.alias) and node.name == "*"
    )


def _takes_too_few(function: Function) -> bool:
    given = function.args
    has_any = given.vararg is not None or bool(function.decorator_list)
    return not has_any and len(given.posonlyargs) + len(given.args) < len(GIVEN)


def _failed(words: Message) -> TunesmithError:
    return TunesmithError("reward-failed", words)
