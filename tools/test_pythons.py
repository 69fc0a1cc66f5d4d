"""Builds the library for the oldest and the newest Python that are here, and runs tools/smoke.py.

They have what the project file asks of every user and nothing else, so no torch: what is native
needs none. A Python that is not installed is skipped and named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
OLDEST, NEWEST = ("3.10",), ("3.14", "3.13", "3.12")
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
BUILD = ["nanobind>=3.1,<4", "ninja", "numpy>=2", "scikit-build-core>=1.1,<2"]
NEEDED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def interpreter(version: str) -> str | None:
    """A Python of that version that runs, from the path or from pyenv."""
    name = f"python{version}"
    installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}")
    for candidate in (shutil.which(name), *map(str, installed)):
        if candidate is not None:
            works = subprocess.run([candidate, "-c", ""], capture_output=True, check=False)
            if works.returncode == 0:
                return candidate
    return None


def smoke(version: str, executable: str) -> bool:
    """Build the library for a Python and return whether it works."""
    folder = ROOT / "build" / "pythons" / version
    python = str(folder / "bin" / "python")
    if not (folder / "complete").exists():
        subprocess.run([executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([python, *PIP, *BUILD, *NEEDED], check=True)
        (folder / "complete").touch()
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"}
    build = [python, *PIP, "--no-build-isolation", "--no-deps", "--force-reinstall", str(ROOT)]
    run = [python, "-W", "ignore", str(ROOT / "tools" / "smoke.py"), "--without-torch"]
    # From elsewhere, so that what is installed is what is imported.
    return all(
        subprocess.run(command, env=environment, cwd=folder, check=False).returncode == 0
        for command in (build, run)
    )


def main() -> int:
    """Try both; 1 if one of them fails."""
    failed = 0
    for versions in (OLDEST, NEWEST):
        found = ((version, interpreter(version)) for version in versions)
        version, executable = next((pair for pair in found if pair[1]), (versions[0], None))
        if executable is None:
            sys.stdout.write(f"skipped: no Python {' or '.join(versions)} here\n")
        elif not smoke(version, executable):
            sys.stderr.write(f"failed with Python {version}\n")
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
