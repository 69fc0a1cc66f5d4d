"""Run the benchmarks: python benchmarks/run.py [--area AREA ...] [--quick] [--json FILE]."""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import json
import os
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import harness
import tables

AREAS = (
    "replay",
    "prioritized",
    "views",
    "primitives",
    "disk",
    "episodes",
    "threads",
    "memory",
    "envs",
)
LONG_AREAS = (
    "distributed",
    "multi",
    "train",
    "off_policy",
    "sb3_names",
    "offline",
    "llm",
    "learners",
    "fleet_ends",
    "remote_envs",
    "shards",
    "simulated_actors",
    "dreamer",
)
"""Run only where asked for."""
BUSY = 0.3
PACKAGES = {
    "sharpwave": "sharpwave",
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "torch": "torch",
    "rlox": "rlox",
    "SB3": "stable-baselines3",
    "cpprb": "cpprb",
    "tianshou": "tianshou",
    "memmap-rb": "memmap-replay-buffer",
    "mpe2": "mpe2",
    "transformers": "transformers",
    "TRL": "trl",
    "Ray": "ray",
    "gRPC": "grpcio",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time sharpwave beside its peers.")
    parser.add_argument("--area", nargs="+", choices=AREAS + LONG_AREAS, default=AREAS)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under a minute")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()

    single_torch_thread()
    facts = machine()
    if facts["load"] > BUSY * facts["cores"]:
        print(f"other work runs here (load {facts['load']:.1f}): expect noise, threads above all")
    results: tables.Results = []
    for area in arguments.area:
        rows = run_area(area, harness.QUICK if arguments.quick else harness.FULL)
        results += rows
        print(f"\n{area}\n{tables.plain(rows)}")
        for line in skipped(rows):
            print(line)
    print(f"\n{tables.summary(results)}")
    if arguments.json:
        report = {"machine": facts, "quick": arguments.quick, "results": results}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


def run_area(area: str, pace: harness.Pace) -> tables.Results:
    """Measure one area; its buffers are gone when it is done."""
    rows = importlib.import_module(f"bench_{area}").rows()
    results = []
    for result in harness.run(rows, pace):
        print(".", end="", flush=True)
        results.append(result.to_json(area))
    gc.collect()
    return results


def skipped(results: tables.Results) -> list[str]:
    """One line for every contender that could not be run, with the reason."""
    pairs = Counter(pair for row in results for pair in row["skipped"].items())
    return [f"skipped {name} in {n} rows: {reason}" for (name, reason), n in pairs.items()]


def single_torch_thread() -> None:
    """Keep torch to one thread: its waiting workers spin, and slow whoever is timed next."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


def machine() -> dict[str, Any]:
    """The machine and the versions that the numbers were measured on."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "isa": our_isa(),
        "versions": {name: installed(package) for name, package in PACKAGES.items()},
    }


def cpu_model() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def our_isa() -> str | None:
    """The instruction set that sharpwave chose on this machine."""
    try:
        from sharpwave import _native
    except ImportError:
        return None
    return str(_native.isa())


def installed(package: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
