"""Text output of `sharpwave inspect`."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from sharpwave.pages.text import count, number, size
from sharpwave.pages.viewer.summary import FieldSummary, FolderSummary
from sharpwave.printable import printable

_BLOCKS = " ▁▂▃▄▅▆▇█"


def print_summary(summary: FolderSummary, console: Console) -> None:
    """Print what a folder holds."""
    parts: list[Any] = [_headline(summary), _counts(summary), ""]
    spreads = _spreads(summary)
    if spreads.row_count:
        parts += [spreads, ""]
    parts.append(_fields(summary.fields))
    notes = [Text(printable(f"not shown: {note}"), "dim") for note in summary.about.notes]
    closing = notes + _health(summary)
    console.print(Group(*parts, *([""] if closing else []), *closing))


def _headline(summary: FolderSummary) -> Text:
    about = summary.about
    kind = "episodes" if about.kind == "episodes" else "a replay buffer"
    writer = summary.condition.writer
    text = Text.assemble(
        (printable(about.path, lines=False), "bold"),
        f"  {kind}, made by sharpwave {printable(about.library, lines=False)}",
    )
    if writer is not None:
        text.append(f", being written by process {writer}", "yellow")
    return text


def _counts(summary: FolderSummary) -> Text:
    counts = summary.counts
    words = []
    if counts["episodes"]:
        words.append(f"{counts['complete']:,} complete")
        words += [f"{counts[n]:,} {n}" for n in ("open", "aborted") if counts[n]]
        words[0] += " episodes" if len(words) == 1 else ""
    words.append(f"{counts['steps']:,} steps")
    words.append(f"{size(summary.condition.bytes)} on disk")
    return Text(", ".join(words))


def _spreads(summary: FolderSummary) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, spread in (("return", summary.returns), ("length", summary.lengths)):
        if spread is None:
            continue
        table.add_row(
            Text(name, "bold"),
            f"mean {number(spread['mean'])} ± {number(spread['std'])}",
            Text.assemble(
                f"{number(spread['low'])} ",
                (sparkline(spread["counts"]), "blue"),
                f" {number(spread['high'])}",
            ),
            f"median {number(spread['median'])}",
        )
    return table


def sparkline(counts: list[int]) -> str:
    """Bars of text; what is not empty is never invisible.

    Example:
        >>> sparkline([0, 1, 8, 4])
        ' ▁█▄'
    """
    most = max([*counts, 1])
    return "".join(_BLOCKS[-(-8 * count // most)] for count in counts)


def _fields(fields: tuple[FieldSummary, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for name in ("field", "role", "type"):
        table.add_column(name, overflow="fold")
    for name in ("on disk", "least", "mean", "greatest", "not finite"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in fields:
        column, values = one.column, one.values
        lost = values["nan"] + values["infinite"]
        sampled = "~" if values["rows_read"] < one.rows else ""
        table.add_row(
            Text(printable(column.name, lines=False)),
            "of the episode" if column.per_episode else column.role,
            _type(one),
            size(one.bytes),
            *(sampled + _value(column.dtype, key, values[key]) for key in ("low", "mean", "high")),
            Text(f"{lost:,}", "red") if lost else "0" if values["rows_read"] else "–",
        )
    return table


def _value(dtype: str, key: str, value: Any) -> str:
    """Ends of integers in full: they may be names, as seeds are."""
    return count(value) if key != "mean" and dtype.startswith(("int", "uint")) else number(value)


def _type(one: FieldSummary) -> str:
    column = one.column
    words = [column.dtype]
    if column.shape:
        words.append("×".join(map(str, column.shape)))
    if column.codec != "none":
        words.append(f"({column.codec})")
    return " ".join(words)


def _health(summary: FolderSummary) -> list[Text]:
    condition = summary.condition
    lines = [Text(printable(f"damaged: {line}"), "bold red") for line in condition.damage]
    if condition.verified and not condition.damage:
        lines.append(Text("all checksums are right", "green"))
    if any(one.values["rows_read"] < one.rows for one in summary.fields):
        lines.append(Text("~ of a sample; --full reads everything", "dim"))
    return lines
