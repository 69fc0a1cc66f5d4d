"""Run folders that are written by hand, and a server of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sharpwave.pages.serving import PageServer
from sharpwave.pages.watch import WatchedRuns, watch_server


def write_run(
    folder: Path, values: Sequence[float], *, status: str = "running", **options: Any
) -> Path:
    """A run that logged these returns, one every 100 steps and 2 seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "format": "sharpwave run",
        "algorithm": options.pop("algorithm", "ppo"),
        "env": "CartPole-v1",
        "seed": options.get("seed", 0),
        "config": {"seed": 0, "learning_rate": 0.001, **options},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.jsonl").write_text("")
    (folder / "summary.json").write_text(json.dumps({"status": status}))
    append(folder, values)
    return folder


def append(folder: Path, values: Sequence[float]) -> None:
    """Log more returns."""
    with (folder / "metrics.jsonl").open("a+") as file:
        file.seek(0)
        start = len(file.readlines())
        for i, value in enumerate(values, start + 1):
            row = {"step": 100 * i, "seconds": 2.0 * i, "mean_return": value, "loss": value / 10}
            file.write(json.dumps(row) + "\n")


@contextmanager
def served(root: Path) -> Iterator[PageServer]:
    """A server of runs that answers until the end of the block."""
    with watch_server(WatchedRuns(root)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
