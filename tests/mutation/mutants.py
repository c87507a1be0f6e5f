"""Small faults put into the program on purpose: where one could stand, and the file with it.

The operators are the usual ones of mutation testing (P. Ammann and J. Offutt, Introduction to Software Testing, 2nd
edition, chapter 9.2): relations, arithmetic, logic, conditions, constants, results and calls left out.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RELATIONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
PLAIN_CONDITIONS = ast.Name | ast.Attribute | ast.Call
"""Those that no other operator changes."""

PATIENCE = ("POLL_S", "PATIENCE_S", "RETRY_S", "TIMEOUT_S", "WAIT_S")

LOGIC: dict[type[ast.boolop], type[ast.boolop]] = {ast.And: ast.Or, ast.Or: ast.And}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        path: of the file, relative to the repository.
        line: where it stands; 1 is the first.
        span: the first and the last byte (exclusive) that are replaced.
        before: what stands there.
        after: what it becomes.
    """

    path: str
    line: int
    span: tuple[int, int]
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.before.split())}  ->  {' '.join(self.after.split())}"

    def applied(self, source: bytes) -> bytes:
        """Return the file's bytes with the fault in them."""
        return source[: self.span[0]] + self.after.encode() + source[self.span[1] :]


def mutants_of(repository: Path, path: str) -> list[Mutant]:
    """Return every fault that could stand in a Python file, in the order of the file."""
    source = (repository / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, after in _replacements(ast.parse(source)):
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        span = (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
        found.append(Mutant(path, node.lineno, span, source[slice(*span)].decode(), after))
    return sorted(set(found), key=lambda one: (one.span, one.after))


def _replacements(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield each node that can be replaced, and the text that replaces it."""
    for node in _code(tree):
        yield from ((node, f"({ast.unparse(changed)})") for changed in _changed_expressions(node))
        if isinstance(node, ast.If | ast.While | ast.IfExp) and isinstance(
            node.test, ast.Name | ast.Attribute | ast.Call
        ):
            yield node.test, f"(not {ast.unparse(node.test)})"
        elif isinstance(node, ast.Return) and not (node.value is None or isinstance(node.value, ast.Constant)):
            yield node, "return None"
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _does_nothing(node.value):
            yield node, "pass"


def _changed_expressions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what an expression becomes when its own operator or value is another one."""
    changed = copy.copy(node)
    if isinstance(changed, ast.Compare) and len(changed.ops) == 1 and type(changed.ops[0]) in RELATIONS:
        changed.ops = [RELATIONS[type(changed.ops[0])]()]
    elif isinstance(changed, ast.BinOp) and type(changed.op) in ARITHMETIC and not _is_text(changed):
        changed.op = ARITHMETIC[type(changed.op)]()
    elif isinstance(changed, ast.BoolOp):
        changed.op = LOGIC[type(changed.op)]()
    elif isinstance(changed, ast.UnaryOp) and isinstance(changed.op, ast.Not):
        yield changed.operand
        return
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, bool):
        changed.value = not changed.value
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, int | float):
        # One more than a thousand is hardly a fault; twice as much is.
        changed.value = changed.value * 2 if abs(changed.value) > 1 else changed.value + 1
    else:
        return
    assert isinstance(changed, ast.expr)
    yield changed


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that do something when the program runs: neither annotations, nor decorators, nor texts."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            # The places of nodes inside a text with values are wrong before Python 3.12.
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr) or _is_for_types(child):
                continue
            # Another indent of JSON is the same JSON.
            if _is_patience(child) or (isinstance(child, ast.keyword) and child.arg == "indent"):
                continue
            yield child
            yield from _code(child)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _is_patience(node: ast.AST) -> bool:
    """Whether a constant says how long to wait or how often to look.

    Another one changes when something is seen and not what: only a test that goes by the computer's speed could tell.
    """
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return isinstance(target, ast.Name) and target.id.endswith(PATIENCE)


def _is_text(node: ast.BinOp) -> bool:
    """Whether an operator joins or fills a text: another one would be no program at all."""
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in sides)


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _does_nothing(call: ast.Call) -> bool:
    """Whether a call only writes to the log, which no promise rests on, or is a place where tests can kill."""
    return ast.unparse(call.func).startswith(("log.", "_log.", "logger.", "logging.", "warnings.", "files.crashpoint"))
