"""Reports of runs: one page that shows how a run went, or how several compare."""

from sharpwave.pages.report.comparison import write_comparison
from sharpwave.pages.report.figure import write_learning_curve
from sharpwave.pages.report.single import write_report

__all__ = ["write_comparison", "write_learning_curve", "write_report"]
