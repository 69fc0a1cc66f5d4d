"""Fail when a source file has more than 500 lines: it holds more than one idea."""

import subprocess
import sys
from pathlib import Path

LIMIT = 500
SUFFIXES = {".py", ".cpp", ".hpp", ".inl", ".md", ".txt", ".json", ".toml"}
GENERATED = ("src/sharpwave/_native.pyi", "benchmarks/results*.json*")
GROWING = ("CHANGELOG.md",)


def main() -> int:
    """Print the files that are too long and return the exit status."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    paths = [Path(line) for line in listed.stdout.splitlines()]
    too_long = []
    for path in paths:
        if (
            path.suffix in SUFFIXES
            and path.exists()
            and not any(map(path.match, (*GENERATED, *GROWING)))
        ):
            lines = len(path.read_text().splitlines())
            if lines > LIMIT:
                too_long.append(f"{path} has {lines} lines, the limit is {LIMIT}\n")
    sys.stderr.write("".join(too_long))
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
