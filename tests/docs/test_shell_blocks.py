"""The commands of README and of the first pages do what they say on the README's own install.

`sharpwave enjoy runs/first`, its second command, failed there: pygame was in no extra.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import sharpwave as sw
from sharpwave.algorithms.registry import LANGUAGE_NAMES
from sharpwave.core.optional import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
FIRST_PAGES = [
    README,
    *((ROOT / "docs" / name).read_text() for name in ("tour.md", "getting_started.md")),
]
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.M)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.M)

ABSENT = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    blocked = name.partition(".")[0].lower() in {blocked!r}
    return None if blocked else find(name, path, target)


PathFinder.find_spec = find_spec
from sharpwave.cli import main
sys.exit(main())
"""
"""The command line where libraries are not installed: nothing finds them."""


def lines() -> list[str]:
    """The commands of all shell blocks, without comments."""
    found = [
        " ".join(shlex.split(line, comments=True))
        for page in FIRST_PAGES
        for block in SHELL.findall(page)
        for line in block.splitlines()
        if line.strip()
    ]
    return list(dict.fromkeys(found))


def installed_extras() -> set[str]:
    """The extras of the README's own install."""
    (named,) = re.findall(r'pip install "\.\[([\w,]+)\]"   #', README)
    return set(named.split(","))


def short(line: str) -> list[str]:
    """A command as it is, but for the length of its training."""
    words = shlex.split(line)
    if words[1] == "train":
        has_model = words[2] in LANGUAGE_NAMES
        length = ["2", "--eval-size", "2"] if has_model else ["256", "--eval-episodes", "1"]
        words += ["--total-timesteps", *length]
    return words[1:] + (["--episodes", "1"] if words[1] == "enjoy" else [])


@pytest.mark.long
def test_the_commands_run_with_what_the_install_names(tmp_path: Path) -> None:
    """With all other optional libraries out of reach, but for torch where there are models."""
    commands = [line for line in lines() if line.startswith("sharpwave ")]
    assert any("enjoy" in line for line in commands)
    agent = sw.PPO("CartPole-v1", n_envs=2, n_steps=32, batch_size=32)
    agent.train(64, run_dir=tmp_path / "runs" / "first")
    fields = {"state": ("float", 4), "action": "int", "reward": "float"}
    with sw.EpisodeBuffer(
        tmp_path / "episodes", max_episodes=10, max_timesteps=50, fields=fields
    ) as episodes:
        for _ in range(4):
            with episodes.one_episode():
                for _ in range(5):
                    episodes.store(state=np.zeros(4), action=1, reward=1.0)
    program = tmp_path / "sharpwave"
    for line in commands:
        extras = installed_extras() | ({"torch"} if "grpo" in line or "sample" in line else set())
        allowed = {name for name, extra in EXTRAS.items() if extra in extras}
        program.write_text(ABSENT.format(blocked=sorted(set(EXTRAS) - allowed)))
        done = subprocess.run(
            [sys.executable, str(program), *short(line)],
            cwd=tmp_path,
            env=os.environ | {"SDL_VIDEODRIVER": "dummy", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "Traceback" not in done.stderr


def test_what_is_installed_is_in_the_project() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for extra in installed_extras():
        assert re.search(rf"^{extra} = \[", text, re.M)


@pytest.mark.slow
def test_a_plain_install_runs_the_whole_readme(tmp_path: Path) -> None:
    """A wheel in an environment of its own, with what it declares and the README's extras."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"

    def run(*words: str, cwd: Path = ROOT) -> None:
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        path = f"{tmp_path / 'venv' / 'bin'}:{os.environ['PATH']}"
        environment = clean | {"SDL_VIDEODRIVER": "dummy", "PATH": path}
        done = subprocess.run(
            words, cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    pip = (str(python), "-m", "pip", "install", "--quiet")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps")
    run(*build, "--wheel-dir", str(tmp_path / "dist"), str(ROOT))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run(*pip, "-r", "requirements/torch.txt", "-c", "requirements/constraints.txt")
    extras = ",".join(sorted(installed_extras()))
    run(*pip, "-c", "requirements/constraints.txt", f"{wheel}[{extras}]")
    work = tmp_path / "work"
    work.mkdir()
    for page in FIRST_PAGES:
        (work / "page.py").write_text("\n".join(PYTHON.findall(page)))
        run(str(python), "page.py", cwd=work)
    for line in lines():
        if line.startswith("sharpwave "):
            run(*shlex.split(line), cwd=work)
