"""Docstrings in the library's Markdown as reStructuredText.

Single backticks are code, and link where they name something of the reference; a block that is
indented after an empty line is a formula.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping

CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
SPECIAL = re.compile(r"[\\*|]|(?<=\w)_(?!\w)")
SECTION = re.compile(r"^\s*[A-Z][a-z]+:$")
NO_LINKS: Mapping[str, str] = {}


def restructured(lines: list[str], links: Mapping[str, str] = NO_LINKS) -> list[str]:
    """The lines of a docstring as reStructuredText, with the sections that napoleon reads.

    Args:
        lines: The docstring.
        links: Whole names of what has an entry, by what a docstring calls them.

    Example:
        >>> restructured(["The ratio `r * 2`."])
        ['The ratio ``r * 2``.']
    """
    return [line for block in _blocks(lines, links) for line in block]


def _blocks(lines: list[str], links: Mapping[str, str]) -> Iterator[list[str]]:
    """Blocks between empty lines, each turned into what it is."""
    block: list[str] = []
    before = ""
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
            continue
        if block:
            yield _block(block, before, links)
            before = block[-1]
            block = []
        yield [""]


def _block(block: list[str], before: str, links: Mapping[str, str]) -> list[str]:
    first = block[0].lstrip()
    if first.startswith((">>>", "...", "===")):
        return block
    if first.startswith("|"):
        return _table(block, links)
    if _indent(block[0]) > _indent(before) and before and not SECTION.match(before):
        # A formula keeps its lines.
        margin = " " * _indent(before)
        return [
            f"{margin}.. code-block:: text",
            "",
            *(f"{margin}   {line}" for line in textwrap.dedent("\n".join(block)).split("\n")),
        ]
    example = next((i for i, line in enumerate(block) if line.lstrip().startswith(">>>")), None)
    words = block if example is None else block[:example]
    inner = _escaped("\n".join(words), links).split("\n") if words else []
    return inner if example is None else [*inner, *block[example:]]


def _table(block: list[str], links: Mapping[str, str]) -> list[str]:
    """A Markdown table as a list table."""
    margin = " " * _indent(block[0])
    rows = [line.strip().strip("|").split("|") for line in block]
    found = [f"{margin}.. list-table::", f"{margin}   :header-rows: 1", ""]
    for cells in rows[:1] + rows[2:]:
        for i, cell in enumerate(cells):
            found.append(f"{margin}   {'* -' if i == 0 else '  -'} {_escaped(cell.strip(), links)}")
    return found


def _escaped(text: str, links: Mapping[str, str]) -> str:
    """Text in which only code between backticks is marked."""
    found, end = "", 0
    for match in CODE.finditer(text):
        found += SPECIAL.sub(r"\\\g<0>", text[end : match.start()]) + _code(match, links)
        end = match.end()
    return found + SPECIAL.sub(r"\\\g<0>", text[end:])


def _code(match: re.Match[str], links: Mapping[str, str]) -> str:
    words, text = match[2], match.string
    name = words.removeprefix("sw.").removesuffix("()")
    target = links.get(name)
    marked = f":py:obj:`{words} <{target}>`" if target else f"``{words}``"
    # Between letters the markup would not be seen.
    before = "\\ " if match.start() and text[match.start() - 1].isalnum() else ""
    after = "\\ " if match.end() < len(text) and text[match.end()].isalnum() else ""
    return f"{before}{marked}{after}"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
