"""Runs tools/smoke.py with the oldest Gymnasium and NumPy that are allowed, and those between.

The versions are put over those of this environment by a folder that is found first; the compiled
module is the same, as it is for users. The newest versions are the pinned ones of `make test`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = [
    {"gymnasium": "1.1.0", "numpy": "2.0.0"},
    {"gymnasium": "1.2.3", "numpy": "2.2.6"},
    {"gymnasium": "1.3.0"},
]


def overlaid(versions: dict[str, str]) -> Path:
    """A folder with these versions alone, made once."""
    name = "-".join(f"{library}{version}" for library, version in versions.items())
    folder = ROOT / "build" / "oldest" / name
    if not (folder / "complete").exists():
        wanted = [f"{library}=={version}" for library, version in versions.items()]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([*pip, *wanted], check=True)
        (folder / "complete").touch()
    return folder


def main() -> int:
    """Try all versions; 1 if one of them fails."""
    failed = 0
    for versions in VERSIONS:
        path = f"{overlaid(versions)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        smoke = [sys.executable, "-W", "ignore", str(ROOT / "tools" / "smoke.py")]
        if subprocess.run(smoke, env=environment, check=False).returncode != 0:
            sys.stderr.write(f"failed with {versions}\n")
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
