"""A repaired copy of data: what a check found is left out, repaired or kept, as the person chose."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

from tunesmith_core.datafmt import Layout, Row
from tunesmith_core.datafmt.reading import table_head
from tunesmith_core.datafmt.row_index import Position
from tunesmith_core.datafmt.sniffing import head_rows
from tunesmith_core.errors import TunesmithError, UserError
from tunesmith_core.objectives import FROM_PAIRS, LABELS
from tunesmith_core.operations.host import Host
from tunesmith_core.operations.kinds.data import SaveDataSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_engine.desk.edited import Counted, Edited
from tunesmith_engine.desk.near import MOST_ROWS as MOST_NEAR_ROWS
from tunesmith_engine.desk.near import NearRows, has_library
from tunesmith_engine.desk.places import Keys
from tunesmith_engine.desk.problems import rule_of_error
from tunesmith_engine.desk.reading import ROWS_TOGETHER, Meter, Opened, open_tolerantly, total_bytes
from tunesmith_engine.desk.rules import DROP, KEEP, RULES, SKIP, STOP, TRUNCATE
from tunesmith_engine.desk.shapes import Shape
from tunesmith_engine.desk.splitting import Splitter
from tunesmith_engine.desk.text_rules import text_rules
from tunesmith_engine.desk.writing import Outline, RowsFile, check_targets


def save_data(host: Host, spec: SaveDataSpec) -> dict[str, Any]:  # Any: JSON values
    """Write a repaired copy of the training data of a run; return its path and what was done to how many rows.

    Raises:
        UserError: `usage` for a wrong action or target; the first problem of a rule whose action is to stop.
    """
    with host.portions as portions:
        tokenizer = None
        if spec.folder and spec.actions.get("over-long", TRUNCATE) != TRUNCATE:
            from tunesmith_engine.operations import limited_tokenizer

            tokenizer = limited_tokenizer(Path(spec.folder), portions, spec.run.model.chat_template)
        splitter = Splitter(tokenizer, spec.run.data, portions) if tokenizer is not None else None
        try:
            return _Copy(host, spec, splitter).write()
        except _Stop as stop:
            raise stop.error from None


class _Stop(Exception):
    """A rule whose action is to stop found something. No UserError, because readers take those for bad rows."""

    def __init__(self, error: TunesmithError) -> None:
        super().__init__(error)
        self.error = error


class _Copy:
    """Writes the copy."""

    def __init__(self, host: Host, spec: SaveDataSpec, splitter: Splitter | None) -> None:
        self._host, self._spec, self._splitter = host, spec, splitter
        self._actions = _checked_actions(spec.actions)
        special = splitter.special_tokens if splitter else ()
        self._rules = [rule for rule in text_rules(special) if self._acts(rule.name)]
        self._seen: set[int] = set()
        self._held_out: set[int] = set()
        self._edited = Edited(spec.edited)
        self._in_labels = spec.run.objective.kind in LABELS
        self._in_pairs = self._in_labels or spec.run.objective.kind in FROM_PAIRS
        self._near = NearRows() if self._acts("near-duplicate") and has_library() else None
        self._counts: Counter[str] = Counter()
        self._num_read = 0

    def _acts(self, rule: str) -> bool:
        return self._actions[rule] != KEEP

    def write(self) -> dict[str, Any]:  # Any: JSON values
        """Write it and return what was done."""
        run, target = self._spec.run, Path(self._spec.target)
        sources = run.data.sources
        # Whoever chose the file in the window was asked before one is replaced.
        check_targets([target], run.all_sources(), overwrite=True)
        meter = Meter(self._host, total_bytes(sources))
        if run.evaluation.path and self._acts("leakage"):
            self._read_held_out(run.all_sources()[-1])
        with self._opened(target) as file:
            for source in sources:
                self._copy(source, file, meter)
            num_written = file.num_rows
        changed = {name: number for name, number in self._counts.items() if name in RULES}
        return {
            "path": str(target),
            "num_rows": num_written,
            "num_read_rows": self._num_read,
            # Those that were read and did not get in.
            "num_left_out_rows": self._num_read - self._counts["copied"],
            "num_repaired_rows": self._counts["repaired"],
            "num_edited_rows": self._counts["edited"],
            "num_deleted_rows": self._counts["deleted"],
            "actions": {name: {"action": self._actions[name], "count": number} for name, number in changed.items()},
        }

    def _opened(self, target: Path) -> RowsFile:
        """Return the file that is written; CSV has the separator of the source, and the mark of UTF-8 for Excel."""
        if target.suffix.lower() != ".csv":
            return RowsFile(target)
        source, outline = self._spec.run.data.sources[0], Outline(target)
        path = Path(source.path)
        for row in (*head_rows(path, 1, encoding=source.encoding), *self._spec.edited.edits.values()):
            outline.add(row)
        return RowsFile(target, outline, delimiter=table_head(path, "csv", source.encoding)[0], encoding="utf-8-sig")

    def _read_held_out(self, source: SourceSpec) -> None:
        for file in open_tolerantly(source, self._host.portions, lambda _path, _line, _error: None):
            shape = Shape(file.layout)
            for number, (line, row) in enumerate(file.rows):
                self._held_out.add(_hash(shape, row))
                if number % ROWS_TOGETHER == 0:
                    file.announce(line)

    def _copy(self, source: SourceSpec, target: RowsFile, meter: Meter) -> None:
        edited: list[Position] = []
        counted = Counted()

        def bad(path: str, line: int, error: TunesmithError) -> None:
            self._num_read += line > 0
            if line and self._edited.has(position := counted.position(path, line)):
                edited.append(position)
                return
            rule = rule_of_error(error, is_read=False)
            if self._actions[rule] == STOP or not line:
                raise _Stop(error)
            self._counts[rule] += 1

        for file in open_tolerantly(source, self._host.portions, bad, self._in_labels):
            if file.problem is not None:
                raise file.problem
            self._copy_file(file, target, meter, edited)

    def _copy_file(self, file: Opened, target: RowsFile, meter: Meter, edited: list[Position]) -> None:
        shape, counted, number = Shape(file.layout, self._in_pairs), Counted(), 0

        def write(position: Position, row: Row) -> None:
            copied = self._rows_of(position, row, shape, file)
            self._counts["copied"] += bool(copied)
            for each in copied:
                target.add(each)

        for number, (line, row) in enumerate(file.rows, 1):
            self._num_read += 1
            # Bad rows at the beginning of a file are told before the first good one comes.
            while edited and edited[0][1] < line:
                write(edited.pop(0), {})
            write(counted.position(file.path, line), row)
            if number % ROWS_TOGETHER == 0:
                file.announce(line)
                meter.read(file, number)
        for before in edited:
            write(before, {})
        edited.clear()
        meter.end_file(file, number)

    def _rows_of(self, position: Position, row: Row, shape: Shape, file: Opened) -> list[Row]:
        """Return what stands in place of a row."""
        _file, line, _before = position
        if position in self._edited.deleted:
            self._counts["deleted"] += 1
            return []
        is_edited = position in self._edited.rows
        row = self._edited.rows.get(position, row)
        if self._is_refused(line, row, shape, file):
            return []
        repaired = self._repaired(row, shape)
        if repaired is None or self._is_copy(repaired, shape):
            return []
        parts = self._short_rows(repaired, shape.layout, file.source.place(line))
        if parts:
            # A row counts once, for what was done to it last.
            is_repaired = repaired is not row or len(parts) > 1
            self._counts["repaired"] += is_repaired
            self._counts["edited"] += is_edited and not is_repaired
        return parts

    def _is_refused(self, line: int, row: Row, shape: Shape, file: Opened) -> bool:
        try:
            problem = shape.look(row, file.source.place(line)) if shape.quick_texts(row) is None else None
        except UserError as error:
            rule = rule_of_error(error, is_read=True)
            if self._actions[rule] == STOP:
                raise
            self._counts[rule] += self._acts(rule)
            return self._acts(rule)
        if problem is not None and self._acts("role-order"):
            self._counts["role-order"] += 1
            return True
        broken = shape.pair_problem(row)
        if broken is not None and self._acts(broken[0]):
            self._counts[broken[0]] += 1
            return True
        return False

    def _repaired(self, row: Row, shape: Shape) -> Row | None:
        """Return a row whose texts are repaired, None when a rule leaves it out."""
        result = row
        for rule in self._rules:
            leaves = [leaf for leaf in shape.leaves(result, rule.name) if next(rule.find(leaf[1]), None)]
            if not leaves:
                continue
            self._counts[rule.name] += 1
            if self._actions[rule.name] == SKIP:
                return None
            result = copy.deepcopy(row) if result is row else result
            for keys, text in leaves:
                _set(result, keys, rule.repaired(text))
        return result

    def _is_copy(self, row: Row, shape: Shape) -> bool:
        value = _hash(shape, row)
        if value in self._held_out:
            self._counts["leakage"] += 1
            return True
        if self._acts("exact-duplicate"):
            if value in self._seen:
                self._counts["exact-duplicate"] += 1
                return True
            self._seen.add(value)
        if self._near and self._near.num_compared < MOST_NEAR_ROWS:
            num_pairs = len(self._near.pairs)
            self._near.add(self._num_read, "\n".join(text for _, text in shape.leaves(row)))
            if len(self._near.pairs) > num_pairs:
                self._counts["near-duplicate"] += 1
                return True
        return False

    def _short_rows(self, row: Row, layout: Layout | None, place: str) -> list[Row]:
        if self._splitter is None or layout is None or not self._splitter.is_too_long(row, layout, place):
            return [row]
        self._counts["over-long"] += 1
        return [] if self._actions["over-long"] == DROP else self._splitter.parts(row, layout, place)


def _checked_actions(chosen: dict[str, str]) -> dict[str, str]:
    actions = {name: rule.actions[0] for name, rule in RULES.items()} | {"over-long": TRUNCATE}
    for name, action in chosen.items():
        if name not in RULES or action not in RULES[name].actions:
            raise TunesmithError("usage", "{rule}: there is no action {action}.", rule=name, action=action)
    return actions | chosen


def _hash(shape: Shape, row: Row) -> int:
    return hash(tuple(text for _, text in shape.leaves(row)))


def _set(row: Row, keys: Keys, text: str) -> None:
    value: Any = row  # Any: JSON values
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = text
