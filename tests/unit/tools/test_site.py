"""The site: docstrings as reStructuredText, the list of names, and links that lead somewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sharpwave as sw
from sharpwave.algorithms.registry import algorithm_class
from tools.site import links, markup, notebooks, reference, staging

ROOT = Path(__file__).resolve().parents[3]


def page(body: str) -> str:
    return f"<html><body>{body}</body></html>"


def test_links_to_pages_and_anchors_are_found(tmp_path: Path) -> None:
    there = page('<p id="here"></p><a href="https://example.org/x">away</a>')
    (tmp_path / "there.html").write_text(there)
    (tmp_path / "a picture.svg").write_text("<svg/>")
    good = '<a href="there.html#here">x</a><a href="#own">y</a><img src="a%20picture.svg">'
    (tmp_path / "good.html").write_text(page(f'<b id="own"></b>{good}'))
    assert links.broken_links(tmp_path) == []


@pytest.mark.parametrize("address", ["gone.html", "there.html#gone", "#gone", "gone.svg", "../x"])
def test_links_that_lead_nowhere_are_named(tmp_path: Path, address: str) -> None:
    (tmp_path / "there.html").write_text(page('<p id="here"></p>'))
    (tmp_path / "bad.html").write_text(page(f'<a href="{address}">x</a>'))
    assert links.broken_links(tmp_path) == [f"bad.html: {address} leads nowhere"]


@pytest.mark.long
def test_every_public_name_has_an_entry() -> None:
    assert reference.missing() == {"__version__"}


@pytest.mark.long
def test_every_algorithm_has_a_page_with_its_configuration() -> None:
    pages = reference.pages()
    assert f"reference/{sw.PPO.name}.rst" in pages
    for name in reference.library_names():
        title = algorithm_class(name).__name__
        assert f".. autoclass:: sharpwave.{title}\n" in pages[f"reference/{name}.rst"]
        if hasattr(sw, f"{title}Config"):
            assert f"autoclass:: sharpwave.{title}Config\n" in pages[f"reference/{name}.rst"]


@pytest.mark.long
def test_no_name_has_two_entries() -> None:
    names = [name for title in reference.SUBJECTS for name in reference.names_of(title)]
    assert len(names) == len(set(names))


def test_code_is_marked_and_links_where_there_is_an_entry() -> None:
    lines = markup.restructured(
        ["Takes `n * 2`, a `sw.PPO` or `train()`."], {"PPO": "sharpwave.PPO"}
    )
    assert lines[0] == "Takes ``n * 2``, a :py:obj:`sw.PPO <sharpwave.PPO>` or ``train()``."


def test_signs_of_formulas_mean_nothing() -> None:
    text = "The ratio π_(a|s) over π_old_ times *x*."
    assert markup.restructured([text])[0] == r"The ratio π\_(a\|s) over π_old\_ times \*x\*."


def test_an_indented_block_keeps_its_lines() -> None:
    docstring = ["The loss", "", "    L = a", "      + b", "", "is small."]
    assert markup.restructured(docstring)[:8] == [
        *("The loss", "", ".. code-block:: text", "", "   L = a", "     + b", "", "is small."),
    ]


def test_examples_are_left_as_they_are() -> None:
    docstring = ["Example:", '    >>> f("*", `x`)', "    1"]
    assert markup.restructured(docstring)[:3] == docstring


def test_tables_become_lists() -> None:
    lines = markup.restructured(["| a | b |", "|---|---|", "| `x` | y |"])
    assert lines[:7] == [
        *(".. list-table::", "   :header-rows: 1", "", "   * - a", "     - b"),
        *("   * - ``x``", "     - y"),
    ]


@pytest.mark.long
def test_constants_bring_the_docstring_under_them() -> None:
    entry = reference.pages()["reference/checks_and_errors.rst"].partition("BUFFER_RULES\n\n")[2]
    assert "Keys: " in entry.partition(".. py:")[0]
    assert "``oldest_rows_are_overwritten_first``" in entry.partition(".. py:")[0]


@pytest.mark.long
def test_documents_lead_to_pages(tmp_path: Path) -> None:
    for folder in ("docs", "examples", "src"):
        (tmp_path / folder).mkdir()
    (tmp_path / "docs/conf.py").write_text("")
    (tmp_path / "examples/run.py").write_text('"""A program."""\n')
    (tmp_path / "src/deep.py").write_text("x = 1\n")
    links_of_all = "[a](b.md#c) [d](../src/deep.py) [e](../examples/) [f](../CONTRIBUTING.md#g)"
    code = "```python\ncalls[0](x.md)\n```"
    (tmp_path / "docs/a.md").write_text(f"{links_of_all} [h](https://x.org)\n{code}\n")
    (tmp_path / "CONTRIBUTING.md").write_text("[a](docs/a.md) [r](examples/run.py)\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n")
    staging.stage(tmp_path, tmp_path / "site")
    assert (tmp_path / "site/a.md").read_text() == (
        "[a](b.md#c) [d](files/src/deep.py.md) [e](examples/index.md) [f](contributing.md#g) "
        f"[h](https://x.org)\n{code}\n"
    )
    contributing = (tmp_path / "site/contributing.md").read_text()
    assert contributing == "[a](a.md) [r](examples/run.py.md)\n"
    assert "x = 1" in (tmp_path / "site/files/src/deep.py.md").read_text()
    assert "A program." in (tmp_path / "site/examples/index.md").read_text()
    (tmp_path / "src/deep.py").write_text("x = 2\n")
    (tmp_path / "docs/a.md").write_text("nothing\n")
    staging.stage(tmp_path, tmp_path / "site")
    assert not (tmp_path / "site/files/src/deep.py.md").exists()


@pytest.mark.parametrize("name", notebooks.PAGES)
def test_a_notebook_has_the_programs_of_its_page(name: str) -> None:
    text = (ROOT / "docs" / name).read_text()
    found = json.loads(notebooks.notebook(text))
    code = ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == "code"]
    blocks = [block for block in notebooks.BLOCK.finditer(text) if block["skip"] is None]
    assert code == [block["code"].strip("\n") for block in blocks]
    assert code
    first = found["cells"][0]
    assert first["cell_type"] == "markdown"
    assert first["source"][0].startswith("# ")
    compile("\n".join(code), name, "exec")


def test_a_notebook_has_no_links_to_pages_that_it_does_not_bring() -> None:
    page = "# T\n\n[a](b.md#c), [d](https://x.org)\n![e](f.svg)\n\n```python\nx = 1\n```\n"
    text, code = json.loads(notebooks.notebook(page))["cells"]
    assert "".join(text["source"]) == "# T\n\na, [d](https://x.org)"
    assert code["source"] == ["x = 1"]
