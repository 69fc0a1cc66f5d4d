"""The table of the kernels for the documentation."""

from __future__ import annotations

from typing import Any

TITLE = "Kernels on a GPU"
COLUMNS = (
    "operation",
    "eager",
    "in a graph",
    "of the ceiling",
    "torch",
    "torch.compile",
    "targets",
)
NAMES = {
    "eager_ms": "eager <= {} ms",
    "graph_ms": "in a graph <= {} ms",
    "fraction": ">= {:.0%} of the ceiling",
    "memory": "memory <= {:.0%} of the logits",
}


def section(report: dict[str, Any]) -> str:
    """The section of docs/benchmarks.md."""
    facts = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    text = f"""\
## {TITLE}

Generated from `benchmarks/gpu/run.py` on {facts["date"]}: {facts["gpu"]}, Python {facts["python"]},
{versions}. Medians between CUDA events; every result was first compared with float64 on random
inputs. Eager starts on an idle device and holds the launch from Python. The ceiling is the time in
which the machine copies the bytes that must be moved ({facts["bytes_per_second"] / 1e12:.2f} TB/s,
measured), or multiplies bfloat16 matrices ({facts["operations_per_second"] / 1e12:.0f} TFLOP/s);
small inputs repeat from the cache.
"""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(_cells(row) for row in report["results"])]
    return text + "\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    times = [_ms(row.get(name)) for name in ("eager_ms", "graph_ms")]
    fraction = f"{row['fraction']:.0%}" if "fraction" in row else "-"
    peers = [_ms(row.get(name)) for name in ("torch_ms", "compiled_ms")]
    targets = [
        f"{NAMES[name].format(bound)}: {'yes' if row['met'][name] else 'no'}"
        for name, bound in row["targets"].items()
    ]
    return (row["operation"], *times, fraction, *peers, ", ".join(targets))


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g} ms" if value >= 0.1 else f"{value * 1e3:.3g} us"
