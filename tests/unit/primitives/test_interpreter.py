"""The Triton kernels, run by Triton's interpreter in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharpwave.primitives import backend

HERE = Path(__file__).parent
PARTS = [
    "returns", "rows", "priorities", "llm", "log_probs", "packing", "episodes", "ahead",
    "transformer", "world", "ppo_loss", "small_policy", "small_ppo",
    "../learners/fused",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.skipif(not backend.HAS_TRITON, reason="needs triton")
@pytest.mark.skipif(backend.INTERPRETED, reason="this is the interpreter's process")
@pytest.mark.parametrize("part", PARTS)
def test_triton_kernels_pass_the_same_tests_in_the_interpreter(part: str) -> None:
    pytest.importorskip("triton")
    folder, _, name = part.rpartition("/")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "default"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(HERE / folder / f"test_{name}.py")],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
