"""Print how much one must know to follow the library: members, lines, files, hops, branches.

Run it as `python -m tools.frame_table` before and after a change of the frame and compare.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sharpwave as sw
from tools import iteration_walk, source_measures
from tools.source_measures import PACKAGE

ALGORITHMS = ("SAC", "PPO")
BACKENDS = ("native", "torch")
Row = tuple[str, object]


def members(kind: type) -> list[str]:
    """Names that `dir` lists of a class, but for those with two underscores on both sides."""
    return [name for name in dir(kind) if not (name.startswith("__") and name.endswith("__"))]


def lineage(kind: type) -> list[type]:
    """The class and those of its bases that are the library's."""
    return [base for base in inspect.getmro(kind) if base.__module__.startswith(sw.__name__)]


def lines_of(kinds: list[type]) -> int:
    """Lines of the classes, docstrings included."""
    return sum(len(inspect.getsource(kind).splitlines()) for kind in kinds)


def class_rows(name: str) -> Iterator[Row]:
    """Sizes of one public class, and of its learner where it names one."""
    kind: Any = getattr(sw, name)
    for role, part in ((name, kind), (f"{name}.Learner", getattr(kind, "Learner", None))):
        if part is None:
            continue
        names, kinds = members(part), lineage(part)
        private = sum(member.startswith("_") for member in names)
        yield f"{role}: members (of these private)", f"{len(names)} ({private})"
        yield f"{role}: bases", f"{len(kinds) - 1} ({' '.join(k.__name__ for k in kinds[1:])})"
        yield f"{role}: lines of the class and its bases", lines_of(kinds)
    path = Path(inspect.getfile(kind))
    yield f"{name}: lines of {path.relative_to(PACKAGE)}", len(path.read_text().splitlines())


def walk_rows() -> Iterator[Row]:
    """The ways of one iteration and of one action."""
    for name in ALGORITHMS:
        for backend in BACKENDS:
            walk = iteration_walk.iteration(name, backend)
            yield f"{name}, {backend}: files visited by an iteration", len(walk.files)
            yield f"{name}, {backend}: changes of file in it", walk.changes
            yield f"{name}, {backend}: calls in it", walk.calls
            hops = iteration_walk.acting_hops(name, backend)
            way = ", ".join(hop.partition(":")[2] for hop in hops)
            yield f"{name}, {backend}: hops of acting", f"{len(hops)} ({way})"


def source_rows() -> Iterator[Row]:
    """Branches, repetition and sizes."""
    yield "tests of a backend", len(source_measures.backend_tests())
    yield "isinstance of buffers, collectors, environments", len(source_measures.kind_tests())

    repeated = source_measures.repetition()
    yield "repeated among algorithms", f"{source_measures.total(repeated.values()).share:.1f} %"
    worst = sorted(repeated.items(), key=lambda item: -item[1].share)[:3]
    yield "most repeated", ", ".join(f"{name} {part.share:.0f} %" for name, part in worst)

    rooms = source_measures.lines_by_room()
    yield "files", sum(files for files, _ in rooms.values())
    yield "lines of code", sum(lines for _, lines in rooms.values())
    yield "file names that stand twice or more", len(source_measures.names_that_repeat())
    for room, (files, lines) in rooms.items():
        yield f"room {room}: lines of code (files)", f"{lines} ({files})"


def main() -> int:
    """Print the table in Markdown."""
    rows = [row for name in ALGORITHMS for row in class_rows(name)]
    rows += [*walk_rows(), *source_rows()]
    sys.stdout.write("| measure | value |\n|---|---|\n")
    sys.stdout.writelines(f"| {name} | {value} |\n" for name, value in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
