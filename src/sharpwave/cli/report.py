"""`sharpwave report`."""

from __future__ import annotations

from pathlib import Path

from sharpwave.cli.folders import existing, seed_folders
from sharpwave.cli.parser import Parser
from sharpwave.cli.terminal import UserError, input_errors, say
from sharpwave.pages.text import count
from sharpwave.storage.run_folder import RunFolder


def run(arguments: list[str]) -> int:
    """Write reports, and return the exit status."""
    parsed = _parser().parse(arguments)
    given = [existing(path) for path in parsed.runs]
    runs = [part for path in given for part in (seed_folders(path) or [path])]
    for path in runs:
        if not path.is_dir():
            raise UserError(f"RUN must be a run folder, got the file {path}")
        if not RunFolder(path).exists:
            raise UserError(f"RUN must be a run folder, but {path} holds no run")

    from sharpwave.pages.report import write_comparison, write_report

    with input_errors():
        if len(runs) == 1:
            write_report(runs[0])
            say(f"report: {runs[0] / 'report.html'}")
            return 0
        out = Path(parsed.out or (given[0] if len(given) == 1 else Path()) / "comparison.html")
        write_comparison(runs, out)
        say(f"comparison of {count(len(runs), 'run')}: {out}")
    return 0


def _parser() -> Parser:
    parser = Parser("report", "Write the report of a run, or compare several.")
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run folders")
    parser.add_argument("--out", metavar="FILE.html", help="file of the comparison of several runs")
    return parser
