"""Pages as notebooks: their Python blocks are cells, everything between them is text."""

from __future__ import annotations

import json
import re
from typing import Any

PAGES = (
    "getting_started.md",
    "tour.md",
    "training.md",
    "learners.md",
    "off_policy.md",
    "offline.md",
    "minari.md",
    "atari.md",
    "mujoco.md",
    "multi_agent.md",
    "world_models.md",
    "language_models.md",
    "gpu.md",
    "distributed.md",
    "buffers.md",
    "storage.md",
)
"""Pages that are programs from top to bottom."""

BLOCK = re.compile(
    r"(?P<skip><!-- no-test -->\n+)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?!https?:)[^)\s]*\)")


def notebook(page: str) -> str:
    """A page of Markdown as a notebook; links to other pages keep their words alone."""
    cells: list[dict[str, Any]] = []
    end = 0
    for block in BLOCK.finditer(page):
        if block["skip"] is not None:
            continue  # what is not run by the tests is for reading
        cells += _text(page[end : block.start()])
        cells.append({**_cell("code", block["code"]), "execution_count": None, "outputs": []})
        end = block.end()
    cells += _text(page[end:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    found = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(found, indent=1) + "\n"


def with_download(page: str, name: str) -> str:
    """A page with a link to its notebook under the title."""
    title, rest = page.split("\n", 1)
    return f"{title}\n\n{{download}}`This page as a notebook <notebooks/{name}>`\n{rest}"


def _text(markdown: str) -> list[dict[str, Any]]:
    words = LINK.sub(lambda match: "" if match[1] else match[2], markdown).strip()
    return [_cell("markdown", words)] if words else []


def _cell(kind: str, text: str) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": text.strip("\n").splitlines(True)}
