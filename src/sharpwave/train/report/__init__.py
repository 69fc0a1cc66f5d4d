"""Reports of runs: one page that shows how a run went, or how several compare."""

from sharpwave.train.report.single import write_report

__all__ = ["write_report"]
