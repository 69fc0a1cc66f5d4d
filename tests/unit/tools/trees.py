"""Small source trees to measure."""

from pathlib import Path
from textwrap import dedent


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files under `root`, with the folders they need."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return root
