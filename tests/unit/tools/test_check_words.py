"""Other words than the field's are found, and their own table is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_words import places_of
from tools.house_table import importers


def found(path: Path, text: str) -> list[str]:
    path.write_text(text)
    return [str(place).removeprefix(f"{path}:") for place in places_of(path)]


@pytest.mark.parametrize("word", ["What", "Whether", "Where", "How", "Which"])
def test_docstrings_that_begin_with_a_question_word(word: str, tmp_path: Path) -> None:
    lines = [f'"""{word} is here."""', "", "", "class A:", '    """A thing."""', ""]
    text = "\n".join([*lines, "    x: int = 1", f'    """{word}."""', ""])
    says = f"a docstring begins with '{word}'"
    assert found(tmp_path / "a.py", text) == [f"1: {says}", f"8: {says}"]


def test_other_strings_may_ask(tmp_path: Path) -> None:
    assert found(tmp_path / "a.py", '"""A file."""\n\nsays = "What was expected"\n') == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("the slow copies move", "'slow copies' is called: target network"),
        ("a whole number", "'whole number' is called: integer"),
        ("an optimiser", "'optimis' is not American spelling"),
        ("Behaviour cloning", "'Behaviour' is not American spelling"),
    ],
)
def test_words_with_a_term(line: str, says: str, tmp_path: Path) -> None:
    assert found(tmp_path / "a.md", f"# Page\n\n{line}\n") == [f"3: {says}"]


def test_a_table_may_name_what_is_avoided(tmp_path: Path) -> None:
    assert found(tmp_path / "a.md", "| target network | slow copy |\n") == []


@pytest.mark.long
def test_importers_are_modules_that_name_a_module() -> None:
    known = importers()
    assert (
        "sharpwave.buffers.replay"
        in known["sharpwave.buffers.views"] | known["sharpwave.buffers.schema"]
    )
    assert "sharpwave.core.tree" not in known["sharpwave.core.tree"]
