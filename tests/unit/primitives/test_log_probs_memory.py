"""Memory of log-probabilities of hidden states on a CPU, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

STATUS = Path("/proc/self/status")
PROGRAM = """
import sys
from pathlib import Path
import torch
from sharpwave.primitives.log_probs.tensors import linear_log_probs

def highest():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024

def step(n_rows, n_vocab):
    hidden, weight = (torch.randn(n, 32, dtype=dtype).requires_grad_() for n in (n_rows, n_vocab))
    tokens = torch.randint(0, n_vocab, (n_rows,))
    sum(x.sum() for x in linear_log_probs(hidden, weight, tokens, entropy=True)).backward()

dtype = getattr(torch, sys.argv[1])
step(8, 300)  # what torch loads at the first use
before = highest()
step(2048, 20_000)
print(highest() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not STATUS.exists(), reason="needs the peak memory of a process")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_memory_stays_near_one_slice_in_both_passes(dtype: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, dtype], capture_output=True, text=True, check=True
    )
    size = 8 if dtype == "float64" else 4
    slice_mib, all_mib = 4 * size, 2048 * 20_000 * size >> 20
    assert int(done.stdout) < 3 * slice_mib + 30
    assert int(done.stdout) < all_mib / 2
