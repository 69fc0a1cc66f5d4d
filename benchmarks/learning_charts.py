"""Curves of learning as SVG, against steps and against seconds."""

from __future__ import annotations

import statistics

from learning_results import Groups
from learning_statistics import Estimate, estimate
from learning_tasks import OURS, PEER, TASKS

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 250, 56, 14, 40, 34
COLORS = {OURS: "#1668dc", PEER: "#d4691e"}

Lines = dict[str, list[tuple[float, Estimate]]]
"""Of each contender the places on the horizontal axis, with the scores of all seeds there."""


def curves(name: str, runs: Groups) -> str:
    """The curves of a task over environment steps, and beside them over seconds of a core."""
    panels = [_against_steps(name, runs)]
    if has_clock(runs):
        panels.append(_against_seconds(name, runs))
    return _picture(panels)


def seconds(tasks: dict[str, Groups]) -> str:
    """The curves of several tasks over seconds of a core, side by side."""
    return _picture([_against_seconds(name, runs) for name, runs in tasks.items()])


def has_clock(runs: Groups) -> bool:
    """Return whether all runs of a task know when each of their points was reached."""
    return all("clock" in run for group in runs.values() for run in group)


def _estimates(runs: Groups) -> dict[str, list[Estimate]]:
    """Of each contender the points that all its runs have."""
    return {
        contender: [
            estimate([score for _, score in column])
            for column in zip(*(run["curve"] for run in group), strict=False)
        ]
        for contender, group in runs.items()
    }


def _against_steps(name: str, runs: Groups) -> str:
    lines: Lines = {}
    for contender, line in _estimates(runs).items():
        steps = [step for step, _ in runs[contender][0]["curve"]]
        lines[contender] = list(zip(steps, line, strict=False))
    end = max(line[-1][0] for line in lines.values())
    return _panel(name, lines, end, f"{end:,} steps")


def _against_seconds(name: str, runs: Groups) -> str:
    found = _estimates(runs)
    lines: Lines = {}
    for contender, group in runs.items():
        clocks = zip(*(run["clock"] for run in group), strict=False)
        lines[contender] = list(zip(map(statistics.fmean, clocks), found[contender], strict=True))
    longest = max(line[-1][0] for line in lines.values())
    return _panel(name, lines, longest, f"{longest:.0f} seconds of one core")


def _panel(name: str, lines: Lines, end: float, end_text: str) -> str:
    """The curves of one task."""
    published = TASKS[name].published
    scores = [bound for line in lines.values() for _, score in line for bound in score]
    scores += [published] if published is not None else []
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
    if published is not None:
        shapes.append(
            f'<path d="M{LEFT} {y(published):.1f}H{WIDTH - RIGHT}" stroke="#777" '
            'stroke-dasharray="4 4"/>'
        )
    for i, (contender, line) in enumerate(lines.items()):
        color = COLORS[contender]
        upper = [f"{x(place):.1f} {y(score.high):.1f}" for place, score in line]
        lower = [f"{x(place):.1f} {y(score.low):.1f}" for place, score in line]
        means = [f"{x(place):.1f} {y(score.mean):.1f}" for place, score in line]
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
