"""File systems for the tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts file systems, where the machine lets us."""
    mounted: list[Path] = []

    def mount(name: str, *arguments: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        try:
            subprocess.run(["mount", *arguments, str(path)], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no file system can be mounted here")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def small_disk(mount: Callable[..., Path]) -> Path:
    """A file system of its own with little room."""
    return mount("disk", "-t", "tmpfs", "-o", "size=512k", "tmpfs")
