"""Print how much a stranger has to walk: files, importers, names that stand twice, words.

Run it as `python -m tools.house_table` before and after rooms change and compare.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tools import check_words, source_measures
from tools.check_layers import imports_of
from tools.source_measures import PACKAGE, parsed, python_files

Row = tuple[str, object]
ROOT = PACKAGE.parent
ENTRANCES = ("__init__", "__main__")


def module_name(path: Path) -> str:
    """The dotted name of a file; a package is named by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers() -> dict[str, set[str]]:
    """The modules that import each module, those of its own package's entrance left out."""
    names = {module_name(path): path for path in python_files(PACKAGE)}
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        for one in imports_of(path):
            # `from package import name` is an import of a module where there is one of that name.
            target = one.module if one.module in names else one.module.rpartition(".")[0]
            if target in names and target != name and not _enters(path, target):
                found[target].add(name)
    return found


def _enters(path: Path, target: str) -> bool:
    """Return whether the file is an entrance of the package that `target` lies in."""
    return path.stem in ENTRANCES and target.startswith(module_name(path.parent / "__init__.py"))


def classes_that_repeat() -> list[str]:
    """Names of public classes that are defined in more than one file outside of `compat`."""
    names = Counter(
        node.name
        for path in python_files(PACKAGE)
        if "compat" not in path.relative_to(PACKAGE).parts
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def terms() -> Iterator[Row]:
    """Occurrences of each term of the glossary, beside those of what it stands for."""
    text = "\n".join(path.read_text() for path in check_words.files(["src", "docs", "README.md"]))
    for pattern, term in check_words.TERMS.items():
        used = len(re.findall(re.escape(term.partition(",")[0]), text, re.IGNORECASE))
        avoided = len(re.findall(pattern, text, re.IGNORECASE))
        yield f"'{term}': used, avoided", f"{used}, {avoided}"


def rows() -> Iterator[Row]:
    """The measures by name."""
    paths = python_files(PACKAGE)
    lengths = [len(path.read_text().splitlines()) for path in paths]
    yield "files", len(paths)
    yield "lines", sum(lengths)
    yield "median of lines", int(statistics.median(lengths))
    entrances = {module_name(path) for path in paths if path.stem in ENTRANCES}
    known = {name: users for name, users in importers().items() if name not in entrances}
    yield "files with one importer", sum(len(users) == 1 for users in known.values())
    yield "file names that stand twice or more", len(source_measures.names_that_repeat())
    repeated = classes_that_repeat()
    yield "class names that stand twice or more", f"{len(repeated)} ({', '.join(repeated)})"
    places = [place for path in check_words.files(["src"]) for place in check_words.places_of(path)]
    begin = sum(place.text.startswith("a docstring") for place in places)
    yield "docstrings that begin with a question word", begin
    yield "other words than the field's", len(places) - begin
    yield from terms()


def main() -> int:
    """Print the table in Markdown."""
    sys.stdout.write("| measure | value |\n|---|---|\n")
    sys.stdout.writelines(f"| {name} | {value} |\n" for name, value in rows())
    return 0


if __name__ == "__main__":
    sys.exit(main())
