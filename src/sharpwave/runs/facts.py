"""Environment of a run: versions, machine, command line and state of the user's repository."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = ("sharpwave", "torch", "numpy", "gymnasium")
GIT_SECONDS = 5
DIFF_STAT_CHARACTERS = 4000


def environment_facts() -> dict[str, Any]:
    """Everything that is known about here and now, in values that JSON can hold."""
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        **{name: _version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cpu_count": os.cpu_count(),
        "gpu": _gpu(),
        "argv": list(sys.argv),
        "git": git_facts(Path.cwd()),
    }


def git_facts(folder: Path) -> dict[str, Any] | None:
    """Commit, branch and uncommitted changes of the repository that a folder is in.

    Untracked files, such as the runs themselves, do not count as changes.

    Returns:
        None when there is no repository, no commit in it, or no git.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    status = _git(folder, "status", "--porcelain", "--untracked-files=no")
    stat = _git(folder, "diff", "--stat", "HEAD") if status else ""
    return {
        "commit": commit,
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "dirty": None if status is None else bool(status),
        "diff_stat": (stat or "")[:DIFF_STAT_CHARACTERS],
    }


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command; None when it fails."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_SECONDS,
            check=False,
            # Looking must not take locks that a commit at the same moment would meet.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.rstrip() if answer.returncode == 0 else None


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return getattr(sys.modules.get(library), "__version__", None)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _gpu() -> str | None:
    """Name of the GPU, if the run has loaded a torch that sees one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name())
