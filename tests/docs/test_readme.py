"""The documents keep their word: their Python runs, their make targets and links exist."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?P<skip><!-- no-test -->\n+)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.M
)

NEEDS = {
    "atari.md": "ale_py",
    "mujoco.md": "mujoco",
    "minari.md": "minari",
    "tuning.md": "optuna",
}
"""Libraries of pages whose programs run where these are installed."""

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


@pytest.mark.long(
    only=[
        "README.md",
        "tour.md",
        "getting_started.md",
        "distributed.md",
        "language_models.md",
        "offline.md",
        "datasets.md",
        "training.md",
        "off_policy.md",
        "learners.md",
        "testing.md",
        "tuning.md",
        "atari.md",
        "mujoco.md",
        "minari.md",
        "multi_agent.md",
    ]
)
@each_document
def test_python_blocks_run_in_order(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if path.name in NEEDS:
        pytest.importorskip(NEEDS[path.name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    text = path.read_text()
    namespace: dict[str, Any] = {"__name__": path.stem}
    for block in BLOCK.finditer(text):
        if block["skip"] is None:
            # The empty lines give tracebacks the line numbers of the document.
            lines_before = text.count("\n", 0, block.start("code"))
            exec(compile("\n" * lines_before + block["code"], str(path), "exec"), namespace)
    assert namespace["__name__"] == path.stem


@each_document
def test_make_targets_exist(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.M))
    code = re.findall(r"`([^`\n]+)`|^(make .*)$", path.read_text(), re.M)
    named = re.findall(r"\bmake ([a-z0-9-]+)", "\n".join(a or b for a, b in code))
    assert set(named) <= targets


@each_document
def test_relative_links_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text())
    # Pages of the reference are made when the site is built, which checks the links to them.
    written = [link for link in links if not link.startswith("reference/")]
    missing = [link for link in written if not (path.parent / link).exists()]
    assert missing == []


def test_the_numbers_of_the_readme_are_those_of_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    numbers = importlib.import_module("readme_numbers")
    assert numbers.lines() in (ROOT / "README.md").read_text()


def test_the_readme_lists_all_optional_dependencies() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    section = pyproject.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = re.findall(r"^([\w-]+) = ", section, re.M)
    listed = (ROOT / "README.md").read_text().partition("Optional dependencies: ")[2]
    assert re.findall(r"`([\w-]+)`", listed.partition(", as in")[0]) == extras
