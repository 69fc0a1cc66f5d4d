"""Parts of the report that are tables: time, evaluations, configuration, environment."""

from __future__ import annotations

import shlex
from typing import Any

from sharpwave.pages.markup import Html, tag
from sharpwave.pages.page import definitions, section, table
from sharpwave.pages.text import count, duration, is_number, number, score, share
from sharpwave.storage.run_folder import Evaluation

MOST_EVALUATIONS = 200
"""Rows of the table of evaluations."""

TIMINGS = {
    "env": "environment",
    "act": "acting",
    "collect": "collection",
    "advantages": "advantages",
    "sample": "sampling",
    "reward": "reward functions",
    "update": "updates",
    "callbacks": "callbacks and evaluation",
}
"""Sections of the time, in the order they are shown."""


def timings(summary: dict[str, Any]) -> Html | None:
    """One bar of all the seconds, and a legend with their shares."""
    recorded = summary.get("timings")
    if not isinstance(recorded, dict):
        return None
    known = {name: recorded[name] for name in (*TIMINGS, *recorded) if name in recorded}
    parts = {
        TIMINGS.get(name, str(name)): float(seconds)
        for name, seconds in known.items()
        if is_number(seconds) and seconds > 0
    }
    wall = summary.get("wall_seconds")
    rest = float(wall) - sum(parts.values()) if is_number(wall) else 0.0
    if rest > 0:
        parts["everything else"] = rest
    total = sum(parts.values())
    if not total:
        return None
    pieces, legend = [], []
    for color, (name, seconds) in enumerate(parts.items(), start=1):
        percent = 100 * seconds / total
        kind = "t0" if name == "everything else" else f"t{min(color, 6)}"
        words = f"{'<1' if percent < 1 else f'{percent:.0f}'} % · {duration(seconds)}"
        pieces.append(
            tag("span", class_=kind, style=f"flex-grow:{percent:.3f}", title=f"{name}: {words}")
        )
        legend.append((tag("span", name, class_=f"key {kind}"), words))
    bar = tag("div", *pieces, class_="bar", role="img", aria_label="shares of the wall time")
    return section(
        "Where the time went", tag("div", bar, definitions(legend, class_="shares"), class_="card")
    )


def evaluations(results: list[Evaluation], each: str = "episode") -> Html | None:
    """The evaluations, the best in bold, with every episode of each as a tick."""
    if not results:
        return None
    best = max(one.mean for one in results)
    shown = results[-MOST_EVALUATIONS:]
    every = [value for one in shown for value in one.returns] or [0.0]
    low, high = min(every), max(every)
    has_success = any(one.success_rate is not None for one in shown)
    rows = [
        [
            count(one.step),
            tag("b", score(one.mean)) if one.mean == best else score(one.mean),
            score(one.std),
            score(min(one.returns)) if one.returns else "",
            score(max(one.returns)) if one.returns else "",
            score(one.mean_length),
            *([share(one.success_rate)] if has_success else []),
            _strip(one.returns, low, high),
        ]
        for one in reversed(shown)
    ]
    success = ["Success"] if has_success else []
    head = ["Step", "Mean", "Std", "Worst", "Best", "Length", *success, f"Every {each}"]
    older = len(results) - len(shown)
    note = f"latest first; {older:,} older ones are in the folder" if older else "latest first"
    return section("Evaluations", table(head, rows), note=note)


def _strip(returns: tuple[float, ...], low: float, high: float) -> Html:
    """Every return as a tick between the worst and the best of the run."""
    width = high - low or 1.0
    marks = "M0 13H200" + "".join(
        f"M{2 + 196 * (value - low) / width:.1f} 2V13" for value in returns[:500]
    )
    return tag(
        "svg", tag("path", d=marks), class_="strip", viewBox="0 0 200 14", aria_hidden="true"
    )


def configuration(config: dict[str, Any]) -> Html | None:
    """All options, those that are not at their default marked."""
    values = config.get("config")
    if not isinstance(values, dict) or not values:
        return None
    listed = config.get("changed")
    changed = {str(name) for name in listed} if isinstance(listed, list) else set()
    pairs: list[tuple[Any, Any]] = [
        (tag("span", name, class_="changed") if name in changed else name, _plain(value))
        for name, value in values.items()
    ]
    note = "marked: other than the default" if changed else None
    return section("Configuration", definitions(pairs), note=note)


def facts(environment: dict[str, Any]) -> Html | None:
    """Versions, machine, command line and git state."""
    git = environment.get("git")
    state = git if isinstance(git, dict) else {}
    plain = {k: v for k, v in environment.items() if k not in ("git", "argv", "started")}
    pairs: list[tuple[Any, Any]] = [(name, _plain(value)) for name, value in plain.items()]
    if state.get("commit"):
        dirty = ", changed" if state.get("dirty") else ""
        pairs.append(("git commit", f"{str(state['commit'])[:12]}{dirty}"))
    if state.get("branch"):
        pairs.append(("git branch", state["branch"]))
    if not pairs:
        return None
    argv = environment.get("argv")
    blocks = [
        tag("pre", shlex.join(str(word) for word in argv)) if isinstance(argv, list) else None,
        tag("pre", state["diff_stat"]) if state.get("diff_stat") else None,
    ]
    return section("Environment", definitions(pairs), *blocks)


def _plain(value: Any) -> str:
    """A value of the configuration as a person would write it."""
    if isinstance(value, float):
        return number(value, 6) if is_number(value) else str(value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, list):
        return ", ".join(_plain(inner) for inner in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    return str(value)
