"""Measures of the source tree that need no run: rooms, lines, branches on backends, repetition.

A room is a folder of `src/sharpwave`; what lies deeper belongs to it.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "sharpwave"
TRAINING_ROOMS = ("algorithms", "agents", "learners", "loops", "runs", "config")
"""Rooms in which only the choice of a learner may ask for a backend."""
CHOICE = "learners/choose.py"
BACKEND = re.compile(r"native|backend")
KINDS = re.compile(r"(Buffer|Store|Collector|Env|Environment|Rollouts|Dataset)s?$")
WINDOW = 4

NO_CODE = (ast.Import, ast.ImportFrom)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Place:
    """A line of the tree, and what stands there."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def python_files(root: Path, rooms: Iterable[str] | None = None) -> list[Path]:
    """The Python files under `root`, sorted; of some rooms alone where these are given."""
    if rooms is None:
        return sorted(root.rglob("*.py"))
    return sorted(path for room in rooms for path in (root / room).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(), str(path))


def code_lines(path: Path) -> list[str]:
    """The lines that say something: no blanks, comments, imports or docstrings; stripped."""
    text, tree = path.read_text(), parsed(path)
    silent = {number for node in ast.walk(tree) for number in _lines_without_code(node)}
    return [
        line.strip()
        for number, line in enumerate(text.splitlines(), 1)
        if number not in silent and line.strip() and not line.strip().startswith("#")
    ]


def _lines_without_code(node: ast.AST) -> Iterable[int]:
    """The lines of an import, or of the strings that document what is in a body."""
    if isinstance(node, NO_CODE):
        return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    if isinstance(node, DOCUMENTED):
        return [
            number
            for statement in node.body
            if isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
            for number in range(statement.lineno, (statement.end_lineno or 0) + 1)
        ]
    return ()


def lines_by_room(root: Path = PACKAGE) -> dict[str, tuple[int, int]]:
    """The number of files and of lines of code by room; "." holds the files outside of rooms."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path in python_files(root):
        parts = path.relative_to(root).parts
        room = parts[0] if len(parts) > 1 else "."
        files[room] += 1
        lines[room] += len(code_lines(path))
    return {room: (files[room], lines[room]) for room in sorted(files)}


def names_that_repeat(root: Path = PACKAGE) -> list[str]:
    """The names of files that stand in the tree more than once, but for `__init__.py`."""
    names = Counter(path.name for path in python_files(root) if path.name != "__init__.py")
    return sorted(name for name, count in names.items() if count > 1)


def backend_tests(root: Path = PACKAGE) -> list[Place]:
    """Tests that mention a backend, in the rooms of training but for the choice of a learner.

    A test is that of `if`, `while`, `assert`, a conditional expression, a comprehension or a case,
    and a comparison outside of these. It counts once however often it mentions one.
    """
    return [
        Place(name, test.lineno, ast.unparse(test))
        for path in python_files(root, TRAINING_ROOMS)
        if (name := path.relative_to(root).as_posix()) != CHOICE
        for test in _tests(parsed(path))
        if any(BACKEND.search(word) for word in _words(test))
    ]


def kind_tests(root: Path = PACKAGE) -> list[Place]:
    """Calls of isinstance that ask for a kind of buffer, collector or environment, there too."""
    return [
        Place(path.relative_to(root).as_posix(), node.lineno, ast.unparse(node))
        for path in python_files(root, TRAINING_ROOMS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(KINDS.search(word) for word in _words(node.args[1]))
    ]


def _tests(tree: ast.AST) -> Iterator[ast.expr]:
    """The tests of a tree, outermost first, none of them within another."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Compare):
            yield node
            continue
        tests = _tests_of(node)
        yield from tests
        for child in ast.iter_child_nodes(node):
            if child not in tests:
                # The child itself may be a test: a holder lets `_tests` see it.
                yield from _tests(ast.Expr(value=child))  # type: ignore[arg-type]


def _tests_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return node.ifs
    if isinstance(node, ast.match_case) and node.guard is not None:
        return [node.guard]
    return []


def _words(expression: ast.AST) -> Iterator[str]:
    """The names, attributes and strings of an expression."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@dataclass(frozen=True)
class Repetition:
    """Number of lines of code, and of those among them that stand elsewhere too."""

    lines: int
    repeated: int

    @property
    def share(self) -> float:
        """The part that is repeated, in percent."""
        return 100.0 * self.repeated / max(self.lines, 1)


def repetition(folder: Path = PACKAGE / "algorithms") -> dict[str, Repetition]:
    """Repetition among the files of a folder that define classes, by name.

    Tables of settings would dilute the share. A line is repeated when it is part of four lines of
    code in a row that also stand, in the same order and without anything between, in another of
    the files.
    """
    lines = {
        path.name: code_lines(path)
        for path in python_files(folder)
        if any(isinstance(node, ast.ClassDef) for node in parsed(path).body)
    }
    holders: dict[tuple[str, ...], set[str]] = {}
    for name, code in lines.items():
        for window in _windows(code):
            holders.setdefault(window, set()).add(name)

    found = {}
    for name, code in lines.items():
        repeated = {
            start + offset
            for start, window in enumerate(_windows(code))
            if len(holders[window]) > 1
            for offset in range(WINDOW)
        }
        found[name] = Repetition(len(code), len(repeated))
    return found


def _windows(code: list[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(code[start : start + WINDOW]) for start in range(len(code) - WINDOW + 1))


def total(parts: Iterable[Repetition]) -> Repetition:
    """The sum over files."""
    parts = list(parts)
    return Repetition(sum(part.lines for part in parts), sum(part.repeated for part in parts))
