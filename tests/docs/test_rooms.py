"""The pages about the house name rooms and files that are there, and all rooms."""

import re
from pathlib import Path

import pytest

from tools.check_layers import LAYERS
from tools.source_measures import PACKAGE

ROOT = PACKAGE.parents[1]
PAGES = ("CONTRIBUTING.md", "docs/architecture.md", "docs/walks.md")
PLACES = (PACKAGE, ROOT, ROOT / "native", ROOT / "src", ROOT / "tests", ROOT / "native/core/isa")
FOLDERS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
PATH = re.compile(r"`((?:[\w.]+/)+(?:\w+\.(?:py|cpp|hpp|inl|md))?)`")


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_are_there(page: str) -> None:
    named = PATH.findall((ROOT / page).read_text())
    ours = [path for path in named if path.split("/")[0] in FOLDERS or Path(path).suffix]
    examples = re.compile(r"NAME|\bx\.py")
    missing = [
        path
        for path in ours
        if not examples.search(path) and not any((place / path).exists() for place in PLACES)
    ]
    assert len(ours) > 10
    assert missing == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_room_has_a_sentence(page: str) -> None:
    text = (ROOT / page).read_text()
    rooms = {room.split("/")[0] for rooms in LAYERS for room in rooms} - {"."}
    assert {room for room in rooms if f"{room}/" not in text} == set()


def test_the_map_of_folders_is_that_of_the_folders() -> None:
    """Of the repository, of `native`, `tests` and the package; deeper ones where they are said."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.partition("## Where things are\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    said: set[str] = set()
    for cell in cells:
        first, *others = re.findall(r"`([\w/.]+)/`", cell)
        beside = Path(first).parent
        said |= {first, *(str(beside / name) for name in others)}
    missing = {folder for folder in said if not (ROOT / folder).is_dir()}
    deep = ("native", "tests", "src/sharpwave")
    there = {
        str(path.relative_to(ROOT))
        for folder in (".", *deep)
        for path in (ROOT / folder).iterdir()
        if path.is_dir() and _is_kept(path)
    } - {"src", *deep}
    assert missing == set()
    assert there - said == set()


def _is_kept(folder: Path) -> bool:
    """Return True for a folder that holds more than build outputs, caches and settings."""
    if folder.name.startswith((".", "__")) or folder.name in ("build", "dist", "runs"):
        return False
    return any(path.is_file() and "__pycache__" not in path.parts for path in folder.rglob("*"))
