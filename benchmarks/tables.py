"""Results as tables: plain text for the terminal, Markdown for the documentation."""

from __future__ import annotations

from typing import Any

from harness import FLOOR, OURS

PEERS = (
    "rlox",
    "SB3",
    "cpprb",
    "tianshou",
    "memmap-rb",
    "numpy",
    "torch",
    "gymnasium",
    "SyncVectorEnv",
    "mpe2",
    "plain torch",
)

Results = list[dict[str, Any]]


def by_area(results: Results) -> dict[str, Results]:
    """Rows grouped by area, in the order in which they were measured."""
    areas: dict[str, Results] = {}
    for row in results:
        areas.setdefault(row["area"], []).append(row)
    return areas


def value_text(value: float, unit: str) -> str:
    """A value with three figures; times in the unit that suits them."""
    if unit == "CPU-s":
        return f"{_figures(value)} CPU-s"
    if unit in ("s", "s/agent step"):
        for scale, name in ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms")):
            if value < 999.5 * scale:
                return f"{_figures(value / scale)} {name}"
        return f"{_figures(value)} s"
    if unit in ("s/step", "CPU-s/step"):
        return f"{1 / value:,.0f} steps/{unit.removesuffix('/step')}"
    if unit == "x":
        return f"{value:.2f}x"
    if unit == "B":
        return f"{value:.0f} B" if value < 10_000 else f"{value / 1000:.1f} kB"
    return f"{value:g}" if unit == "return" else f"{value:.4g} {unit}"


def _figures(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.3g}"


JUDGED = ["target", "met"]
"""Columns for those who work on the library: the terminal and benchmarks/targets.md have them."""


def header(results: Results) -> list[str]:
    """Column names: only peers that were measured in these rows."""
    present = dict.fromkeys(name for row in results for name in row["contenders"])
    others = [name for name in present if name not in (OURS, *PEERS, FLOOR)]
    contenders = [name for name in (OURS, *PEERS, *others, FLOOR) if name in present]
    return ["operation", *contenders]


def cells(row: dict[str, Any], columns: list[str]) -> list[str]:
    """The texts of one row under `columns`."""
    return [_cell(row, column) for column in columns]


def _cell(row: dict[str, Any], column: str) -> str:
    if column == "operation":
        return row["operation"]
    if column == "target":
        return ", ".join(target["text"] for target in row["targets"])
    if column == "met":
        return ", ".join(_verdict(target) for target in row["targets"])
    entry = row["contenders"].get(column)
    if entry is None:
        return "-"
    text = value_text(entry["median"], row["unit"])
    if row["unit"] in ("s", "s/step", "CPU-s/step") and "ratio" in entry:
        text += f" ({entry['ratio']:.2f}x)"
    return text


def _verdict(target: dict[str, Any]) -> str:
    if target["met"] is None:
        return "not measured"
    return f"yes: {target['achieved']}" if target["met"] else f"no: {target['achieved']}"


def plain(results: Results) -> str:
    """Aligned columns for a terminal."""
    columns = [*header(results), *JUDGED]
    lines = [columns, *(cells(row, columns) for row in results)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    texts = [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([texts[0], "-" * len(texts[0]), *texts[1:]])


def markdown(results: Results) -> str:
    """A table for the documentation."""
    columns = header(results)
    return _markdown([columns, *(cells(row, columns) for row in results)])


def targets(results: Results) -> str:
    """A table of the rows that have targets: which, and whether they are met."""
    columns = ["operation", *JUDGED]
    return _markdown([columns, *(cells(row, columns) for row in results if row["targets"])])


def _markdown(lines: list[list[str]]) -> str:
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in ruled)


def summary(results: Results) -> str:
    """The number of targets that are met, and those that are not."""
    targets = [(row["operation"], target) for row in results for target in row["targets"]]
    measured = [(name, target) for name, target in targets if target["met"] is not None]
    missed = [
        f"  {name}: {target['text']}, got {target['achieved']}"
        for name, target in measured
        if not target["met"]
    ]
    head = f"{len(measured) - len(missed)} of {len(measured)} measured targets met"
    if len(measured) < len(targets):
        head += f", {len(targets) - len(measured)} not measured"
    return "\n".join([head, *missed])
