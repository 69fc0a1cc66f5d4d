"""A flush reaches the disk: every file is synced, and the commit words last."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void note(const char* what, const char* path) {
  FILE* file = fopen(getenv("SYNC_LOG"), "a");
  fprintf(file, "%s%s\n", what, path);
  fclose(file);
}

static int sync_with(const char* name, int descriptor) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if (readlink(link, path, sizeof path - 1) > 0) note("", path);
  return ((int (*)(int))dlsym(RTLD_NEXT, name))(descriptor);
}

int fsync(int descriptor) { return sync_with("fsync", descriptor); }
int fdatasync(int descriptor) { return sync_with("fdatasync", descriptor); }

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (flags & O_EXCL) note("made ", path);
  return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open"))(path, flags, mode);
}
"""

EPISODES = """
import sys, numpy as np
from sharpwave import EpisodeBuffer
fields = {"frame": ("uint8", 2048), "reward": "float"}
durability = "power" if "power" in sys.argv else "process"
buffer = EpisodeBuffer(sys.argv[1], 100, 500, fields, {"task": "int"}, durability=durability)
buffer.store_episode(frame=np.ones((200, 2048)), reward=np.ones(200), task=1)
buffer.batched_episode(2, task=[1, 2]).__enter__()
buffer.store_batch(frame=np.ones((2, 2048)), reward=np.ones(2))
"""

REPLAY = """
import sys, numpy as np
from sharpwave import MmapReplayBuffer
fields = {"obs": ("uint8", (2048,)), "action": "int8", "reward": "float32",
          "terminated": "bool", "truncated": "bool"}
durability = "power" if "power" in sys.argv else "process"
buffer = MmapReplayBuffer(10, 1000, fields=fields, n_envs=2, prioritized=True,
                          cold_path=sys.argv[1], durability=durability)
for i in range(100):
    obs = np.full((2, 2048), i)
    buffer.push_batch(obs, obs + 1, [0, 0], [1, 2], [False] * 2, [False] * 2)
"""

FLUSH = """
if durability == "process":
    buffer.flush()
import os
os.write(1, b"flushed")
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that notes what is synced."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    library = folder / "shim.so"
    command: list[str | Path] = [
        compiler,
        "-shared",
        "-fPIC",
        "-o",
        library,
        folder / "shim.c",
        "-ldl",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return library


@pytest.mark.long
@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("script", [EPISODES, REPLAY], ids=["episodes", "replay"])
def test_a_flush_syncs_every_file_and_the_commit_words_last(
    script: str, durability: str, shim: Path, tmp_path: Path
) -> None:
    folder, log = tmp_path / "buffer", tmp_path / "log"
    result = subprocess.run(
        [sys.executable, "-c", script + FLUSH, str(folder), durability],
        capture_output=True,
        check=False,
        env={
            **os.environ,
            "LD_PRELOAD": str(shim),
            "SYNC_LOG": str(log),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
    )
    assert result.stdout == b"flushed", result.stderr.decode()
    # The header gets its name when it is written.
    noted = re.sub(r"/\.header\.json\.\S+\.tmp", "/header.json", log.read_text())
    synced = noted.split("\n")[:-1]
    # A thread that saves now and then may have begun once more, and not come to the commit words.
    ends = [number for number, path in enumerate(synced) if path == str(folder / "state")]
    synced = synced[: ends[-1] + 1]
    last = {path: number for number, path in enumerate(synced)}
    state = last[str(folder / "state")]
    names = {path.name.rsplit(".", 1)[0] for path in folder.glob("*/*.0*")}
    assert names >= ({"frame", "reward", "task", "lanes"} if script is EPISODES else {"rows-1"})
    for path in folder.rglob("*"):
        if path.is_dir() or path.name == "lock":
            continue
        if path.suffix.removeprefix(".").isdigit() and not any(path.read_bytes()[:4096]):
            continue
        assert str(path) in last, path.name
        made = synced.index(str(path) if path.name == "header.json" else f"made {path}")
        assert made < last[str(path.parent)] < state, path.name  # its name, too
    assert str(tmp_path) in last
