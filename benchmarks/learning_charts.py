"""Curves of learning as SVG, against steps and against seconds."""

from __future__ import annotations

import statistics
from typing import Any

from side_by_side import OURS, PEER

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 250, 56, 14, 40, 34
COLORS = {OURS: "#1668dc", PEER: "#d4691e"}

Run = dict[str, Any]
Lines = dict[str, list[tuple[float, list[float]]]]
"""Of each contender the places on the horizontal axis, with the scores of all seeds there."""


def curves(name: str, runs: dict[str, list[Run]]) -> str:
    """The curves of a task over environment steps, and beside them over seconds of a core."""
    panels = [_against_steps(name, runs)]
    if has_clock(runs):
        panels.append(_against_seconds(name, runs))
    return _picture(panels)


def seconds(tasks: dict[str, dict[str, list[Run]]]) -> str:
    """The curves of several tasks over seconds of a core, side by side."""
    return _picture([_against_seconds(name, runs) for name, runs in tasks.items()])


def has_clock(runs: dict[str, list[Run]]) -> bool:
    """Return whether all runs of a task know when each of their points was reached."""
    return all("clock" in run for group in runs.values() for run in group)


def _against_steps(name: str, runs: dict[str, list[Run]]) -> str:
    lines: Lines = {
        contender: [
            (column[0][0], [score for _, score in column])
            for column in zip(*(run["curve"] for run in group), strict=False)
        ]
        for contender, group in runs.items()
    }
    steps = max(run["steps"] for group in runs.values() for run in group)
    return _panel(name, lines, steps, f"{steps:,} steps")


def _against_seconds(name: str, runs: dict[str, list[Run]]) -> str:
    lines: Lines = {}
    for contender, group in runs.items():
        times = zip(*(run["clock"] for run in group), strict=False)
        scores = zip(*([score for _, score in run["curve"]] for run in group), strict=False)
        lines[contender] = [
            (statistics.fmean(clocks), list(column))
            for clocks, column in zip(times, scores, strict=True)
        ]
    longest = max(line[-1][0] for line in lines.values())
    return _panel(name, lines, longest, f"{longest:.0f} seconds of one core")


def _panel(name: str, lines: Lines, end: float, end_text: str) -> str:
    """The curves of one task."""
    scores = [score for line in lines.values() for _, column in line for score in column]
    low, high = min(scores), max(scores)
    span = (high - low) or 1.0

    def x(place: float) -> float:
        return LEFT + place / end * (WIDTH - LEFT - RIGHT)

    def y(score: float) -> float:
        return HEIGHT - BOTTOM - (score - low) / span * (HEIGHT - TOP - BOTTOM)

    shapes = [
        f'<text x="{LEFT}" y="22" font-weight="bold">{name}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 10}">0</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{end_text}</text>',
    ]
    shapes += [
        f'<text x="{LEFT - 6}" y="{y(value) + 5:.1f}" text-anchor="end">{value:.0f}</text>'
        f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#ccc"/>'
        for value in (low, high)
    ]
    for i, (contender, line) in enumerate(lines.items()):
        color = COLORS[contender]
        upper = [f"{x(place):.1f} {y(max(column)):.1f}" for place, column in line]
        lower = [f"{x(place):.1f} {y(min(column)):.1f}" for place, column in line]
        means = [f"{x(place):.1f} {y(statistics.fmean(column)):.1f}" for place, column in line]
        shapes += [
            f'<path d="M{"L".join(upper + lower[::-1])}Z" fill="{color}" opacity=".15"/>',
            f'<path d="M{"L".join(means)}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<text x="{WIDTH - RIGHT - 90 * i}" y="22" text-anchor="end" fill="{color}">'
            f"{contender}</text>",
        ]
    return "\n".join(shapes)


def _picture(panels: list[str]) -> str:
    """Panels side by side, on a ground of their own, which dark pages need."""
    width = WIDTH * len(panels)
    moved = [
        f'<g transform="translate({i * WIDTH} 0)">\n{panel}\n</g>' for i, panel in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" '
        f'font-family="sans-serif" font-size="15" fill="#444">\n'
        f'<rect width="{width}" height="{HEIGHT}" rx="8" fill="#fff"/>\n'
        + "\n".join(moved)
        + "\n</svg>\n"
    )
