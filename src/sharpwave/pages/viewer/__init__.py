"""Looking into folders of the durable store: in the terminal, on a page, and live.

Belongs here: sources of rows, surveys of them, and the pages that show these; nothing that writes
experience.
"""

from sharpwave.pages.viewer.viewer import Viewer

__all__ = ["Viewer"]
