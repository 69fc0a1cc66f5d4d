"""Fail when a room of the library imports from one above it, or torch where it must come late.

Rooms are folders of `src/sharpwave`; `LAYERS` has them from low to high. A room knows its own files
and the layers below it, and no other room of its layer. Imports count wherever they stand: one that
waits in a function, or serves type checkers alone, is knowledge of the other room all the same. So
does `from sharpwave.core.lazy import nn`.

`import sharpwave`, and importing an algorithm, must not import torch. So at the top of a module
only the rooms in `TORCH_ROOMS` import it, or each other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.source_measures import PACKAGE, parsed, python_files

LAYERS: tuple[tuple[str, ...], ...] = (
    # What every room may use: names of types, errors; and the compiled module.
    (".",),
    ("core",),
    ("storage", "primitives", "layouts"),
    ("pages",),
    ("envs",),
    ("buffers",),
    ("formats",),
    ("episodes", "collect"),
    ("pages/viewer", "distributed"),
    # The torch line: what lies below works without torch.
    ("primitives/tensors",),
    ("losses", "envs/on_device"),
    ("nn", "tensors/buffers"),
    ("llm",),
    ("config",),
    ("tensors",),
    ("learners",),
    ("loops",),
    ("runs",),
    ("agents",),
    ("algorithms",),
    ("datasets", "testing", "tuning"),
    ("cli", "compat", "integrations"),
)
RANKS = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
TORCH_ROOMS = {
    *("primitives/tensors", "envs/on_device", "losses", "nn", "tensors/buffers", "llm"),
    *("compat", "integrations"),
}
TENSOR_SIDE = {"tensors", "plain", "triton", "backend", "launching", "scan"}
"""Names of the files of `primitives` that compute with tensors. The rest of the room imports them
late, for arguments that are tensors."""
LAZY = "sharpwave.core.lazy"
ENTERS = "Belongs here:"
ENTRANCES = {"__init__.py", "__main__.py", "core/lazy.py"}
"""Files whose purpose is to name what lies in the rooms."""

EXCEPTIONS: dict[str, set[str]] = {
    "buffers/offline.py": {"episodes"},
}
"""Rooms that a file imports from and should not. The list only gets shorter."""


@dataclass(frozen=True)
class Import:
    """An import of a file.

    Attributes:
        module: With all its dots.
        line: Where.
        runs: True if importing the file imports it: it stands neither in a function nor under
            TYPE_CHECKING, and does not go through `sharpwave.core.lazy`.
    """

    module: str
    line: int
    runs: bool


def imports_of(path: Path) -> list[Import]:
    """All imports of a file, a name that is imported from a package as a module of its own."""
    return list(_imports(parsed(path), runs=True))


def _imports(node: ast.AST, *, runs: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(name.name, child.lineno, runs) for name in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module is not None:
            now = runs and child.module != LAZY
            for name in child.names:
                yield Import(f"{child.module}.{name.name}", child.lineno, now)
        elif isinstance(child, ast.If) and _asks_for_types(child.test):
            for part in child.body:
                yield from _imports(ast.Module([part], []), runs=False)
            for part in child.orelse:
                yield from _imports(ast.Module([part], []), runs=runs)
        else:
            waits = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(child, runs=runs and not waits)


def _asks_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def room_of(path: Path) -> str:
    """The room of a path within the package: the longest one in `LAYERS`, or its first folder."""
    if path.parts[0] == "primitives" and path.stem in TENSOR_SIDE:
        return "primitives/tensors"
    *folders, top = [parent.as_posix() for parent in path.parents]
    return next((folder for folder in folders if folder in RANKS), folders[-1] if folders else top)


@cache
def imported_room(module: str, root: Path) -> str | None:
    """The room that an import leads to; None outside of the library."""
    package, *names = module.replace(f"{LAZY}.", "sharpwave.").split(".")
    if package != "sharpwave":
        return None
    # The last name may be one within a module.
    path = Path(*names)
    while path.parts and not (root / path).is_dir() and not (root / f"{path}.py").is_file():
        path = path.parent
    return room_of(path / "*") if (root / path).is_dir() else room_of(path)


def is_below(other: str, room: str) -> bool:
    """Return whether a room may import from another one."""
    return RANKS.get(other, 0) < RANKS[room]


def faults_of(path: Path, root: Path) -> Iterator[tuple[str, int, str]]:
    """Imports of a file against the rules: the room or torch, the line, what is wrong."""
    room = room_of(path.relative_to(root))
    if room not in RANKS:
        yield room, 1, f"{room} is in no layer: give it a place in LAYERS"
        return
    for found in imports_of(path):
        other = imported_room(found.module, root)
        if other in TORCH_ROOMS and other.startswith(f"{room}/") and not found.runs:
            continue  # a room's own tensors, for arguments that ask for them
        if other is not None and other != room and not is_below(other, room):
            yield other, found.line, f"{room} imports from {other}, which is not below it"
        if found.runs and room not in TORCH_ROOMS:
            if found.module.split(".")[0] in ("torch", "triton"):
                yield (
                    "torch",
                    found.line,
                    f"{room} imports torch; name it through sharpwave.core.lazy",
                )
            elif other in TORCH_ROOMS and RANKS[other] < RANKS[room]:
                message = f"{room} imports {other} and with it torch; import it where it is used"
                yield "torch", found.line, message


def check(root: Path, exceptions: dict[str, set[str]]) -> list[str]:
    """Everything that is wrong under `root`, a line each."""
    wrong, excused = [], set()
    for path in python_files(root):
        name = path.relative_to(root).as_posix()
        if name in ENTRANCES:
            continue
        for other, line, message in faults_of(path, root):
            if other in exceptions.get(name, ()):
                excused.add((name, other))
            else:
                wrong.append(f"{name}:{line}: {message}")
    listed = {(name, other) for name, others in exceptions.items() for other in others}
    wrong += [
        f"{name} no longer imports from {other}: take it out of EXCEPTIONS"
        for name, other in sorted(listed - excused)
    ]
    return wrong


def rooms_that_keep_silent(root: Path) -> list[str]:
    """Rooms whose first lines do not say what may enter, a line each."""
    wrong = []
    for room in RANKS:
        entrance = root / room / "__init__.py"
        if room == "." or not (root / room).is_dir():
            continue  # the entrance of all, and rooms that are files of other rooms
        text = ast.get_docstring(parsed(entrance)) if entrance.exists() else None
        if f"\n\n{ENTERS}" not in (text or ""):
            wrong.append(f"{room}/__init__.py: its docstring must say what may enter: {ENTERS} ...")
    return wrong


def main() -> int:
    """Print what is wrong and return the exit status."""
    wrong = check(PACKAGE, EXCEPTIONS) + rooms_that_keep_silent(PACKAGE)
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
