"""The Triton kernels, run by Triton's interpreter in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sharpwave.primitives import backend

UNIT = Path(__file__).parents[1]
PARTS = [
    "returns", "rows", "priorities", "llm", "log_probs", "packing", "episodes", "ahead",
    "transformer", "world", "finite", "ppo_loss", "small_policy", "small_ppo", "mlp", "adam",
]  # fmt: skip
FILES = [
    *(f"primitives/test_{part}.py" for part in PARTS),
    "envs/on_device/test_steps.py",
    "learners/test_fused.py",
]


@pytest.mark.long
@pytest.mark.skipif(not backend.HAS_TRITON, reason="needs triton")
@pytest.mark.skipif(backend.INTERPRETED, reason="this is the interpreter's process")
@pytest.mark.parametrize("name", FILES)
def test_triton_kernels_pass_the_same_tests_in_the_interpreter(name: str) -> None:
    pytest.importorskip("triton")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "default"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(UNIT / name)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
