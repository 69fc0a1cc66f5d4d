"""Fail where the prose leaves the words of the field.

Docstrings that begin with a question word, British spelling, and phrases that the glossary of
CONTRIBUTING.md has a term for.

`python -m tools.check_words PATH ...` looks at some files or folders alone; `--count` prints a line
per room.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.source_measures import Place, parsed

FOLDERS = ("src", "docs", "tools", "examples", "tests", "benchmarks")
ROOTS = (*FOLDERS, "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
SUFFIXES = {".py", ".md"}
QUESTIONS = {"What", "Whether", "Whoever", "Where", "How", "Which", "Who", "Whose"}
"""A docstring begins with what the thing is or does, so none of these."""

TERMS = {
    r"slow cop(y|ies)": "target network",
    r"(weight of (the )?entropy|entropy's weight)": "entropy coefficient",
    r"wanted[ _]entropy": "target entropy",
    r"whole numbers?": "integer",
    r"longest gradient": "maximum norm of the gradient",
    r"live[sd]? through": "transition, episode, trajectory",
    r"from the latest rollout": "on-policy",
    r"leaves nothing to chance": "deterministic given the seed",
}
"""What is avoided, and the term of the field for it."""

STEMS = """
artefact behaviour catalogue centre colour discretis favour finalis generalis grey initialis labell
learnt maximis minimis modell neighbour normalis optimis organis parallelise penalis prioritis
quantis randomis recognis regularis serialis standardis summaris synchronis tokenis travell
vectoris
"""
BRITISH = re.compile("|".join(STEMS.split()), re.IGNORECASE)
AVOIDED = {re.compile(pattern, re.IGNORECASE): term for pattern, term in TERMS.items()}
TABLE = re.compile(r"^\| .* \| .* \|$")
"""Rows of tables, such as the glossary's own, may name what is avoided."""

CODE = re.compile(r"`[^`]*`")
"""Code in documents, which may be a name of before."""
OF_WORDS = {"check_words", "test_check_words"}
"""Files that are about the words that are avoided."""

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def main() -> int:
    """Print the places and return the exit status."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--count"]
    places = [place for path in files(arguments or list(ROOTS)) for place in places_of(path)]
    if "--count" in sys.argv[1:]:
        for room, count in Counter(room_of(place.path) for place in places).most_common():
            sys.stdout.write(f"{count:6} {room}\n")
    else:
        sys.stderr.write("".join(f"{place}\n" for place in places))
    return 1 if places else 0


def files(roots: list[str]) -> list[Path]:
    """The files of the tree with prose, but for those that are generated."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *roots],
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [Path(line) for line in listed.stdout.splitlines()]
    return [x for x in paths if x.suffix in SUFFIXES and x.exists() and x.stem not in OF_WORDS]


def places_of(path: Path) -> Iterator[Place]:
    """Places of a file that say it in other words than the field's."""
    if path.suffix == ".py":
        yield from question_words(path)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if path.suffix == ".md":
            if TABLE.match(line):
                continue
            line = CODE.sub("", line)
        for found in BRITISH.finditer(line):
            yield Place(str(path), number, f"'{found.group()}' is not American spelling")
        for avoided, term in AVOIDED.items():
            if said := avoided.search(line):
                yield Place(str(path), number, f"'{said.group()}' is called: {term}")


def question_words(path: Path) -> Iterator[Place]:
    """Docstrings, of options and constants too, that begin with a question word."""
    for line, text in docstrings(parsed(path)):
        first = text.split()[0].strip(".,:;'s") if text.split() else ""
        if first in QUESTIONS:
            yield Place(str(path), line, f"a docstring begins with '{first}'")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions, fields and constants, with their lines."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(node, DOCUMENTED) or not isinstance(body, list):
            continue
        for index, statement in enumerate(body):
            value = statement.value if isinstance(statement, ast.Expr) else None
            if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
                continue
            if index == 0 or isinstance(body[index - 1], ast.Assign | ast.AnnAssign):
                yield statement.lineno, value.value


def room_of(path: str) -> str:
    """The folder of a file below `src/sharpwave`, or its first folder."""
    parts = Path(path).parts
    return parts[2] if parts[0] == "src" and len(parts) > 3 else parts[0]


if __name__ == "__main__":
    sys.exit(main())
