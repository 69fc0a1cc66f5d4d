"""Weights are written and read with little memory beside their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, re, sys
from pathlib import Path
import numpy as np
from sharpwave.storage.checkpoints import CheckpointReader, write_checkpoint

kind, count = sys.argv[1], int(sys.argv[2])
rows = 128 * 2**20 // count // 4096
if kind == "numpy":
    make = lambda value: np.full((rows, 1024), value, np.float32)
else:
    import torch
    dtype = torch.bfloat16 if kind == "bfloat16" else torch.float32
    columns = 4096 // dtype.itemsize
    shape = (columns, rows) if kind == "views" else (rows, columns)
    make = lambda value: torch.full(shape, value, dtype=dtype)

def weights(value):
    made = {str(i): make(value) for i in range(count)}
    return {k: v.t() for k, v in made.items()} if kind == "views" else made

def status(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

def extra(work):
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = status("VmRSS")
    work()
    return status("VmHWM") - before

write_checkpoint("warm", {}, {"x": make(0)[:2]})
with CheckpointReader("warm") as checkpoint:
    checkpoint.copy_to("state.x", make(0)[:2])
model = weights(1.5)
size = sum(one.nbytes for one in model.values())
write = extra(lambda: write_checkpoint("a", {}, model))

def load():
    with CheckpointReader("a") as checkpoint:
        for name, parameter in model.items():
            checkpoint.copy_to(f"state.{name}", parameter)

for parameter in model.values():
    parameter[...] = 0
read = extra(load)
assert all((parameter == 1.5).all() for parameter in model.values())
with CheckpointReader("a") as checkpoint:
    opened = extra(lambda: [checkpoint.shape(name) for name in checkpoint.names])
print(json.dumps({"write": write / size, "read": read / size, "open": opened / size}))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "count"), [("numpy", 4), ("float32", 1), ("bfloat16", 4), ("views", 16)]
)
def test_the_peak_is_a_tenth_above_the_weights_at_most(
    kind: str, count: int, tmp_path: Path
) -> None:
    """Version 1 needed twice the weights beside them to write, and as much to read."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(count)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    extra = json.loads(ran.stdout)
    print(kind, extra)
    assert all(share <= 0.1 for share in extra.values()), extra
