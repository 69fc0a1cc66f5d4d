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
