"""Builds a wheel, repairs its tag, and runs README's first program where there is no compiler.

    python tools/check_wheel.py           # prints size, tag and seconds; 1 where something fails

The wheel is installed into an environment of its own with what it asks for, so without torch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
STEPS = 5_000
"""Environment steps of the program, which README gives more."""
PIP = ["-m", "pip", "--quiet", "--disable-pip-version-check"]


def run(*command: str, **options: object) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]
    return str(done.stdout)


def repaired() -> Path:
    """A wheel for the machines of others, in dist/: of a manylinux tag, without libraries."""
    python = sys.executable
    path = {**os.environ, "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        run(python, *PIP, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, str(ROOT))
        (wheel,) = Path(folder).glob("*.whl")
        repair = ["-m", "auditwheel", "repair", "-w", f"{folder}/repaired", str(wheel)]
        run(python, *repair, env=path)  # which calls patchelf
        (found,) = Path(folder, "repaired").glob("*.whl")
        DIST.mkdir(exist_ok=True)
        return Path(shutil.copy(found, DIST))


def strangers(wheel: Path) -> list[str]:
    """Shared libraries in a wheel beside our own module."""
    names = zipfile.ZipFile(wheel).namelist()
    return [name for name in names if ".so" in name and "/_native." not in name]


def first_program() -> str:
    """README's first program in Python, with fewer steps."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    program, n = re.subn(r"train\([\d_]+", f"train({STEPS}", block[1])
    assert n == 1
    return program


def installed(wheel: Path, folder: Path) -> float:
    """Run the program with an installed wheel; return the seconds of installing it."""
    run(sys.executable, "-m", "venv", str(folder / "env"))
    python = str(folder / "env/bin/python")
    began = time.perf_counter()
    run(python, *PIP, "install", str(wheel))
    seconds = time.perf_counter() - began
    there = re.findall(r"^(\S+)", run(python, *PIP, "list"), re.MULTILINE)
    assert "torch" not in there, "the wheel brings torch"
    # No compiler is on this path.
    options = {"cwd": folder, "env": {"PATH": str(folder / "env/bin"), "HOME": str(folder)}}
    sys.stdout.write(run(python, "-W", "ignore", "-c", first_program(), **options))
    train = ["train", "ppo", "CartPole-v1", "--total-timesteps", str(STEPS), "--quiet"]
    run(str(folder / "env/bin/sharpwave"), *train, "--run-dir", "second", **options)
    assert (folder / "second/report.html").is_file()
    return seconds


def main() -> int:
    """Build, repair, install, run; 1 if the wheel has libraries of others or a plain tag."""
    wheel = repaired()
    size = wheel.stat().st_size / 1e6
    others = strangers(wheel)
    with tempfile.TemporaryDirectory() as folder:
        seconds = installed(wheel, Path(folder))
        site = next(Path(folder, "env/lib").glob("python*/site-packages"))
        files = [file for file in site.rglob("*") if file.is_file()]
        total = sum(file.stat().st_size for file in files) / 1e6
    sys.stdout.write(
        f"{wheel.name}: {size:.1f} MB, installed in {seconds:.0f} s, {total:.0f} MB with what it "
        f"needs{os.linesep}"
    )
    if "manylinux" not in wheel.name or others:
        sys.stderr.write(f"the wheel must be manylinux without libraries of others, has {others}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
