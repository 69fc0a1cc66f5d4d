"""Runs that are watched: one live page over all run folders below a folder.

Belongs here: reading runs while they are written, and the page; nothing that writes runs.
"""

from sharpwave.pages.watch.page import watch_server
from sharpwave.pages.watch.runs import WatchedRuns

__all__ = ["WatchedRuns", "watch_server"]
