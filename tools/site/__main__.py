"""Build the site: `python -m tools.site` writes build/site/html and checks every link in it."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

from tools.site import links, staging

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Stage the sources, build them with warnings as errors, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", help="folder of the build")
    parser.add_argument("--jobs", default="auto", help="processes that read and write pages")
    arguments = parser.parse_args()
    source, html = arguments.out / "source", arguments.out / "html"
    staging.stage(ROOT, source)
    shutil.rmtree(html, ignore_errors=True)  # pages that are gone would still be checked
    options = ["-b", "html", "-W", "--keep-going", "-q", "-j", arguments.jobs]
    doctrees = ["-d", str(arguments.out / "doctrees")]
    status: int = sphinx_build([*options, *doctrees, str(source), str(html)])
    broken = links.broken_links(html)
    sys.stderr.write("".join(f"{line}\n" for line in broken))
    if status == 0 and not broken:
        sys.stdout.write(f"{html / 'index.html'}\n")
    return 1 if status or broken else 0


if __name__ == "__main__":
    sys.exit(main())
