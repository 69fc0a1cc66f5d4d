"""The sources of the site: the documents, and pages that are made of other files.

The documents stay plain Markdown that reads well anywhere, so what the site needs besides is done
to copies: a file outside of `docs` that a document links to becomes a page, and the link leads
there.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.site import notebooks, reference

DOCUMENTS = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "security.md",
}
"""Documents of the root, and the pages that they become."""
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\n)*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
PICTURES = {".svg", ".png", ".css"}


def stage(root: Path, source: Path) -> None:
    """Write the sources of the site.

    Args:
        root: The repository.
        source: The folder; files that are the same keep their times, so a build starts from there.
    """
    programs = sorted((root / "examples").glob("*.py"))
    linked = {path.relative_to(root) for path in programs}
    pages = reference.pages() | {"examples/index.md": _examples(programs)}
    others = [root / name for name in DOCUMENTS]
    documents = [*(root / "docs").glob("*.md"), *(path for path in others if path.exists())]
    for path in documents:
        page = DOCUMENTS.get(path.name, path.name)
        pages[page] = _with_pages(path, root, linked)
        if page in notebooks.PAGES:
            name = f"{path.stem}.ipynb"
            pages[f"notebooks/{name}"] = notebooks.notebook(path.read_text())
            pages[page] = notebooks.with_download(pages[page], name)
    for file in linked:
        pages[_page_of(file)] = _listing(root / file)
    files = {name: text.encode() for name, text in pages.items()}
    files["conf.py"] = (root / "docs/conf.py").read_bytes()
    for path in (root / "docs").rglob("*"):
        if path.suffix in PICTURES:
            files[str(path.relative_to(root / "docs"))] = path.read_bytes()
    _write(files, source)


def _write(files: dict[str, bytes], folder: Path) -> None:
    """Make a folder hold these files and no others."""
    for path in list(folder.rglob("*")):
        if path.is_file() and str(path.relative_to(folder)) not in files:
            path.unlink()
    for name, content in files.items():
        place = folder / name
        if not place.exists() or place.read_bytes() != content:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def _with_pages(document: Path, root: Path, linked: set[Path]) -> str:
    """The text of a document; the files outside that it links to are added to `linked`."""

    def lead(match: re.Match[str]) -> str:
        words, address = match[1], match[2]
        name, hash_sign, anchor = address.partition("#")
        if not name or "://" in address or name.startswith("mailto:"):
            return match[0]
        path = (document.parent / name).resolve().relative_to(root)
        if path.parts[0] == "docs":
            page = str(path.relative_to("docs"))
        elif str(path) in DOCUMENTS:
            page = DOCUMENTS[str(path)]
        elif path == Path("examples"):
            page = "examples/index.md"
        else:
            linked.add(path)
            page = _page_of(path)
        return f"[{words}]({page}{hash_sign}{anchor})"

    parts = FENCED.split(document.read_text())
    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in parts)


def _page_of(file: Path) -> str:
    return f"{file}.md" if file.parts[0] == "examples" else f"files/{file}.md"


def _listing(path: Path) -> str:
    """A file as a page."""
    text = path.read_text()
    language = {".py": "python", ".proto": "protobuf"}.get(path.suffix, "text")
    return f"---\norphan: true\n---\n# {path.name}\n\n```{language}\n{text}```\n"


def _examples(programs: list[Path]) -> str:
    """The list of the programs, each with the first line of its docstring."""
    lines = []
    for path in programs:
        found = re.search(r'^r?"""(.*?)(?:\n|""")', path.read_text(), re.MULTILINE)
        lines.append(f"- [{path.name}]({path.name}.md): {found[1] if found else ''}")
    entries = "\n".join(path.name for path in programs)
    toctree = f"```{{toctree}}\n:hidden:\n\n{entries}\n```"
    listed = "\n".join(lines)
    return f"# Examples\n\nWhole programs, which the tests run.\n\n{listed}\n\n{toctree}\n"
