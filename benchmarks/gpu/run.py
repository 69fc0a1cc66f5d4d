"""Check and time the kernels on a GPU: python benchmarks/gpu/run.py --out results_gpu.json."""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import platform
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import triton
from case import Case
from cases import all_cases
from timing import copy_bandwidth, eager_ms, graph_ms, matrix_rate, peak_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description="Check and time the kernels on a GPU.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results_gpu.json"))
    parser.add_argument("--only", default="", help="part of the names of cases")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    arguments = parser.parse_args()
    machine = facts()
    results: list[dict[str, Any]] = []
    for case in all_cases(not arguments.no_compile):
        if arguments.only in case.name:
            began = time.perf_counter()
            results.append(measured(case, machine))
            print(line(results[-1]), f"[{time.perf_counter() - began:.1f} s]", flush=True)
            report = {"machine": machine, "results": results}
            arguments.out.write_text(json.dumps(report, indent=1) + "\n")
        del case
        gc.collect()
        torch.cuda.empty_cache()


def facts() -> dict[str, Any]:
    """The machine and its two ceilings."""
    return {
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "versions": {"torch": torch.__version__, "triton": triton.__version__},
        "bytes_per_second": copy_bandwidth(),
        "operations_per_second": matrix_rate(),
    }


def measured(case: Case, machine: dict[str, Any]) -> dict[str, Any]:
    """The row of one case; a failure is a row too."""
    row: dict[str, Any] = {"operation": case.name, "targets": case.targets}
    try:
        row["error"] = case.check()
        row["correct"] = row["error"] <= case.tolerance
        row["eager_ms"] = eager_ms(case.ours)
        if case.graph_calls:
            row["graph_ms"] = graph_ms(case.ours, case.graph_calls)
        floor = case.bytes / machine["bytes_per_second"]
        floor = max(floor, case.flops / machine["operations_per_second"])
        if floor:
            row["floor_ms"] = floor * 1e3
            row["fraction"] = floor * 1e3 / row.get("graph_ms", row["eager_ms"])
        if case.memory_of:
            row["memory"] = peak_bytes(case.ours) / case.memory_of
        if case.torch is not None:
            row["torch_ms"] = eager_ms(case.torch, 10)
        if case.compiled is not None:
            row["compiled_ms"] = eager_ms(case.compiled)
    except Exception:
        row["failure"] = traceback.format_exc(limit=4)
    row["met"] = {name: met(name, bound, row.get(name)) for name, bound in case.targets.items()}
    return row


def met(name: str, bound: float, value: float | None) -> bool | None:
    """True if a target is reached; fractions count from below, times and memory from above."""
    if value is None:
        return None
    return value >= bound if name == "fraction" else value <= bound


def line(row: dict[str, Any]) -> str:
    names = ("correct", "error", "eager_ms", "graph_ms", "fraction", "memory", "torch_ms")
    texts = [f"{n}={row[n]:.4g}" for n in (*names, "compiled_ms") if n in row]
    return " ".join([row["operation"] + ":", *texts, str(row["met"]), row.get("failure", "")])


if __name__ == "__main__":
    main()
