"""A compiler that fails does not end a run."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sharpwave.learners.choose import compiled

TWICE = """
import sys, warnings
import torch
from sharpwave.learners.choose import compiled

torch.set_num_threads(1)
weight = torch.ones(4, requires_grad=True)

def loss(x):
    return (torch.nn.functional.silu(weight * x) * x.square()).sum()

step = compiled(loss)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2):
        step(torch.arange(4.0)).backward()
said = [str(w.message) for w in seen if "runs uncompiled" in str(w.message)]
print(len(said), weight.grad.tolist())
"""


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_a_function_runs_as_it_is_where_the_compiler_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def broken(*_: Any) -> Any:
        calls.append(1)
        raise OSError("file too short")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    torch._dynamo.reset()
    weight = torch.ones(3, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (weight * x).sum()

    step = compiled(loss)
    with pytest.warns(RuntimeWarning, match="loss runs uncompiled, since the compiler failed"):
        assert step(torch.ones(3)).item() == 3.0
    assert step(torch.full((3,), 2.0)).item() == 6.0
    assert len(calls) == 1


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # torch warns of itself where it imports its compiler
def test_errors_of_the_function_are_its_own() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(f"x must be positive, got {len(x)} numbers")

    with pytest.raises(ValueError, match="x must be positive, got 3 numbers"):
        compiled(loss)(torch.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["so", "py"])
def test_a_cache_that_a_killed_run_left_broken_is_outlived(suffix: str, tmp_path: Path) -> None:
    """Its files are there, but cut off, also those of the gradient."""
    command = [sys.executable, "-c", TWICE]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = partial(subprocess.run, command, env=environment, capture_output=True, text=True)
    whole = run(check=True).stdout.split(maxsplit=1)
    assert whole[0] == "0"
    files = list(tmp_path.rglob(f"*.{suffix}"))
    assert files
    for path in files:
        os.truncate(path, 40)
    broken = run(check=True).stdout.split(maxsplit=1)
    assert broken == ["1", whole[1]]
